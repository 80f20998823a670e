"""The sections and the lines of `longtail compare`: a leaderboard of systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.foreign.compare_systems import EXAMPLES, PAIRS, Compared
from pipelines.pages.section import Axis, Block, Figure, Row, Section, Table
from pipelines.pages.table_rows import table_of
from pipelines.pages.values import Percent, show

FOOTER = (
    "Made by `longtail compare`. An answer is right if it contains a gold answer (the published "
    "rule). Accuracies have Wilson's 95 % intervals, and differences bootstraps over subjects."
)
HEADS = {"method": "system", "against": "less", "substring": "accuracy"}
BIN_COLUMNS = ("questions", "popularity", "method", "substring")
PAIR_HEADS = HEADS | {
    "gain": "accuracy",
    "only_this": "only this right",
    "only_that": "only that right",
    "p": "McNemar's p",
}
EXAMPLE_HEADS = {
    "answer": "a gold answer",
    "said": "right answer",
    "instead": "wrong answer",
    "popularity": "popularity",
}


def leaderboard_sections(
    name: str, signal: str, compared: Compared, notes: Sequence[str]
) -> list[Section]:
    """The sections on one question set.

    `signal` says what its questions' popularity is, `notes` what was read.
    """
    n_systems = len(compared.counts)
    scope = f"{compared.questions:,} questions of {name} that all {n_systems} systems answered"
    if compared.month:
        scope += f"; page views of {compared.month}"
    board: list[Block] = [_board(compared, scope), _differences(compared, scope)]
    sections = [Section("board", f"Leaderboard: {name}", board)]
    by_popularity = popularity_section(signal, compared.by_popularity)
    if by_popularity.blocks:
        sections.append(by_popularity)
    relations = table_of(
        "by-relation",
        "Accuracy in per cent by relation.",
        compared.by_relation,
        ["relation", "questions", "method", "substring"],
        HEADS,
    )
    sections.append(Section("relation", "By relation", [relations]))
    sections.append(Section("examples", "Where they disagree", [_disagreements(compared)]))
    sections.append(Section("files", "What was read", list(notes)))
    return sections


def _board(compared: Compared, scope: str) -> Table:
    """The accuracy of each system, with its place."""
    rows = [row | {"answers": compared.counts[row["method"]]} for row in _placed(compared)]
    caption = (
        f"Accuracy in per cent on {scope}, and its correlation with log popularity. Answers: how "
        "many of the set's questions a system answers at all. Systems of equal accuracy share a "
        "place."
    )
    columns = ["method", "place", "answers", "substring", "correlation"]
    return table_of("leaderboard", caption, rows, columns, HEADS)


def _differences(compared: Compared, scope: str) -> Table:
    """Each system less each that is better."""
    caption = (
        f"One system less another in points, on {scope}, with 95 % intervals over subjects. Only "
        "this and only that: questions on which only the first or only the second is right, with "
        "McNemar's exact test, which takes questions as independent."
    )
    columns = ["method", "against", "gain", "only_this", "only_that", "p"]
    return table_of("pairs", caption, compared.pairs, columns, PAIR_HEADS)


def _disagreements(compared: Compared) -> Table:
    """Questions on which only one of two systems is right."""
    caption = (
        f"Questions on which only one of two systems is right, drawn by hash: {EXAMPLES} at most "
        f"of each kind, of {PAIRS} pairs at most, those of the best system first."
    )
    columns = ["right", "wrong", "question", "answer", "said", "instead", "popularity", "relation"]
    return table_of("disagreements", caption, compared.examples, columns, HEADS | EXAMPLE_HEADS)


def popularity_section(signal: str, rows: list[dict]) -> Section:
    """Accuracy by popularity, from the rows of `compare_systems.by_popularity`.

    Without blocks if there are no rows.
    """
    deciles = list(dict.fromkeys(row["decile"] for row in rows))
    bins = []
    for row in rows:
        shown = {name: row[name] for name in BIN_COLUMNS}
        bins.append({"number": 1 + deciles.index(row["decile"])} | shown)

    title = f"By {signal}"
    if not bins:
        return Section("popularity", title, [])

    is_log = all(row["popularity"] > 0 for row in bins)
    x_name = f"median {signal} of the bin"
    if is_log:
        x_name += " (log scale)"
    figure = Figure(
        name="by-popularity",
        kind="lines",
        rows=bins,
        series="method",
        x="popularity",
        y="substring",
        x_axis=Axis(x_name, log=is_log),
        y_axis=Axis("accuracy, %"),
        caption=(
            f"Accuracy by {signal}, in {len(deciles)} bins of equal size. Bands are 95 % intervals "
            "(Wilson's, clustered by subject)."
        ),
    )
    heads = HEADS | {"number": "bin", "popularity": f"median {signal}"}
    caption = f"Accuracy in per cent by {signal}, in bins of equal size."
    table = table_of("by-popularity", caption, bins, list(bins[0]), heads)
    return Section("popularity", title, [figure, table])


def leaderboard_lines(compared: Compared) -> Iterator[str]:
    """The leaderboard and the paired differences for a terminal."""
    width = max(map(len, compared.counts))
    yield (
        f"{compared.questions:,} questions that all {len(compared.counts)} systems answered; "
        "accuracy in %"
    )
    for row in _placed(compared):
        accuracy = show(Percent(row["substring"]))
        yield f"{row['place']:3}  {row['method']:{width}}  {accuracy}"

    for row in compared.pairs:
        difference = show(Percent(row["gain"], signed=True))
        line = f"{row['method']} less {row['against']}: {difference} points"
        line += f"; only the first is right on {row['only_this']:,}"
        line += f", only the second on {row['only_that']:,}"
        yield line if row["gain"].sign else f"{line}; no clear difference"


def _placed(compared: Compared) -> list[Row]:
    """The rows of the leaderboard with their places; equal systems share one: 1, 1, 3."""
    accuracies = [row["substring"].value for row in compared.accuracy]
    rows = []
    for row in compared.accuracy:
        rows.append(row | {"place": 1 + accuracies.index(row["substring"].value)})
    return rows
