"""Tables of the reports of real models' runs, as texts with value [low, high] of 95 % intervals.

Accuracies, recall and their changes are in points of 100; intervals are clustered as in the report.
"""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.papers_effects import read_run
from pipelines.evaluation.tables import column
from pipelines.intervals import Interval, interval
from pipelines.pages.values import label, show
from pipelines.report import findings
from pipelines.report.run_tables import Row, Tables

ADAPTIVE = ("adaptive", "always", "never", "oracle", "gain", "retrieved")
CARRIED = "method lm questions own carried difference retrieved_own retrieved_carried"


class Table(NamedTuple):
    """A table of texts; its title names its file."""

    title: str
    head: list[str]
    rows: list[list[str]]


class Part(NamedTuple):
    """The columns of a table of the report, and the rows that have one of some values."""

    table: str
    columns: str  # with spaces between
    wanted: dict[str, tuple] | None = None  # column -> values


PARTS = {  # title -> what it shows
    "Accuracy": Part("accuracy", "method lm questions substring word correlation"),
    "Methods compared": Part(
        "comparisons",
        "method against lm questions gain gain_word recall_gain",
        {"against": ("closed_book", "dense")},
    ),
    "Where retrieval helps": Part(
        "retrieval_effect",
        "method group lm questions closed_book augmented gain",
        {"group": ("all", "tail", "head", "tail less head")},
    ),
    "Where passages hold an answer": Part("recall", "method answers lm questions share recall"),
    "Language modelling": Part(
        "bits_per_byte",
        "corpus retriever k lm bits_per_byte saved saved_over_random saved_over_dense "
        "word_perplexity",
    ),
    "Controls of language modelling": Part(
        "lm_controls",
        "corpus control retriever documents lm bits_per_byte saved saved_over_same",
    ),
    "Copying": Part("copied", "corpus retriever least most share bits_saved share_of_saved"),
    "Benchmarks": Part("tasks", "task method lm questions accuracy gain", {"category": ("all",)}),
}
BY_POPULARITY = {  # the same, of benchmarks whose questions are linked to entities
    "By popularity": Part(
        "tasks_by_popularity", "task method lm decile popularity questions accuracy gain"
    ),
    "Effects": Part(
        "tasks_thresholds",
        "task method lm questions not_known accuracy correlation tail head tail_less_head",
    ),
    "Thresholds": Part(
        "tasks_thresholds",
        "task method lm never always adaptive oracle gain retrieved threshold policy",
    ),
}
POINTS = {
    "substring",
    "word",
    "gain",
    "gain_word",
    "recall",
    "recall_gain",
    "share",
    "share_of_saved",
    "accuracy",
    "closed_book",
    "augmented",
    "own",
    "carried",
    "difference",
    "retrieved_own",
    "retrieved_carried",
    "tail",
    "head",
    "tail_less_head",
    *ADAPTIVE,
}
LABELLED = {"corpus", "method", "against", "retriever", "task"}
OF_QUESTIONS = ("accuracy", "comparisons", "retrieval_effect", "recall")  # of several question sets


def four_models(copies: list[Path]) -> Iterator[Table]:
    """The papers' claims for each language model, and the report's tables side by side."""
    read, _, chosen = read_run(copies[0])
    yield _claims(read)
    temperatures = copies[0] / "judged/temperature.json"
    if temperatures.is_file():
        yield _temperatures(read_json(temperatures))
    yield from report_tables(read, PARTS)
    yield _adaptive(read, chosen.thresholds.search)

    carried = []
    for row in read.rule_rows("carried"):
        if row["fitted"] == read.lm and "_below_" not in row["method"]:
            carried.append(row)
    if carried:
        yield _table(f"Thresholds of {read.lm} carried", carried, CARRIED)


def by_popularity(copies: list[Path]) -> Iterator[Table]:
    """A benchmark's accuracy by the popularity of what its questions ask about, what retrieval
    changes in the tail and at the head, and what a threshold is worth.
    """
    read, _, _ = read_run(copies[0])
    yield from report_tables(read, BY_POPULARITY)


def mixtures(copies: list[Path], metrics: str) -> Iterator[Table]:
    """Natural Questions without retrieval, and by the mixture of each copy's number of passages.

    `metrics` is the path of the benchmark's figures in a copy.
    """
    rows = []
    for copy in copies:
        figures = read_json(copy / metrics)
        params = yaml.safe_load((copy / "params.yaml").read_text(encoding="utf-8"))
        passages_of_method = {"closed_book": 0, "replug": params["replug"]["top_k"]}
        for method, passages in passages_of_method.items():
            figure = figures[method]
            accuracy = _cell("accuracy", interval(figure["accuracy"]))
            gain = _cell("gain", interval(figure.get("gain")))
            row = [str(passages), str(figure["questions"]), accuracy, gain]
            if row not in rows:
                rows.append(row)
    head = ["passages", "questions", "accuracy", "gain over no passages"]
    yield Table("Natural Questions", head, rows)


def report_tables(
    read: Tables, parts: dict[str, Part], titles: Iterable[str] | None = None
) -> Iterator[Table]:
    """Those of a run's tables that have rows; `titles` are those of the `parts` that are wanted.

    Bits per byte are shown with no document, one, and the most.
    """
    for title in titles or parts:
        part = parts[title]
        rows = read.rows(part.table)
        wanted = dict(part.wanted or {})
        if part.table in OF_QUESTIONS:
            wanted["dataset"] = (read.dataset,)
        if part.table == "bits_per_byte":
            most = max((row["k"] for row in rows), default=0)
            wanted["k"] = (0, 1, most)
        for name, values in wanted.items():
            rows = [row for row in rows if row[name] in values]
        if part.table == "comparisons":
            rows = [row for row in rows if row["lm"] == row["against_lm"]]
        if rows:
            yield _table(title, rows, part.columns)


def read_json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _claims(read: Tables) -> Table:
    """A row for each claim, data set, method and language model."""
    rows = []
    lms = read.settings.lms
    for lm in lms:
        main_first = [lm, *(other for other in lms if other != lm)]
        settings = read.settings.model_copy(update={"lms": main_first})
        for finding in findings.findings(Tables(read.data, settings)):
            verdict = finding.verdict
            if finding.lacking:
                verdict += f": {finding.lacking}"
            named = [finding.claim, finding.measured, finding.on, finding.method, lm]
            rows.append([*named, finding.said, verdict])
    head = ["claim", "measured", "on", "method", "language model", "figure", "verdict"]
    return Table("claims", head, rows)


def _temperatures(tried: dict) -> Table:
    """The gold answers' bits per byte at each of REPLUG's temperatures."""
    rows = []
    for row in tried["temperatures"]:
        mark = "chosen" if row["temperature"] == tried["chosen"] else ""
        rows.append([f"{row['temperature']:g}", f"{row['bits_per_byte']:.3f}", mark])
    title = f"Temperature on {tried['questions']} training questions"
    return Table(title, ["temperature", "bits per byte of gold answers", "use"], rows)


def _adaptive(read: Tables, search: str) -> Table:
    """What thresholds do, for each method and language model."""
    of_set = read.metrics.get("adaptive", {}).get(read.dataset, {})
    methods: dict[str, None] = {}  # in their order, each once
    for of_lm in of_set.values():
        methods |= dict.fromkeys(of_lm)

    rows = []
    for method in methods:
        for lm in read.settings.lms:
            searches = of_set.get(lm, {}).get(method)
            if isinstance(searches, dict) and search in searches:
                figures = searches[search]
                cells = [_cell(name, interval(figures[name])) for name in ADAPTIVE]
                rows.append([label(method), lm, *cells])
    return Table("Adaptive retrieval", ["method", "language model", *ADAPTIVE], rows)


def _table(title: str, rows: list[Row], columns: str) -> Table:
    """Rows whose language models stand one below the other."""
    names = columns.split()
    keys = names[: names.index("lm")] if "lm" in names else []
    groups: dict[tuple, list[list[str]]] = {}
    for row in rows:
        group = tuple(row[key] for key in keys)
        groups.setdefault(group, []).append([_cell(name, row[name]) for name in names])

    ordered = []
    for cells in groups.values():
        ordered += cells
    return Table(title, [column(name).label for name in names], ordered)


def _cell(name: str, value: Any) -> str:
    """A cell as text; shares in points, and "" for a figure that the row lacks."""
    if isinstance(value, Interval):
        if not math.isfinite(value.value):
            return ""
        if name in POINTS:
            return show(value.times(100), digits=1)
        return show(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None:
        return ""
    return label(value) if name in LABELLED else str(value)
