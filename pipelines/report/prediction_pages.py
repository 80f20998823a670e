"""Pages and lines on files of predictions: when to retrieve (`longtail thresholds`), and a leaderboard (`compare`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.adaptive.from_files import Result
from pipelines.evaluation.systems import EXAMPLES, PAIRS, Compared
from pipelines.intervals import Interval, interval
from pipelines.report import rendering
from pipelines.report.accuracy_sections import WILSON
from pipelines.report.adaptive_section import CUTS, ORACLE, POLICIES, cut, draw_thresholds
from pipelines.report.entries import Drawn, Row, cell, spread, table_of
from pipelines.report.figures import dumbbell, lines
from pipelines.report.page import Percent, Section, Table, label, show, to_lines

RULE_FOOTER = (
    "Made by `longtail thresholds`. An answer is right if it contains a gold answer (the published rule). rule.json "
    "beside this page is the rule; thresholds.csv has the thresholds of all files."
)
HEADS = {"tail": "below", "popular": "from it on", "name": "relation", "cut": "threshold", "closed_book": "without"}
HEADS |= {"augmented": "with", "gain": "gain"}
PLAIN = ("closed_book", "augmented", "adaptive", "retrieved")
COMPARE_FOOTER = (
    "Made by `longtail compare`. An answer is right if it contains a gold answer (the published rule). Accuracies have "
    "Wilson's 95 % intervals, and differences bootstraps over subjects."
)
SYSTEM = {"method": "system", "against": "less", "substring": "accuracy"}


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
    for table in decisions_tables(results, plain=("retrieved", "calls", "accuracy_there")):
        yield ""
        yield f"{table.caption.partition('.')[0]}:"
        yield from (f"  {line}" for line in to_lines(table))


def decisions_tables(results: Sequence[Result], plain: Sequence[str] = ()) -> list[Table]:
    """A row for each policy, and for each file that decides when to retrieve; nothing without such files.

    The columns `plain` are without intervals.
    """
    columns = [
        "system",
        "said",
        "accuracy",
        "difference",
        "retrieved",
        "calls",
        "accuracy_there",
        "accuracy_area",
        "less",
    ]
    heads = {"said": "what it is", "difference": "less adaptive", "calls": "retrievals"}
    heads |= {"accuracy_there": "adaptive there", "accuracy_area": "area", "less": "area, less adaptive"}
    tables = []
    for result in (result for result in results if result.decided):
        rows = [row | {"less": cell(row.get("less"), "difference")} for row in result.decided.rows]
        rows = [row | {of: row[of].value for of in plain if of in row} for row in rows]
        caption = (
            f"Who decides when to retrieve, held out; where it has no answers, those of {result.popular} and "
            f"{result.tail} count. Shares in per cent, differences in points, retrievals a question; 95 % intervals "
            "over subjects. The area is the mean accuracy over all shares that may retrieve, if a signal retrieves "
            "where it is strongest, or thresholds are shifted together; there is such thresholds' at a system's share."
        )
        tables.append(table_of("decisions", caption, rows, columns, heads))
    return tables


def decisions_section(results: Sequence[Result]) -> list[Section]:
    """Who decides when to retrieve: the table, and accuracy by the share that retrieves."""
    decided = [row for result in results if result.decided for row in result.decided.curves]
    drawn = Drawn(
        lines,
        "budgets",
        decided,
        lambda row: 100 * row["budget"],
        "accuracy",
        "Accuracy by the share of the questions that retrieve. Lines are signals that retrieve where they are "
        "strongest, and thresholds that are shifted together. Marks are systems as they decided.",
        {"x": "share of the questions that retrieve, %", "y": "held-out accuracy, %"},
        "system",
    )
    tables = decisions_tables(results)
    return [Section("decisions", "Who decides when to retrieve?", [*tables, *drawn.blocks()])] if tables else []


def rule_table(results: Sequence[Result], names: dict[str, str]) -> Table:
    """A row for each pair of files and relation."""
    caption = (
        f"Thresholds in {results[0].file.signal} (retrieve below), from and to the last that is not clearly worse; "
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
        | {
            name: interval({"value": row[name], "low": row[f"{name}_low"], "high": row[f"{name}_high"]})
            for name in PLAIN
        }
        | {f"plain_{name}": row[name] for name in PLAIN}
        for result in results
        for row in result.relations
    ]


def rule_html(
    results: Sequence[Result], names: dict[str, str], set_name: str, notes: Sequence[str], by_popularity: list[dict]
) -> str:
    """The page: verdict, policies, thresholds, and accuracy by popularity, the rows of `systems.by_popularity`."""
    best, thresholds = results[0], rule_table(results, names)
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
        *Drawn(dumbbell, "policies", drawn, "tail", "accuracy", caption, {"x": "held-out accuracy, %"}).blocks(),
    ]
    rows = [row | {"method": result.tail} for result in results for row in result.relations]
    drawn = draw_thresholds(rows, file.signal, names, each="")
    sections = [
        Section("verdict", "Is a threshold worth it?", verdict),
        Section("thresholds", "Thresholds", [*drawn, thresholds]),
        *decisions_section(results),
        *popularity_section("", file.signal, by_popularity),
        what_was_read("", notes),
    ]
    intro = (
        f"{file.questions:,} questions of {set_name}{', page views' + month if month else ''}. A question takes the "
        f"answer of {best.tail} where its {file.signal} are below its relation's threshold. Adaptive retrieves for "
        f"{show(Percent(_held(best)['retrieved']))} % of the questions. The thresholds were searched for by "
        f"`{file.search}`; held-out figures are over 100 splits, each with a subject's questions on one side."
    )
    return rendering.render(f"Thresholds: {best.tail} and {best.popular}", intro, [], sections, RULE_FOOTER)


def leaderboard_sections(name: str, signal: str, compared: Compared, notes: Sequence[str]) -> list[Section]:
    """The sections on one question set; `signal` says what its questions' popularity is, `notes` what was read."""
    prefix = f"{name}-{compared.month}" if compared.month else name
    of = f"{compared.questions:,} questions of {name} that all {len(compared.counts)} systems answered"
    of += f"; page views of {compared.month}" if compared.month else ""
    board = [row | {"answers": compared.counts[row["method"]]} for row in _placed(compared)]

    def shown(kind: str, rows: Sequence[Row], columns: str, caption: str, **heads: str) -> Table:
        return table_of(f"{kind}-{prefix}", caption, rows, columns.split(), SYSTEM | heads)

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
    return [row | {"place": 1 + accuracies.index(row["substring"].value)} for row in compared.accuracy]


def _id(kind: str, prefix: str) -> str:
    """An anchor of the page: small letters, digits and hyphens."""
    words = "".join(c if c.isascii() and c.isalnum() else "-" for c in label(prefix).lower())
    return f"{kind}-{words}" if prefix else kind
