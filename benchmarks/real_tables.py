"""CSV files of what the runs of real models measured, as texts with value [low, high] of 95 %
intervals.

Accuracies, recall and their changes are in points of 100. Intervals are clustered as in the report.
Where a teacher of LSR has several seeds, a row for all of them pools their questions, and a
subject's questions of all seeds are one cluster.
"""

import math
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import yaml

from benchmarks.project_copy import write_csv
from benchmarks.real_judged import JUDGES_OF_LSR
from benchmarks.real_models import CONTROL
from pipelines import draws, intervals
from pipelines.evaluation.tables import column
from pipelines.intervals import Interval, interval
from pipelines.methods import Method
from pipelines.pages.values import label, show
from pipelines.params import params_file
from pipelines.report import findings
from pipelines.report.run_tables import Row, Settings, Tables
from pipelines.storage import parquet
from pipelines.storage.atomic import read_json

RESAMPLES = 1000
LSR_METRICS = "data/metrics/lsr_dense.json"
RECALL, ACCURACY = "judged/recall.parquet", "judged/accuracy.parquet"
OF_TEACHER = ("teacher", "demonstrations", "likelihood", "seed")
LOOK = ("auc_lm", "auc_retriever", "auc_gain")  # of the look before training
MEASURES = ("recall@1", "recall@5", "accuracy")
ADAPTIVE = ("adaptive", "always", "never", "oracle", "gain", "retrieved")
POINTS = {
    "substring", "word", "recall", "recall_gain", "closed_book", "augmented", "accuracy", "gain",
    *ADAPTIVE,
}  # fmt: skip
LABELLED = {"corpus", "method", "against", "retriever"}
OF_QUESTIONS = ("accuracy", "comparisons", "retrieval_effect", "recall")  # of several question sets


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


OF_SIZES = {  # title -> what it shows
    "Accuracy": Part("accuracy", "method lm questions substring word correlation"),
    "Methods compared": Part(
        "comparisons",
        "method against lm questions gain recall_gain",
        {"against": ("closed_book", "dense")},
    ),
    "Where retrieval helps": Part(
        "retrieval_effect",
        "method group lm questions closed_book augmented gain",
        {"group": ("all", "tail", "head", "tail less head")},
    ),
    "Where passages hold an answer": Part("recall", "method answers lm questions share recall"),
    "Language modelling": Part(
        "bits_per_byte", "corpus retriever k lm bits_per_byte saved saved_over_random"
    ),
}
OF_MIXTURE = {  # title -> what it shows of Natural Questions
    "accuracy": Part("accuracy", "method lm questions substring"),
    "gain": Part("comparisons", "method against lm questions gain"),
}


class Judged(NamedTuple):
    """What is judged of held-out questions."""

    label: str
    file: str
    measure: str
    unseen: bool | None = None  # of relations that training has not seen, or has; None: of both


JUDGED = [
    Judged("recall@1, relations in training", RECALL, "at_1", unseen=False),
    Judged("recall@10, relations in training", RECALL, "at_10", unseen=False),
    Judged("recall@1, other relations", RECALL, "at_1", unseen=True),
    Judged("recall@10, other relations", RECALL, "at_10", unseen=True),
    *(Judged(f"accuracy of {lm}", ACCURACY, f"right_{lm}") for lm in JUDGES_OF_LSR),
]


class Measured(NamedTuple):
    """How to read a run."""

    tables: Callable[[list[Path]], Iterator[Table]]  # of the run's copies that have figures
    done: str  # the file that a copy has when it has figures


def write_tables(work: Path, out: Path) -> Iterator[str]:
    """Write the tables of each run in `work` that has figures to `out`, as <run>-<title>.csv.

    Yields lines for a terminal: at which commit each run was made, and the files.
    """
    for run, measured in RUNS.items():
        depth = len(Path(measured.done).parts)
        files = work.glob(f"{run}/*/{measured.done}")
        copies = sorted(file.parents[depth - 1] for file in files)
        if not copies:
            continue

        command = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, cwd=copies[0], capture_output=True, text=True)
        yield f"{run}: measured at commit {commit.stdout.strip()}"
        for table in measured.tables(copies):
            name = re.sub(r"\W+", "-", f"{run} {table.title}".lower())
            file = out / f"{name}.csv"
            write_csv(file, table.head, table.rows)
            yield str(file)


def sizes(copies: list[Path]) -> Iterator[Table]:
    """The papers' claims for each language model, and the report's tables side by side."""
    tables = read_run(copies[0])
    yield _claims(tables)
    for title, part in OF_SIZES.items():
        yield _part(title, part, tables)
    yield _adaptive(tables)


def mixture(copies: list[Path]) -> Iterator[Table]:
    """Natural Questions without retrieval, and by the mixture of each copy's number of passages."""
    for copy in copies:
        tables = read_run(copy)
        for title, part in OF_MIXTURE.items():
            yield _part(f"of {tables.settings.replug.top_k} passages {title}", part, tables)


def teachers(copies: list[Path]) -> Iterator[Table]:
    """What each teacher knows before training, and what the tuned encoder is worth, for each seed
    and all of them.
    """
    looks = []
    rows = []
    copies_of: dict[tuple[str, ...], list[Path]] = {}
    for copy in copies:
        *teacher, seed = _teacher(copy)
        look = read_json(copy / LSR_METRICS)["look"][0]
        looks.append([*teacher, seed, *(show(interval(look[name]), digits=3) for name in LOOK)])
        rows.append([*teacher, seed, *_changes([copy])])
        copies_of.setdefault(tuple(teacher), []).append(copy)
    yield Table("Before training", [*OF_TEACHER, *LOOK], looks)

    for teacher, of_teacher in copies_of.items():
        if len(of_teacher) > 1:
            rows.append([*teacher, "all", *_changes(of_teacher)])
    head = list(OF_TEACHER)
    for measure in MEASURES:
        head += [measure, f"change in {measure}"]
    yield Table("After training", head, rows)


def rewards(copies: list[Path]) -> Iterator[Table]:
    """What each retriever is worth before LSR, what LSR changes by each reward, and what it changes
    more than by the control.
    """
    copies_of: dict[tuple[str, str], list[Path]] = {}
    for copy in copies:
        teacher, _, likelihood, _ = _teacher(copy)
        copies_of.setdefault((likelihood, teacher), []).append(copy)
    (control,) = [of for (likelihood, _), of in copies_of.items() if likelihood == CONTROL]

    untuned = [_before_and_change(*_pair(control, control, "dense", part))[0] for part in JUDGED]
    rows = [["none", "", "", "all", *untuned]]
    for (likelihood, teacher), of_reward in copies_of.items():
        if likelihood == CONTROL:
            rows += _reward_rows([CONTROL, "", "untuned"], of_reward, of_reward, "dense")
        else:
            named = [likelihood, teacher]
            rows += _reward_rows([*named, "untuned"], of_reward, of_reward, "dense")
            rows += _reward_rows([*named, CONTROL], of_reward, control, "lsr")
    head = ["reward", "teacher", "less", "seed", *(part.label for part in JUDGED)]
    yield Table("Changes", head, rows)


def _reward_rows(
    named: list[str], copies: list[Path], others: list[Path], retriever: str
) -> Iterator[list[str]]:
    """What tuned retrievers have more than a retriever of the other copy with the same seed has:
    a row for each seed, and one for all.
    """
    pairs = list(zip(copies, others, strict=True))
    for chosen in [*([pair] for pair in pairs), pairs]:
        seed = "all"
        if len(chosen) == 1:
            seed = str(_params(chosen[0][0])["seed"])
        of_seeds, of_others = zip(*chosen, strict=True)
        changes = [
            _before_and_change(*_pair(of_seeds, of_others, retriever, part))[1] for part in JUDGED
        ]
        yield [*named, seed, *changes]


def _pair(
    copies: Sequence[Path], others: Sequence[Path], retriever: str, part: Judged
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A measure with the others' retriever and the tuned one of the copies, and the subjects, by
    question.
    """
    columns = ["question_id", "subject", "unseen"]
    after = pa.concat_tables([parquet.read_parquet(copy / part.file) for copy in copies])
    before = pa.concat_tables([parquet.read_parquet(copy / part.file) for copy in others])
    assert after.select(columns).equals(before.select(columns)), "seeds ask the same questions"
    rows = np.ones(len(after), bool)
    if part.unseen is not None:
        rows = after["unseen"].to_numpy() == part.unseen
    subjects = after["subject"].to_numpy()[rows]
    return (
        before[f"{retriever}_{part.measure}"].to_numpy()[rows],
        after[f"lsr_{part.measure}"].to_numpy()[rows],
        subjects,
    )


RUNS = {
    "sizes": Measured(sizes, "data/analyses"),
    "teachers": Measured(teachers, RECALL),
    "rewards": Measured(rewards, ACCURACY),
    "mixture": Measured(mixture, "data/analyses"),
}


def read_run(project: Path) -> Tables:
    """The tables of a finished run in a copy of the project."""
    settings = params_file.load_settings(Settings, project / "params.yaml")
    return Tables(project / "data", settings)


def _claims(tables: Tables) -> Table:
    """A row for each claim, data set, method and language model."""
    rows = []
    lms = tables.settings.lms
    for lm in lms:
        main_first = [lm, *(other for other in lms if other != lm)]
        settings = tables.settings.model_copy(update={"lms": main_first})
        for finding in findings.findings(Tables(tables.data, settings)):
            verdict = finding.verdict
            if finding.lacking:
                verdict += f": {finding.lacking}"
            named = [finding.claim, finding.measured, finding.on, finding.method, lm]
            rows.append([*named, finding.said, verdict])
    head = ["claim", "measured", "on", "method", "language model", "figure", "verdict"]
    return Table("claims", head, rows)


def _adaptive(tables: Tables) -> Table:
    """What thresholds do, for each method and language model."""
    search = tables.settings.thresholds.search
    of_set = tables.metrics.get("adaptive", {}).get(tables.dataset, {})
    rows = []
    for lm, of_lm in of_set.items():
        for method, searches in of_lm.items():
            if isinstance(searches, dict) and search in searches:
                figures = searches[search]
                cells = [_cell(name, interval(figures[name])) for name in ADAPTIVE]
                rows.append([label(method), lm, *cells])
    return Table("Adaptive retrieval", ["method", "language model", *ADAPTIVE], sorted(rows))


def _part(title: str, part: Part, tables: Tables) -> Table:
    """Some columns and rows of a run's table. Bits per byte are those with no document, one, and
    the most.
    """
    rows: list[Row] = tables.rows(part.table)
    wanted = dict(part.wanted or {})
    if part.table in OF_QUESTIONS:
        wanted["dataset"] = (tables.dataset,)
    if part.table == "bits_per_byte":
        wanted["k"] = (0, 1, max((row["k"] for row in rows), default=0))
    for name, values in wanted.items():
        rows = [row for row in rows if row[name] in values]

    if part.table == "comparisons":
        rows = [row for row in rows if row["lm"] == row["against_lm"]]

    names = part.columns.split()
    cells = [[_cell(name, row[name]) for name in names] for row in rows]
    return Table(title, [column(name).label for name in names], cells)


def _cell(name: str, value: Any) -> str:
    """A cell as text; shares in points, and "" for a figure that the row lacks."""
    if isinstance(value, Interval):
        if not math.isfinite(value.value):
            return ""
        if name in POINTS:
            return show(value.times(100), digits=1)
        return show(value)
    if value is None:
        return ""
    return label(value) if name in LABELLED else str(value)


def _teacher(copy: Path) -> list[str]:
    """Who taught in a copy and how, and its seed, as OF_TEACHER says."""
    params = _params(copy)
    lsr = params["lsr"]
    shots = lsr["n_shots"]
    if shots is None:
        shots = params["answer"]["n_shots"]
    return [lsr["lm"], str(shots), lsr["likelihood"], str(params["seed"])]


def _params(copy: Path) -> dict:
    return yaml.safe_load((copy / "params.yaml").read_text(encoding="utf-8"))


def _changes(copies: list[Path]) -> list[str]:
    """Recall and accuracy with the untuned retriever, and what LSR changes, over the questions of
    all copies.
    """
    recall = pa.concat_tables([parquet.read_parquet(copy / RECALL) for copy in copies])
    right = pa.concat_tables([_answers(copy) for copy in copies])
    cells = []
    for questions, measure in ((recall, "at_1"), (recall, "at_5"), (right, "right")):
        before = questions[f"dense_{measure}"].to_numpy()
        after = questions[f"lsr_{measure}"].to_numpy()
        cells += _before_and_change(before, after, questions["subject"].to_numpy())
    return cells


def _before_and_change(
    before: np.ndarray, after: np.ndarray, subjects: np.ndarray
) -> tuple[str, str]:
    """A measure of questions (n,) with one retriever, and what another changes, in points, with
    intervals clustered by subject (n,).
    """
    ones = np.ones(len(before))
    asked = [
        ("before", intervals.ratio, [before.astype(float), ones]),
        ("change", intervals.ratio, [after.astype(float) - before, ones]),
    ]
    generator = draws.generator(0, "real page")
    figures = intervals.of_clusters(asked, subjects.astype(str), generator, RESAMPLES)
    before_cell = show(figures["before"].times(100), digits=1)
    change_cell = show(figures["change"].times(100), signed=True, digits=1)
    return before_cell, change_cell


def _answers(copy: Path) -> pa.Table:
    """Whether the main language model is right with each retriever's passage, and the subject, by
    question.
    """
    params = _params(copy)
    folder = copy / "data/predictions" / params["parts"]["answered"][0] / params["lms"][0]
    joined = parquet.read_parquet(copy / RECALL, ["question_id", "subject"])
    for name in ("dense", "lsr"):
        file = folder / f"{Method(name, params['retrievers'][0]).name}.parquet"
        answers = parquet.read_parquet(file, ["question_id", "correct"])
        right = answers.rename_columns(["question_id", f"{name}_right"])
        joined = joined.join(right, "question_id", join_type="inner")
    return joined.sort_by("question_id")
