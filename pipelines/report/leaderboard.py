"""A page that holds systems against each other: a leaderboard, paired differences, and where they disagree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter

from pipelines.evaluation.systems import EXAMPLES, PAIRS, Compared
from pipelines.report import colours, rendering
from pipelines.report.by_popularity import WILSON, chart, crossed, of_relation
from pipelines.report.page import Block, Percent, Section, Table, label, named, show

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
    disagree = [_agreement(prefix, compared), _examples(prefix, compared)]
    parts.append(Section(_id("examples", prefix), f"Where they disagree: {prefix}", disagree))
    return [*parts, what_was_read(prefix, notes)]


def what_was_read(prefix: str, notes: Sequence[str]) -> Section:
    """Which files the numbers are from, and how their rows were joined."""
    return Section(_id("files", prefix), f"What was read: {prefix}" if prefix else "What was read", [*notes])


def popularity_section(prefix: str, signal: str, rows: list[dict]) -> list[Section]:
    """Accuracy by popularity, from the rows of `systems.by_popularity`; nothing without any."""
    title = f"By {signal}: {prefix}" if prefix else f"By {signal}"
    return [Section(_id("popularity", prefix), title, _by_popularity(prefix, signal, rows))] if rows else []


def html(title: str, intro: str, parts: list[Section], footer: str = FOOTER) -> str:
    """The whole page, in one file."""
    return rendering.render(title, intro, [], colours.same_everywhere(parts), footer)


def lines(compared: Compared) -> Iterator[str]:
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


def _board(prefix: str, of: str, compared: Compared) -> Table:
    return Table(
        f"leaderboard-{prefix}",
        f"Accuracy in per cent on {of}, and its correlation with log popularity. Answers: how many of the set's "
        "questions a system answers at all.",
        ["system", "place", "answers", "accuracy", "correlation"],
        [
            [row["method"], place, compared.counts[row["method"]], Percent(row["substring"]), row["correlation"]]
            for place, row in enumerate(compared.accuracy, start=1)
        ],
    )


def _pairs(prefix: str, of: str, compared: Compared) -> Table:
    return Table(
        f"pairs-{prefix}",
        f"One system less another in points, on {of}, with 95 % intervals over subjects. Only this and only that: "
        "questions on which only the first or only the second is right, with McNemar's exact test, which takes "
        "questions as independent.",
        ["system", "less", "accuracy", "only this right", "only that right", "McNemar's p"],
        [
            [*(row[key] for key in ("method", "against")), Percent(row["gain"], signed=True)]
            + [row[key] for key in ("only_this", "only_that", "p")]
            for row in compared.pairs
        ],
    )


def _by_popularity(prefix: str, signal: str, rows: list[dict]) -> list[Block]:
    name, columns = f"by-popularity-{prefix}", {row["method"]: row["method"] for row in rows}
    numbers = {decile: number for number, decile in enumerate(dict.fromkeys(row["decile"] for row in rows), start=1)}
    log_x = min(row["popularity"] for row in rows) > 0
    return [
        chart(
            name,
            rows,
            list(columns)[:DRAWN],
            place=itemgetter("popularity"),
            x=f"median {signal} of the bin{' (log scale)' * log_x}",
            log_x=log_x,
            caption=f"Accuracy by {signal}, in {len(numbers)} bins of equal size. {WILSON}",
        ),
        crossed(
            name,
            f"Accuracy in per cent by {signal}, in bins of equal size.",
            ["bin", "questions", f"median {signal}"],
            lambda row: [numbers[row["decile"]], row["questions"], row["popularity"]],
            rows,
            "decile",
            columns,
            values=["substring"],
        ),
    ]


def _by_relation(prefix: str, compared: Compared) -> Table:
    name, caption, head = f"by-relation-{prefix}", "Accuracy in per cent by relation.", ["relation", "questions"]
    columns = {system: system for system in compared.counts}
    return crossed(name, caption, head, of_relation, compared.by_relation, "relation", columns, values=["substring"])


def _agreement(prefix: str, compared: Compared) -> Table:
    kinds = ("both", "only_this", "only_that", "neither")
    return Table(
        f"agreement-{prefix}",
        f"How many questions both, one or neither of two systems are right on, by relation; {PAIRS} pairs at most, "
        "those of the best system first.",
        ["system", "and", "relation", "questions", "both right", "only the first", "only the second", "neither"],
        [
            [row["method"], row["against"], named(row["relation"]) or "all", row["questions"]]
            + [row[kind] for kind in kinds]
            for row in compared.agreement
        ],
    )


def _examples(prefix: str, compared: Compared) -> Table:
    return Table(
        f"disagreements-{prefix}",
        f"Questions on which only one of two systems is right, drawn by hash: {EXAMPLES} at most of each kind.",
        ["right", "wrong", "question", "a gold answer", "right answer", "wrong answer", "popularity", "relation"],
        [
            [row[key] for key in ("right", "wrong", "question", "answer", "said", "instead")]
            + [None if math.isnan(row["popularity"]) else row["popularity"], named(row["relation"])]
            for row in compared.examples
        ],
    )


def _id(kind: str, prefix: str) -> str:
    """An anchor of the page: small letters, digits and hyphens."""
    words = "".join(c if c.isascii() and c.isalnum() else "-" for c in label(prefix).lower())
    return f"{kind}-{words}" if prefix else kind
