"""A page that holds systems against each other: a leaderboard, paired differences, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.evaluation.systems import EXAMPLES, PAIRS, Compared
from pipelines.report.accuracy_sections import WILSON
from pipelines.report.entries import Drawn, Row, table_of
from pipelines.report.figures import lines
from pipelines.report.page import Percent, Section, Table, label, show

FOOTER = (
    "Made by `longtail compare`. An answer is right if it contains a gold answer (the published rule). Accuracies have "
    "Wilson's 95 % intervals, and differences bootstraps over subjects."
)
SYSTEM = {"method": "system", "against": "less", "substring": "accuracy"}


def sections(name: str, signal: str, compared: Compared, notes: Sequence[str]) -> list[Section]:
    """The sections on one question set; `signal` says what its questions' popularity is, `notes` what was read."""
    prefix = f"{name}-{compared.month}" if compared.month else name
    of = f"{compared.questions:,} questions of {name} that all {len(compared.counts)} systems answered"
    of += f"; page views of {compared.month}" if compared.month else ""
    places = enumerate(compared.accuracy, start=1)
    board = [row | {"place": place, "answers": compared.counts[row["method"]]} for place, row in places]

    def shown(kind: str, rows: Sequence[Row], columns: str, caption: str, **heads: str) -> Table:
        return table_of(f"{kind}-{prefix}", caption, rows, columns.split(), SYSTEM | heads)

    blocks = [
        shown(
            "leaderboard", board, "method place answers substring correlation",
            f"Accuracy in per cent on {of}, and its correlation with log popularity. Answers: how many of the set's "
            "questions a system answers at all.",
        ),
        shown(
            "pairs", compared.pairs, "method against gain only_this only_that p",
            f"One system less another in points, on {of}, with 95 % intervals over subjects. Only this and only that: "
            "questions on which only the first or only the second is right, with McNemar's exact test, which takes "
            "questions as independent.",
            gain="accuracy", only_this="only this right", only_that="only that right", p="McNemar's p",
        ),
    ]  # fmt: skip
    relations = shown(
        "by-relation", compared.by_relation, "relation questions method substring", "Accuracy in per cent by relation."
    )
    disagree = [
        shown(
            "disagreements", compared.examples, "right wrong question answer said instead popularity relation",
            f"Questions on which only one of two systems is right, drawn by hash: {EXAMPLES} at most of each kind, of "
            f"{PAIRS} pairs at most, those of the best system first.",
            answer="a gold answer", said="right answer", instead="wrong answer", popularity="popularity",
        ),
    ]  # fmt: skip
    return [
        Section(_id("board", prefix), f"Leaderboard: {prefix}", blocks),
        *popularity_section(prefix, signal, compared.by_popularity),
        Section(_id("relation", prefix), f"By relation: {prefix}", [relations]),
        Section(_id("examples", prefix), f"Where they disagree: {prefix}", disagree),
        what_was_read(prefix, notes),
    ]


def what_was_read(prefix: str, notes: Sequence[str]) -> Section:
    """Which files the numbers are from, and how their rows were joined."""
    return Section(_id("files", prefix), f"What was read: {prefix}" if prefix else "What was read", [*notes])


def popularity_section(prefix: str, signal: str, rows: list[dict]) -> list[Section]:
    """Accuracy by popularity, from the rows of `systems.by_popularity`; nothing without any."""
    if not rows:
        return []
    numbers = {decile: number for number, decile in enumerate(dict.fromkeys(row["decile"] for row in rows), start=1)}
    columns = ["number", "questions", "popularity", "method", "substring"]  # the files say nothing of whole words
    rows = [{column: (row | {"number": numbers[row["decile"]]})[column] for column in columns} for row in rows]
    log_x = min(row["popularity"] for row in rows) > 0
    axes = {"x": f"median {signal} of the bin{' (log scale)' * log_x}", "y": "accuracy, %", "log_x": log_x}
    name = f"by-popularity-{prefix}"
    caption = f"Accuracy by {signal}, in {len(numbers)} bins of equal size. {WILSON}"
    heads = SYSTEM | {"number": "bin", "popularity": f"median {signal}"}
    blocks = [
        *Drawn(lines, name, rows, "popularity", "substring", caption, axes, "method").blocks(),
        table_of(name, f"Accuracy in per cent by {signal}, in bins of equal size.", rows, columns, heads),
    ]
    return [Section(_id("popularity", prefix), f"By {signal}: {prefix}" if prefix else f"By {signal}", blocks)]


def leaderboard_lines(compared: Compared) -> Iterator[str]:
    """The leaderboard and the paired differences for a terminal."""
    width = max(map(len, compared.counts))
    yield f"{compared.questions:,} questions that all {len(compared.counts)} systems answered; accuracy in %"
    for place, row in enumerate(compared.accuracy, start=1):
        yield f"{place:3}  {row['method']:{width}}  {show(Percent(row['substring']))}"
    for row in compared.pairs:
        clear = "" if row["gain"].sign else "; no clear difference"
        difference = show(Percent(row["gain"], signed=True))
        yield (
            f"{row['method']} less {row['against']}: {difference} points; only the first is right on "
            f"{row['only_this']:,}, only the second on {row['only_that']:,}{clear}"
        )


def _id(kind: str, prefix: str) -> str:
    """An anchor of the page: small letters, digits and hyphens."""
    words = "".join(c if c.isascii() and c.isalnum() else "-" for c in label(prefix).lower())
    return f"{kind}-{words}" if prefix else kind
