"""Pages and lines on files of predictions: when to retrieve (`longtail thresholds`), and a leaderboard (`compare`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.foreign.compare_systems import EXAMPLES, PAIRS, Compared
from pipelines.foreign.tune_from_files import Result
from pipelines.intervals import Interval, interval
from pipelines.pages import rendering
from pipelines.pages.section import Axis, Figure, Row, Section, Table
from pipelines.pages.table_rows import cell, spread, table_of
from pipelines.pages.table_texts import to_lines
from pipelines.pages.thresholds import ORACLE, POLICIES, cut_in_words, threshold_figure
from pipelines.pages.values import Percent, show

RULE_FOOTER = (
    "Made by `longtail thresholds`. An answer is right if it contains a gold answer (the published rule). rule.json "
    "beside this page is the rule; thresholds.csv has the thresholds of all files."
)
HEADS = {
    "tail": "below",
    "popular": "from it on",
    "name": "relation",
    "cut": "threshold",
    "closed_book": "without",
}
HEADS |= {"augmented": "with", "gain": "gain"}
PLAIN = ("closed_book", "augmented", "adaptive", "retrieved")
ENDS = {"value": "", "low": "_low", "high": "_high"}
COMPARE_FOOTER = (
    "Made by `longtail compare`. An answer is right if it contains a gold answer (the published rule). Accuracies have "
    "Wilson's 95 % intervals, and differences bootstraps over subjects."
)
SYSTEM = {"method": "system", "against": "less", "substring": "accuracy"}


def rule_lines(results: Sequence[Result], names: dict[str, str]) -> Iterator[str]:
    """What each pair of files is worth, and its thresholds; the best pair comes first."""
    for result in results:
        figures = _held(result)
        held = {
            name: show(Percent(figure, signed=name == "gain")) for name, figure in figures.items()
        }
        better = "always" if figures["always"].value >= figures["never"].value else "never"
        saved = 100 * (1 - figures["retrieved"].value)
        yield ""
        yield f"{result.tail} below the threshold, {result.popular} from it on"
        yield f"  never retrieve  {held['never']}"
        yield f"  always          {held['always']}"
        yield f"  adaptive        {held['adaptive']}, held out"
        yield f"  oracle          {held['oracle']}"
        yield f"  gain            {held['gain']} points over {better}"
        yield f"  retrieves       {held['retrieved']} % of the questions; saves {saved:.1f} % of retrievals"
        yield f"  verdict         {result.file.verdict}"
        rows = [
            row
            | {"cut": f"{show(row['cut'])}{'*' * row['pooled']}"}
            | {name: row[name].value for name in PLAIN}
            for row in _rows([result], names)
        ]
        columns = ["name", "questions", "cut", "from", "to", *PLAIN]
        yield from (f"  {line}" for line in to_lines(table_of("", "", rows, columns, HEADS)))
        if any(row["pooled"] for row in rows):
            yield "  * too few questions: the threshold of all relations together"
    for table in decisions_tables(results, plain=("retrieved", "calls")):
        yield from ("", f"{table.caption.partition('.')[0]}:")
        yield from (f"  {line}" for line in to_lines(table))


def decisions_tables(results: Sequence[Result], plain: Sequence[str] = ()) -> list[Table]:
    """Each policy, and each file that decides when to retrieve; the columns `plain` are without intervals."""
    columns = "system said accuracy difference retrieved calls accuracy_area less"
    heads = {"said": "what it is", "difference": "less adaptive", "calls": "retrievals"}
    heads |= {"accuracy_area": "area", "less": "area, less adaptive"}
    tables = []
    for result in (result for result in results if result.decided):
        rows = [row | {"less": cell(row.get("less"), "difference")} for row in result.decided.rows]
        rows = [row | {of: row[of].value for of in plain if of in row} for row in rows]
        caption = (
            f"Who decides when to retrieve, held out; where it has no answers, those of {result.popular} and "
            f"{result.tail} count. Shares in per cent, differences in points, retrievals a question; 95 % intervals "
            "over subjects. The area is the mean accuracy over all shares that may retrieve, if a signal retrieves "
            "where it is strongest, or thresholds are shifted together."
        )
        tables.append(table_of("decisions", caption, rows, columns.split(), heads))
    return tables


def rule_table(results: Sequence[Result], names: dict[str, str]) -> Table:
    """A row for each pair of files and relation."""
    caption = (
        f"Thresholds in {results[0].file.signal} (retrieve below), from and to the last that is not clearly worse; "
        "accuracies and the share that retrieves in per cent, those of adaptive held out. Relations with few questions "
        "share the threshold of all relations together."
    )
    columns = [
        "tail",
        "popular",
        "name",
        "id",
        "questions",
        "own_threshold",
        "cut",
        "from",
        "to",
        *PLAIN,
    ]
    return table_of("thresholds", caption, _rows(results, names), columns, HEADS)


def _held(result: Result) -> dict[str, Interval]:
    return {name: interval(result.figures[name]) for name in (*POLICIES, "gain", "retrieved")}


def _rows(results: Sequence[Result], names: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "tail": result.tail,
            "popular": result.popular,
            "name": names[row["relation"]],
            "id": row["relation"],
        }
        | {
            "questions": row["questions"],
            "pooled": row["pooled"],
            "own_threshold": not row["pooled"],
        }
        | {
            "cut": cut_in_words(row["threshold"]),
            "from": cut_in_words(row["threshold_low"]),
            "to": cut_in_words(row["threshold_high"]),
        }
        | {name: interval({of: row[f"{name}{end}"] for of, end in ENDS.items()}) for name in PLAIN}
        for result in results
        for row in result.relations
    ]


def rule_html(
    results: Sequence[Result],
    names: dict[str, str],
    set_name: str,
    notes: Sequence[str],
    by_popularity: list[dict],
) -> str:
    """The page: verdict, policies, thresholds, and accuracy by popularity, the rows of `compare_systems.by_popularity`."""
    best, file = results[0], results[0].file
    named = [
        {"tail": one.tail, "popular": one.popular, "verdict": one.file.verdict} for one in results
    ]
    rows = [row | _held(one) for row, one in zip(named, results, strict=True)]
    drawn = spread(rows, {policy: policy for policy in POLICIES})
    figure = Figure(
        name="policies",
        kind="dumbbell",
        rows=drawn,
        x="tail",
        y="accuracy",
        y_axis=Axis("held-out accuracy, %"),
        caption=f"Adaptive against always and never retrieving. {ORACLE}",
    )
    caption = (
        "Held-out accuracy in per cent, the gain over the better of always and never in points, and the share of "
        "questions that retrieve in per cent."
    )
    columns = ["tail", "popular", *POLICIES, "gain", "retrieved", "verdict"]
    said = f"{best.tail} below the threshold, {best.popular} from it on: {file.verdict}."
    verdict = [said, table_of("policies", caption, rows, columns, HEADS), figure]
    cuts = []
    for result in results:
        for row in result.relations:
            cut = Interval(row["threshold"], row["threshold_low"], row["threshold_high"])
            cuts.append(row | {"method": result.tail, "name": names[row["relation"]], "cut": cut})
    thresholds = [threshold_figure(cuts, file.signal), rule_table(results, names)]
    curves = [
        row | {"percent": 100 * row["budget"]}
        for one in results
        if one.decided
        for row in one.decided.curves
    ]
    caption = (
        "Accuracy by the share of the questions that retrieve. Lines are signals that retrieve where they are "
        "strongest, and thresholds that are shifted together. Marks are systems as they decided."
    )
    budgets = Figure(
        name="budgets",
        kind="lines",
        rows=curves,
        series="system",
        x="percent",
        y="accuracy",
        x_axis=Axis("share of the questions that retrieve, %"),
        y_axis=Axis("held-out accuracy, %"),
        caption=caption,
    )
    sections = [
        Section("verdict", "Is a threshold worth it?", verdict),
        Section("thresholds", "Thresholds", thresholds),
        Section("decisions", "Who decides when to retrieve?", [*decisions_tables(results), budgets]),
        popularity_section(file.signal, by_popularity),
        Section("files", "What was read", [*notes]),
    ]
    views = f", page views of {file.month}" if file.month else ""
    intro = (
        f"{file.questions:,} questions of {set_name}{views}. A question takes the answer of {best.tail} where its "
        f"{file.signal} are below its relation's threshold. Adaptive retrieves for "
        f"{show(Percent(_held(best)['retrieved']))} % of the questions. The thresholds were searched for by "
        f"`{file.search}`; held-out figures are over 100 splits, each with a subject's questions on one side."
    )
    sections = [section.without_empty_blocks for section in sections]
    sections = [section for section in sections if section.blocks]
    title = f"Thresholds: {best.tail} and {best.popular}"
    return rendering.render(title, intro, sections, RULE_FOOTER)


def leaderboard_sections(
    name: str, signal: str, compared: Compared, notes: Sequence[str]
) -> list[Section]:
    """The sections on one question set; `signal` says what its questions' popularity is, `notes` what was read."""
    of = f"{compared.questions:,} questions of {name} that all {len(compared.counts)} systems answered"
    of += f"; page views of {compared.month}" if compared.month else ""
    board = [row | {"answers": compared.counts[row["method"]]} for row in _placed(compared)]

    def shown(kind: str, rows: Sequence[Row], columns: str, caption: str, **heads: str) -> Table:
        return table_of(kind, caption, rows, columns.split(), SYSTEM | heads)

    blocks = [
        shown(
            "leaderboard", board, "method place answers substring correlation",
            f"Accuracy in per cent on {of}, and its correlation with log popularity. Answers: how many of the set's "
            "questions a system answers at all. Systems of equal accuracy share a place.",
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
        "by-relation",
        compared.by_relation,
        "relation questions method substring",
        "Accuracy in per cent by relation.",
    )
    disagree = shown(
        "disagreements", compared.examples, "right wrong question answer said instead popularity relation",
        f"Questions on which only one of two systems is right, drawn by hash: {EXAMPLES} at most of each kind, of "
        f"{PAIRS} pairs at most, those of the best system first.",
        answer="a gold answer", said="right answer", instead="wrong answer", popularity="popularity",
    )  # fmt: skip
    by_popularity = popularity_section(signal, compared.by_popularity)
    return [
        Section("board", f"Leaderboard: {name}", blocks),
        *([by_popularity] if by_popularity.blocks else []),
        Section("relation", "By relation", [relations]),
        Section("examples", "Where they disagree", [disagree]),
        Section("files", "What was read", [*notes]),
    ]


def popularity_section(signal: str, rows: list[dict]) -> Section:
    """Accuracy by popularity, from the rows of `compare_systems.by_popularity`; without blocks if there are none."""
    numbers = {
        decile: number
        for number, decile in enumerate(dict.fromkeys(row["decile"] for row in rows), start=1)
    }
    columns = [
        "number",
        "questions",
        "popularity",
        "method",
        "substring",
    ]  # the files say nothing of whole words
    rows = [
        {column: (row | {"number": numbers[row["decile"]]})[column] for column in columns}
        for row in rows
    ]
    log = all(row["popularity"] > 0 for row in rows)
    x_name = f"median {signal} of the bin"
    figure = Figure(
        name="by-popularity",
        kind="lines",
        rows=rows,
        series="method",
        x="popularity",
        y="substring",
        x_axis=Axis(f"{x_name} (log scale)" if log else x_name, log=log),
        y_axis=Axis("accuracy, %"),
        caption=(
            f"Accuracy by {signal}, in {len(numbers)} bins of equal size. Bands are 95 % intervals "
            "(Wilson's, clustered by subject)."
        ),
    )
    heads = SYSTEM | {"number": "bin", "popularity": f"median {signal}"}
    caption = f"Accuracy in per cent by {signal}, in bins of equal size."
    blocks = [figure, table_of("by-popularity", caption, rows, columns, heads)] if rows else []
    return Section("popularity", f"By {signal}", blocks)


def leaderboard_lines(compared: Compared) -> Iterator[str]:
    """The leaderboard and the paired differences for a terminal."""
    width = max(map(len, compared.counts))
    yield f"{compared.questions:,} questions that all {len(compared.counts)} systems answered; accuracy in %"
    for row in _placed(compared):
        yield f"{row['place']:3}  {row['method']:{width}}  {show(Percent(row['substring']))}"
    for row in compared.pairs:
        clear = "" if row["gain"].sign else "; no clear difference"
        difference = show(Percent(row["gain"], signed=True))
        yield (
            f"{row['method']} less {row['against']}: {difference} points; only the first is right on "
            f"{row['only_this']:,}, only the second on {row['only_that']:,}{clear}"
        )


def _placed(compared: Compared) -> list[Row]:
    """The rows of the leaderboard with their places; equal systems share one: 1, 1, 3."""
    accuracies = [row["substring"].value for row in compared.accuracy]
    return [
        row | {"place": 1 + accuracies.index(row["substring"].value)} for row in compared.accuracy
    ]
