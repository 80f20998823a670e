"""A page that holds systems against each other: a leaderboard, paired differences, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.evaluation.systems import EXAMPLES, PAIRS, Compared
from pipelines.report import rendering
from pipelines.report.accuracy_sections import WILSON
from pipelines.report.effect_sections import COMPARED_HEADS
from pipelines.report.entries import chart, table_of
from pipelines.report.entries import lines as lines_of
from pipelines.report.page import Block, Percent, Section, Table, label, show

DRAWN = 8  # systems in the figures
FOOTER = (
    "Made by `longtail compare`. An answer is right if it contains a gold answer (the published rule). Accuracies have "
    "Wilson's 95 % intervals, and differences bootstraps over subjects."
)


def sections(name: str, signal: str, compared: Compared, notes: Sequence[str]) -> list[Section]:
    """The sections on one question set; `signal` says what its questions' popularity is, `notes` what was read."""
    prefix = f"{name}-{compared.month}" if compared.month else name
    of = f"{compared.questions:,} questions of {name} that all {len(compared.counts)} systems answered"
    of += f"; page views of {compared.month}" if compared.month else ""
    blocks = [_board(prefix, of, compared), _pairs(prefix, of, compared)]
    parts = [Section(_id("board", prefix), f"Leaderboard: {prefix}", blocks)]
    parts += popularity_section(prefix, signal, compared.by_popularity)
    parts.append(Section(_id("relation", prefix), f"By relation: {prefix}", [_by_relation(prefix, compared)]))
    disagree = _examples(prefix, compared)
    parts.append(Section(_id("examples", prefix), f"Where they disagree: {prefix}", [disagree]))
    return [*parts, what_was_read(prefix, notes)]


def what_was_read(prefix: str, notes: Sequence[str]) -> Section:
    """Which files the numbers are from, and how their rows were joined."""
    return Section(_id("files", prefix), f"What was read: {prefix}" if prefix else "What was read", [*notes])


def popularity_section(prefix: str, signal: str, rows: list[dict]) -> list[Section]:
    """Accuracy by popularity, from the rows of `systems.by_popularity`; nothing without any."""
    title = f"By {signal}: {prefix}" if prefix else f"By {signal}"
    return [Section(_id("popularity", prefix), title, _by_popularity(prefix, signal, rows))] if rows else []


def leaderboard_html(title: str, intro: str, parts: list[Section], footer: str = FOOTER) -> str:
    """The whole page, in one file."""
    return rendering.render(title, intro, [], parts, footer)


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


def tables(parts: list[Section]) -> Iterator[Table]:
    """The tables of the sections, which a file each can hold."""
    return (block for section in parts for block in section.blocks if isinstance(block, Table))


SYSTEM = {"method": "system", "against": "less", "substring": "accuracy"}


def _board(prefix: str, of: str, compared: Compared) -> Table:
    rows = [
        row | {"place": place, "answers": compared.counts[row["method"]]}
        for place, row in enumerate(compared.accuracy, start=1)
    ]
    caption = (
        f"Accuracy in per cent on {of}, and its correlation with log popularity. Answers: how many of the set's "
        "questions a system answers at all."
    )
    columns = ["method", "place", "answers", "substring", "correlation"]
    return table_of(f"leaderboard-{prefix}", caption, rows, columns, SYSTEM)


def _pairs(prefix: str, of: str, compared: Compared) -> Table:
    caption = (
        f"One system less another in points, on {of}, with 95 % intervals over subjects. Only this and only that: "
        "questions on which only the first or only the second is right, with McNemar's exact test, which takes "
        "questions as independent."
    )
    heads = COMPARED_HEADS | SYSTEM | {"gain": "accuracy"}
    columns = ["method", "against", "gain", "only_this", "only_that", "p"]
    return table_of(f"pairs-{prefix}", caption, compared.pairs, columns, heads)


def _by_popularity(prefix: str, signal: str, rows: list[dict]) -> list[Block]:
    name, systems = f"by-popularity-{prefix}", [*dict.fromkeys(row["method"] for row in rows)]
    numbers = {decile: number for number, decile in enumerate(dict.fromkeys(row["decile"] for row in rows), start=1)}
    rows = [{key: row[key] for key in ("method", "popularity", "questions", "substring")}
            | {"number": numbers[row["decile"]]} for row in rows]  # fmt: skip
    log_x = min(row["popularity"] for row in rows) > 0
    axes = {"x": f"median {signal} of the bin{' (log scale)' * log_x}", "y": "accuracy, %", "log_x": log_x}
    caption, drawn = f"Accuracy by {signal}, in {len(numbers)} bins of equal size. {WILSON}", systems[:DRAWN]
    return [
        chart(lines_of, name, caption, rows, drawn, "popularity", "substring", "method", **axes),
        table_of(
            name,
            f"Accuracy in per cent by {signal}, in bins of equal size.",
            rows,
            ["number", "questions", "popularity", "method", "substring"],
            SYSTEM | {"number": "bin", "popularity": f"median {signal}"},
        ),
    ]


def _by_relation(prefix: str, compared: Compared) -> Table:
    columns = ["relation", "questions", "method", "substring"]
    caption = "Accuracy in per cent by relation."
    return table_of(f"by-relation-{prefix}", caption, compared.by_relation, columns, SYSTEM)


def _examples(prefix: str, compared: Compared) -> Table:
    caption = (
        f"Questions on which only one of two systems is right, drawn by hash: {EXAMPLES} at most of each kind, of "
        f"{PAIRS} pairs at most, those of the best system first."
    )
    heads = {"answer": "a gold answer", "said": "right answer", "instead": "wrong answer", "popularity": "popularity"}
    columns = ["right", "wrong", "question", "answer", "said", "instead", "popularity", "relation"]
    return table_of(f"disagreements-{prefix}", caption, compared.examples, columns, heads)


def _id(kind: str, prefix: str) -> str:
    """An anchor of the page: small letters, digits and hyphens."""
    words = "".join(c if c.isascii() and c.isalnum() else "-" for c in label(prefix).lower())
    return f"{kind}-{words}" if prefix else kind
