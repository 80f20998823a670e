"""Thresholds from files of predictions, for a terminal, as a table and as a page of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.adaptive.from_files import Result
from pipelines.intervals import Interval, interval, plainly, wilson
from pipelines.report import adaptive_section, leaderboard, page
from pipelines.report.adaptive_section import CUTS, POLICIES, cut
from pipelines.report.inputs import bounded
from pipelines.report.page import Percent, Section, Table, show

FOOTER = (
    "Made by `longtail thresholds`. An answer is right if it contains a gold answer (the published rule). rule.json "
    "beside this page is the rule; thresholds.csv has the thresholds of all files."
)
SEARCHES = {
    "shrunk": "each relation's accuracy curve, shrunk towards that of all relations together",
    "exact": "every distinct cut of the training questions",
    "logistic": "a logistic curve for each relation",
    "bins": "ten bins of the logarithm of equal width, as in the authors' notebook",
}


def lines(results: Sequence[Result], names: dict[str, str]) -> Iterator[str]:
    """What each pair of files is worth, and its thresholds; the best pair comes first."""
    for result in results:
        held = {name: Percent(interval(result.figures[name])) for name in (*POLICIES, "retrieved")}
        better = "always" if held["always"].interval.value >= held["never"].interval.value else "never"
        saved = 1 - held["retrieved"].interval.value
        yield ""
        yield f"{result.tail} below the threshold, {result.popular} from it on"
        yield f"  never retrieve  {show(held['never'])}"
        yield f"  always          {show(held['always'])}"
        yield f"  adaptive        {show(held['adaptive'])}, held out"
        yield f"  oracle          {show(held['oracle'])}"
        yield f"  gain            {show(Percent(interval(result.figures['gain']), signed=True))} points over {better}"
        yield f"  retrieves       {show(held['retrieved'])} % of the questions; saves {100 * saved:.1f} % of retrievals"
        yield f"  verdict         {result.file.rule.verdict}"
        yield from _rows(result, names)


def table(results: Sequence[Result], names: dict[str, str]) -> Table:
    """A row for each pair of files and relation."""
    signal = results[0].file.signal
    return Table(
        "thresholds",
        f"Thresholds in {signal} (retrieve below), with the middle 95 % over resampled subjects; accuracies and the "
        "share that retrieves in per cent, those of adaptive held out. Relations with few questions share the "
        "threshold of all relations together.",
        [
            *("below", "from it on", "relation", "id", "questions", "own threshold"),
            *("threshold", "from", "to", "without", "with", "adaptive", "retrieves"),
        ],
        [
            [
                *(result.tail, result.popular, names[row["relation"]], row["relation"], row["questions"]),
                not row["pooled"],
                *(cut(row[name]) for name in CUTS),
                *(_wilson(row, name) for name in ("closed_book", "augmented")),
                *(Percent(bounded(row, name)) for name in ("adaptive", "retrieved")),
            ]
            for result in results
            for row in result.relations
        ],
    )


def html(
    results: Sequence[Result], names: dict[str, str], set_name: str, notes: Sequence[str], by_popularity: list[dict]
) -> str:
    """The page: verdict, policies, thresholds, and accuracy by popularity, the rows of `systems.by_popularity`."""
    best, thresholds = results[0], table(results, names)
    file = best.file
    month = f" of {file.month}" if file.month else ""
    held = {name: Percent(interval(best.figures[name])) for name in (*POLICIES, "gain", "retrieved")}
    verdict = [
        f"{best.tail} below the threshold, {best.popular} from it on: {file.rule.verdict}.",
        Table(
            "policies",
            "Held-out accuracy in per cent, the gain over the better of always and never in points, and the share of "
            "questions that retrieve in per cent.",
            ["below", "from it on", *POLICIES, "gain", "retrieves", "verdict"],
            [
                [
                    *(result.tail, result.popular),
                    *(Percent(interval(result.figures[name])) for name in POLICIES),
                    Percent(interval(result.figures["gain"]), signed=True),
                    Percent(interval(result.figures["retrieved"])),
                    result.file.rule.verdict,
                ]
                for result in results
            ],
        ),
        adaptive_section.draw_policies(
            "policies",
            [result.tail for result in results],
            [result.figures for result in results],
            "Adaptive against always and never retrieving.",
        ),
    ]
    fitted = {result.tail: {row["relation"]: row for row in result.relations} for result in results}
    shown = {row["relation"]: names[row["relation"]] for row in best.relations}
    drawn = adaptive_section.draw_thresholds("thresholds", fitted, shown, file.signal, set_name)
    sections = [
        Section("verdict", "Is a threshold worth it?", verdict),
        Section("thresholds", "Thresholds", [drawn, thresholds]),
        *leaderboard.popularity_section("", file.signal, by_popularity),
        leaderboard.what_was_read("", notes),
    ]
    intro = (
        f"{file.questions:,} questions of {set_name}{', page views' + month if month else ''}. A question takes the "
        f"answer of {best.tail} where its {file.signal} are below its relation's threshold. Adaptive retrieves for "
        f"{show(held['retrieved'])} % of the questions. The thresholds were searched for by {SEARCHES[file.search]}; "
        "held-out figures are over 100 splits, each with a subject's questions on one side."
    )
    return leaderboard.html(f"Thresholds: {best.tail} and {best.popular}", intro, sections, FOOTER)


def _rows(result: Result, names: dict[str, str]) -> Iterator[str]:
    width = max(len(names[row["relation"]]) for row in result.relations)
    width = max(min(width, 40), len("relation"))
    head = f"{'relation':{width}}  questions  threshold  middle 95 %          without   with  adaptive  retrieves"
    yield f"  {head}"
    for row in result.relations:
        bounds = f"{_shown(row['threshold_low'])} to {_shown(row['threshold_high'])}"
        marks = "*" if row["pooled"] else " "
        yield (
            f"  {names[row['relation']][:width]:{width}}  {row['questions']:9,}  {_shown(row['threshold']):>9}{marks} "
            f"{bounds:19}  {100 * row['closed_book']:7.1f} {100 * row['augmented']:6.1f} "
            f"{_cell(row['adaptive'])} {_cell(row['retrieved'])}"
        )
    if any(row["pooled"] for row in result.relations):
        yield "  * too few questions: the threshold of all relations together"


def _shown(value: float) -> str:
    number = cut(value)
    return number if isinstance(number, str) else plainly(number, 3)


def _wilson(row: dict, name: str) -> Percent:
    low, high = wilson(row[name] * row["questions"], row["questions"])
    return Percent(Interval(row[name], float(low), float(high)))


def _cell(share: float | None) -> str:
    return f"{page.NONE if share is None else f'{100 * share:.1f}':>9}"
