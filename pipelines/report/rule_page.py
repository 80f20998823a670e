"""Thresholds from files of predictions, for a terminal, as a table and as a page of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.adaptive.from_files import Result
from pipelines.intervals import Interval, interval, wilson
from pipelines.report import adaptive_section, leaderboard, rendering
from pipelines.report.adaptive_section import CUTS, ORACLE, POLICIES, cut
from pipelines.report.entries import Drawn, spread, table_of
from pipelines.report.figures import bars
from pipelines.report.inputs import bounded
from pipelines.report.page import Percent, Section, Table, show, to_lines

FOOTER = (
    "Made by `longtail thresholds`. An answer is right if it contains a gold answer (the published rule). rule.json "
    "beside this page is the rule; thresholds.csv has the thresholds of all files."
)
HEADS = {"tail": "below", "popular": "from it on", "name": "relation", "cut": "threshold", "closed_book": "without"}
HEADS |= {"augmented": "with", "gain": "gain"}
PLAIN = ("closed_book", "augmented", "adaptive", "retrieved")


def rule_lines(results: Sequence[Result], names: dict[str, str]) -> Iterator[str]:
    """What each pair of files is worth, and its thresholds; the best pair comes first."""
    for result in results:
        held = {name: show(Percent(figure, signed=name == "gain")) for name, figure in _held(result).items()}
        better = "always" if _held(result)["always"].value >= _held(result)["never"].value else "never"
        saved = 1 - _held(result)["retrieved"].value
        yield ""
        yield f"{result.tail} below the threshold, {result.popular} from it on"
        yield f"  never retrieve  {held['never']}"
        yield f"  always          {held['always']}"
        yield f"  adaptive        {held['adaptive']}, held out"
        yield f"  oracle          {held['oracle']}"
        yield f"  gain            {held['gain']} points over {better}"
        yield f"  retrieves       {held['retrieved']} % of the questions; saves {100 * saved:.1f} % of retrievals"
        yield f"  verdict         {result.file.verdict}"
        rows = [
            row | {"cut": f"{show(row['cut'])}{'*' * row['pooled']}"} | {name: row[f"plain_{name}"] for name in PLAIN}
            for row in _rows([result], names)
        ]
        columns = ["name", "questions", "cut", "from", "to", *PLAIN]
        yield from (f"  {line}" for line in to_lines(table_of("", "", rows, columns, HEADS)))
        if any(row["pooled"] for row in rows):
            yield "  * too few questions: the threshold of all relations together"


def table(results: Sequence[Result], names: dict[str, str]) -> Table:
    """A row for each pair of files and relation."""
    caption = (
        f"Thresholds in {results[0].file.signal} (retrieve below), with the middle 95 % over resampled subjects; "
        "accuracies and the share that retrieves in per cent, those of adaptive held out. Relations with few questions "
        "share the threshold of all relations together."
    )
    columns = ["tail", "popular", "name", "id", "questions", "own_threshold", "cut", "from", "to", *PLAIN]
    return table_of("thresholds", caption, _rows(results, names), columns, HEADS)


def _held(result: Result) -> dict[str, Interval]:
    return {name: interval(result.figures[name]) for name in (*POLICIES, "gain", "retrieved")}


def _rows(results: Sequence[Result], names: dict[str, str]) -> list[dict[str, Any]]:
    """A row for each pair of files and relation; plain_<column> is a share without its interval."""
    return [
        {"tail": result.tail, "popular": result.popular, "name": names[row["relation"]], "id": row["relation"]}
        | {"questions": row["questions"], "pooled": row["pooled"], "own_threshold": not row["pooled"]}
        | {name: cut(row[key]) for name, key in zip(("cut", "from", "to"), CUTS, strict=True)}
        | {name: _wilson(row[name], row["questions"]) for name in ("closed_book", "augmented")}
        | {name: bounded(row, name) for name in ("adaptive", "retrieved")}
        | {f"plain_{name}": row[name] for name in PLAIN}
        for result in results
        for row in result.relations
    ]


def rule_html(
    results: Sequence[Result], names: dict[str, str], set_name: str, notes: Sequence[str], by_popularity: list[dict]
) -> str:
    """The page: verdict, policies, thresholds, and accuracy by popularity, the rows of `systems.by_popularity`."""
    best, thresholds = results[0], table(results, names)
    file = best.file
    month = f" of {file.month}" if file.month else ""
    rows = [
        {"tail": result.tail, "popular": result.popular, "verdict": result.file.verdict} | _held(result)
        for result in results
    ]
    drawn = spread(rows, {policy: policy for policy in POLICIES})
    caption = f"Adaptive against always and never retrieving. {ORACLE}"
    verdict = [
        f"{best.tail} below the threshold, {best.popular} from it on: {file.verdict}.",
        table_of(
            "policies",
            "Held-out accuracy in per cent, the gain over the better of always and never in points, and the share of "
            "questions that retrieve in per cent.",
            rows,
            ["tail", "popular", *POLICIES, "gain", "retrieved", "verdict"],
            HEADS,
        ),
        *Drawn(bars, "policies", drawn, "tail", "accuracy", caption, {"y": "held-out accuracy, %"}).blocks(),
    ]
    rows = [row | {"method": result.tail} for result in results for row in result.relations]
    drawn = adaptive_section.draw_thresholds(rows, file.signal, names, each="")
    sections = [
        Section("verdict", "Is a threshold worth it?", verdict),
        Section("thresholds", "Thresholds", [*drawn, thresholds]),
        *leaderboard.popularity_section("", file.signal, by_popularity),
        leaderboard.what_was_read("", notes),
    ]
    intro = (
        f"{file.questions:,} questions of {set_name}{', page views' + month if month else ''}. A question takes the "
        f"answer of {best.tail} where its {file.signal} are below its relation's threshold. Adaptive retrieves for "
        f"{show(Percent(_held(best)['retrieved']))} % of the questions. The thresholds were searched for by "
        f"`{file.search}`; held-out figures are over 100 splits, each with a subject's questions on one side."
    )
    return rendering.render(f"Thresholds: {best.tail} and {best.popular}", intro, [], sections, FOOTER)


def _wilson(share: float, questions: int) -> Interval:
    return Interval(share, *map(float, wilson(share * questions, questions)))
