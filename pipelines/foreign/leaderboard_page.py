"""The sections and the lines of `longtail compare`: a leaderboard of systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.foreign.compare_systems import EXAMPLES, PAIRS, Compared
from pipelines.foreign.metrics_page import EXPLAINED, SYSTEM_METRICS, metric_lines, of_systems
from pipelines.pages.section import Axis, Figure, Row, Section, Table, grouped
from pipelines.pages.table_rows import table_of
from pipelines.pages.values import Percent, in_percent, label, show

FOOTER = (
    "Made by `longtail compare`. An answer is right if it contains a gold answer (the published "
    "rule). Accuracies have Wilson's 95 % intervals, and differences bootstraps over subjects."
)
HEADS = {"substring": "accuracy"}
BIN_COLUMNS = ("number", "questions", "popularity", "system", "substring")
PAIR_HEADS = HEADS | {"gain": "accuracy"}
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
    sections = [_board_section(name, compared, scope)]
    by_popularity = popularity_section(signal, compared.by_popularity)
    if by_popularity.blocks:
        sections.append(by_popularity)
    sections.append(_relations_section(compared))
    sections.append(_examples_section(compared))
    sections.append(Section("files", "What was read", list(notes), f"This page is on {scope}."))
    return sections


def _board_section(name: str, compared: Compared, scope: str) -> Section:
    """The accuracy of each system, and how it differs from others."""
    first, second, *_ = compared.accuracy
    best = f"{label(first['method'])} is right on {in_percent(first['substring'])} %"
    next_best = f"{label(second['method'])}, the next, on {in_percent(second['substring'])} %"
    leads = f"{best} of the questions, {next_best}."
    figure = Figure(
        name="leaderboard",
        kind="bars",
        rows=[row | {"series": "accuracy"} for row in compared.accuracy],
        x="method",
        y="substring",
        y_axis=Axis("accuracy, %"),
        caption=f"Accuracy on {scope}. Thin lines are 95 % intervals.",
    )
    tables = [_board(compared), _differences(compared)]
    return Section("board", f"Leaderboard: {name}", [figure, *tables], leads)


def _board(compared: Compared) -> Table:
    """The accuracy of each system, with its place."""
    rows = [row | {"answers": compared.counts[row["system"]]} for row in _placed(compared)]
    caption = (
        "Per cent. Answers: questions that a system answers. Correlation: with log popularity. "
        f"{EXPLAINED}"
    )
    columns = ["system", "place", "answers", "substring", *SYSTEM_METRICS, "correlation"]
    return table_of("leaderboard", caption, rows, columns, HEADS)


def _differences(compared: Compared) -> Table:
    """Each system less each that is better."""
    caption = (
        "One system less another in points. Only this: questions that only the first gets right. "
        "p: McNemar's exact test, which takes questions as independent."
    )
    columns = ["system", "less", "gain", "only_this", "only_that", "p"]
    return table_of("pairs", caption, of_systems(compared.pairs), columns, PAIR_HEADS)


def _relations_section(compared: Compared) -> Section:
    """Accuracy by relation, and of how many relations the best system is the best."""
    best = compared.accuracy[0]["method"]
    by_relation = grouped(compared.by_relation, "relation")
    wins = 0
    for rows in by_relation.values():
        highest = max(rows, key=lambda row: row["substring"].value)
        wins += highest["method"] == best

    table = table_of(
        "by-relation",
        "Accuracy in per cent by relation.",
        of_systems(compared.by_relation),
        ["relation", "questions", "system", "substring"],
        HEADS,
    )
    leads = f"{label(best)} is right most often on {wins} of {len(by_relation)} relations."
    return Section("relation", "By relation", [table], leads)


def _examples_section(compared: Compared) -> Section:
    """How often the two best systems disagree, and examples."""
    first, second, *_ = compared.accuracy
    best_two = compared.pairs[0]
    alone = best_two["only_this"] + best_two["only_that"]
    leads = (
        f"On {alone:,} of {compared.questions:,} questions, only one of {label(first['method'])} "
        f"and {label(second['method'])} is right."
    )
    caption = (
        f"Questions on which only one of two systems is right, drawn by hash: at most {EXAMPLES} "
        f"of each kind and {PAIRS} pairs, the best first."
    )
    columns = ["right", "wrong", "question", "answer", "said", "instead", "popularity", "relation"]
    table = table_of("disagreements", caption, compared.examples, columns, EXAMPLE_HEADS)
    return Section("examples", "Where they disagree", [table], leads)


def popularity_section(signal: str, rows: list[dict]) -> Section:
    """Accuracy by popularity, from the rows of `compare_systems.by_popularity`.

    Without blocks if there are no rows.
    """
    deciles = list(dict.fromkeys(row["decile"] for row in rows))
    bins = []
    for row in of_systems(rows):
        bins.append(row | {"number": 1 + deciles.index(row["decile"])})

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
        series="system",
        x="popularity",
        y="substring",
        x_axis=Axis(x_name, log=is_log),
        y_axis=Axis("accuracy, %"),
        caption=(
            f"Accuracy by {signal}, in {len(deciles)} bins of equal size. Bands are 95 % intervals."
        ),
    )
    heads = HEADS | {"number": "bin", "popularity": f"median {signal}"}
    caption = f"Accuracy in per cent by {signal}, in bins of equal size."
    table = table_of("by-popularity", caption, bins, BIN_COLUMNS, heads)
    first = bins[0]["system"]
    of_first = [row["substring"] for row in bins if row["system"] == first]
    leads = (
        f"{label(first)} is right on {in_percent(of_first[0])} % of the questions of the lowest "
        f"{signal}, and on {in_percent(of_first[-1])} % of those of the highest."
    )
    return Section("popularity", title, [figure, table], leads)


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
    yield from metric_lines(compared.accuracy)


def _placed(compared: Compared) -> list[Row]:
    """The rows of the leaderboard with their places; equal systems share one: 1, 1, 3."""
    accuracies = [row["substring"].value for row in compared.accuracy]
    rows = []
    for row in of_systems(compared.accuracy):
        rows.append(row | {"place": 1 + accuracies.index(row["substring"].value)})
    return rows
