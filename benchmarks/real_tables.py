"""CSV files of what the runs of real models measured, with value [low, high] of 95 % intervals.

Accuracies, recall and their changes are in points of 100; intervals are clustered as in the report.
Where a run has several seeds, a row for all of them pools their questions, and a subject's
questions of all seeds are one cluster.
"""

import json
import math
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import yaml

from benchmarks.papers_effects import read_run
from benchmarks.project_copy import write_csv
from pipelines import draws, intervals
from pipelines.evaluation.tables import column
from pipelines.intervals import Interval, interval
from pipelines.methods import Method
from pipelines.pages.values import label, show
from pipelines.report import findings
from pipelines.report.run_tables import Tables
from pipelines.scoring.bits_per_byte import bits_per_byte
from pipelines.storage import parquet

# in WORK: seconds and the largest process's memory of each call in each copy
CALLS = "real_models.json"
RESAMPLES = 1000
ADAPTIVE = ("adaptive", "always", "never", "oracle", "gain", "retrieved")
SECTIONS = {  # title -> the report's table, its columns, and which of its rows
    "Accuracy": ("accuracy", "method lm questions substring word correlation", {}),
    "Methods compared": (
        "comparisons", "method against lm questions gain gain_word recall_gain", {"against": ("closed_book", "dense")}
    ),
    "Where retrieval helps": (
        "retrieval_effect", "method group lm questions closed_book augmented gain",
        {"group": ("all", "tail", "head", "tail less head")},
    ),
    "Where passages hold an answer": ("recall", "method answers lm questions share recall", {}),
    "Language modelling": (
        "bits_per_byte",
        "corpus retriever k lm bits_per_byte saved saved_over_random saved_over_dense word_perplexity", {},
    ),
    "Controls of language modelling": (
        "lm_controls", "corpus control retriever documents lm bits_per_byte saved saved_over_same", {}
    ),
    "Copying": ("copied", "corpus retriever least most share bits_saved share_of_saved", {}),
    "Benchmarks": ("tasks", "task method lm questions accuracy gain", {"category": ("all",)}),
}  # fmt: skip
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
}
POINTS |= {
    "closed_book",
    "augmented",
    "own",
    "carried",
    "difference",
    "retrieved_own",
    "retrieved_carried",
}
LABELLED = {"corpus", "method", "against", "retriever", "task"}
OF_QUESTIONS = (
    "accuracy",
    "comparisons",
    "retrieval_effect",
    "recall",
)  # tables of several question sets
LOOK = ("queries", "documents", "all equal", "beta", "entropy of Q")
JUDGED = ("auc_lm", "auc_retriever", "auc_gain", "best_lm", "best_retriever", "best_gain")
GAINS = ("gain_first", "gain_mean", "gain_best")  # in nats a token
RECALLS = ("questions", "recall@1", "change in recall@1", "recall@5", "change in recall@5")
ANSWERS = ("answered", "accuracy", "change in accuracy")


class Table(NamedTuple):
    """A table of texts; its title names its file."""

    title: str
    head: list[str]
    rows: list[list[str]]


def write_tables(work: Path, out: Path) -> Iterator[str]:
    """Write the tables of each run in `work` that has figures to `out`, as <run>-<title>.csv.

    Yields lines for a terminal: how each run was made, and the files.
    """
    for what, section in RUNS.items():
        depth = len(Path(DONE[what]).parts)
        copies = sorted(file.parents[depth - 1] for file in work.glob(f"{what}/*/{DONE[what]}"))
        if not copies:
            continue

        yield f"{what}: {_how(work, what, copies[0])}"
        for table in section(copies):
            name = re.sub(r"\W+", "-", f"{what} {table.title}".lower())
            file = out / f"{name}.csv"
            write_csv(file, table.head, table.rows)
            yield str(file)


def _how(work: Path, what: str, copy: Path) -> str:
    """At which commit a run was made, and what its calls took where."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=copy, capture_output=True, text=True
    )
    said, file = f"Measured at commit {commit.stdout.strip()}.", work / CALLS
    if (
        calls := [call for call in _read_json(file) if call["copy"].startswith(f"{what}/")]
        if file.is_file()
        else []
    ):
        hours, peak = (
            sum(call["seconds"] for call in calls) / 3600,
            max(call["peak_bytes"] for call in calls) / 2**30,
        )
        said += (
            f" {len({call['copy'] for call in calls})} copies of the project took {hours:.1f} hours"
        )
        said += "".join(
            f" on {machine}"
            for machine in sorted({call.get("machine", "") for call in calls} - {""})
        )
        said += f", with at most {peak:.1f} GiB of memory in a process."
    return said


# LSR on questions


def _teachers(copies: list[Path], *, answered: bool = True) -> Iterator[Table]:
    """What each teacher knows before training, and what the tuned encoder is worth, for each
    seed and all of them.
    """
    runs = sorted(
        map(_read_lsr, copies),
        key=lambda run: (run["lm"], run["shots"], run["likelihood"], run["seed"]),
    )
    named = {id(run): [run["lm"], str(run["shots"]), run["likelihood"]] for run in runs}
    head = ["teacher", "demonstrations", "likelihood", "seed"]
    looks = [[*named[id(run)], str(run["seed"]), *_look(run, JUDGED)] for run in runs]
    yield Table("Before training", [*head, *LOOK, *JUDGED], looks)
    rows, groups = [], defaultdict(list)
    for run in runs:
        rows.append([*named[id(run)], str(run["seed"]), *_changes([run["copy"]], answered)])
        groups[tuple(named[id(run)])].append(run["copy"])
    rows += [
        [*name, "all", *_changes(of_group, answered)]
        for name, of_group in groups.items()
        if len(of_group) > 1
    ]
    measures = [*RECALLS, *(ANSWERS if answered else ())]
    yield Table("After training", [*head, *measures], rows)


def _likely(copies: list[Path]) -> Iterator[Table]:
    """What the language model could teach, the validation, and the chosen encoder's held-out
    figures.
    """
    run = _read_lsr(copies[0])
    yield Table("Before training", [*LOOK, *JUDGED], [_look(run, JUDGED)])
    yield _validation("Chosen on validation questions", run)
    bits = _bits(copies[0])
    figures = [*_changes(copies), *bits.values()]
    yield Table("On held-out questions", [*RECALLS, *ANSWERS, *bits], [figures])


def _uncertain(copies: list[Path]) -> Iterator[Table]:
    """What the language model could teach, the validation while it does, and bits per byte on
    the test texts.
    """
    run = _read_lsr(copies[0])
    yield Table("Before training", [*LOOK, *GAINS], [_look(run, GAINS)])
    yield _validation("While training", run)
    yield from _sections(read_run(copies[0])[0], ["Language modelling"])


def _validation(title: str, run: dict) -> Table:
    """What every encoder that was validated is worth, and which one is used."""
    validation = run["lsr"]["validation"]
    figures = [name for name in validation[0] if name != "step"]
    rows = []
    for row in validation:
        values = [f"{row[name]:.4f}" for name in figures]
        mark = "chosen" if row["step"] == run["lsr"]["kept_step"] else ""
        rows.append([f"{run['rate']:g}", str(row["step"]), *values, mark])
    return Table(title, ["learning rate", "step", *figures, "use"], rows)


def _trained(copy: Path) -> bool:
    return (copy / "data/metrics/lsr_dense.json").is_file()


def _read_lsr(copy: Path) -> dict:
    """A copy's LSR: its params and metrics."""
    params = yaml.safe_load((copy / "params.yaml").read_text(encoding="utf-8"))
    lsr = params["lsr"]
    shots = params["answer"]["n_shots"] if lsr["n_shots"] is None else lsr["n_shots"]
    named = {
        "lm": lsr["lm"],
        "shots": shots,
        "rate": lsr["learning_rate"],
        "likelihood": lsr["likelihood"],
        "seed": params["seed"],
    }
    return named | {"copy": copy, "lsr": _read_json(copy / "data/metrics/lsr_dense.json")}


def _look(run: dict, columns: Iterable[str]) -> list[str]:
    """The cells of the look before training."""
    row = run["lsr"]["look"][0]
    counts = [str(row["queries"]), str(row["documents"]), f"{row.get('uniform', 0):.2f}"]
    counts += [f"{row['beta']:.3g}", f"{row['entropy']:.2f}"]
    return [
        *counts,
        *(show(interval(row[name]), digits=3) if name in row else "" for name in columns),
    ]


def _changes(copies: list[Path], answered: bool = True) -> list[str]:
    """Recall and accuracy with the untuned retriever, and what LSR changes, over the questions
    of all copies.
    """
    recall = pa.concat_tables(
        [parquet.read_parquet(copy / "judged/recall.parquet") for copy in copies]
    )
    right = [pa.concat_tables([_answers(copy) for copy in copies])] if answered else []
    cells = [str(recall.num_rows)]
    for of, measure in ((recall, "at_1"), (recall, "at_5"), *((one, "right") for one in right)):
        cells += [str(of.num_rows)] if measure == "right" else []
        before, after = (
            of[f"{name}_{measure}"].to_numpy().astype(float) for name in ("dense", "lsr")
        )
        ones, subjects = np.ones(len(before)), of["subject"].to_numpy().astype(str)
        asked = [
            ("before", intervals.ratio, [before, ones]),
            ("change", intervals.ratio, [after - before, ones]),
        ]
        found = intervals.of_clusters(asked, subjects, draws.generator(0, "real page"), RESAMPLES)
        cells += [
            show(found[name].times(100), signed=name == "change", digits=1)
            for name in ("before", "change")
        ]
    return cells


def _answers(copy: Path) -> pa.Table:
    """Whether the main language model is right with each retriever's passage, and the subject,
    by question.
    """
    params = yaml.safe_load((copy / "params.yaml").read_text(encoding="utf-8"))
    folder = copy / "data/predictions" / params["parts"]["answered"][0] / params["lms"][0]
    joined = parquet.read_parquet(copy / "judged/recall.parquet", ["question_id", "subject"])
    for name in ("dense", "lsr"):
        file = folder / f"{Method(name, params['retrievers'][0]).name}.parquet"
        right = parquet.read_parquet(file, ["question_id", "correct"]).rename_columns(
            ["question_id", f"{name}_right"]
        )
        joined = joined.join(right, "question_id", join_type="inner")
    return joined.sort_by("question_id")


def _bits(copy: Path) -> dict[str, str]:
    """Bits per byte of the gold answers with each retriever's document, and what LSR saves in %."""
    of = parquet.read_parquet(copy / "judged/bits.parquet")
    dense, lsr, n_bytes = (
        of[name].to_numpy().astype(float) for name in ("dense_nats", "lsr_nats", "bytes")
    )
    asked = [
        ("bits per byte", lambda sums: bits_per_byte(*sums.T), [dense, n_bytes]),
        ("bits per byte, LSR", lambda sums: bits_per_byte(*sums.T), [lsr, n_bytes]),
        ("saved, %", lambda sums: 100 * (1 - intervals.ratio(sums)), [lsr, dense]),
    ]
    subjects = of["subject"].to_numpy().astype(str)
    found = intervals.of_clusters(asked, subjects, draws.generator(0, "real page"), RESAMPLES)
    return {name: show(one, digits=2 if "%" in name else 3) for name, one in found.items()}


def _mixture(copies: list[Path]) -> Iterator[Table]:
    """Natural Questions without retrieval, and by the mixture of each copy's number of passages."""
    rows = []
    for copy in copies:
        figures = _read_json(copy / DONE["mixture"])
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


# four language models


def _sizes(copies: list[Path]) -> Iterator[Table]:
    """The papers' claims for each language model, and the report's tables side by side."""
    read, _, chosen = read_run(copies[0])
    yield _claims(read)
    temperatures = copies[0] / "judged/temperature.json"
    if temperatures.is_file():
        yield _temperatures(_read_json(temperatures))
    if _trained(copies[0]):
        yield _validation("LSR", _read_lsr(copies[0]))
    yield from _sections(read, SECTIONS)
    head = ["method", "language model", *ADAPTIVE]
    yield Table("Adaptive retrieval", head, list(_adaptive(read, chosen.thresholds.search)))
    carried = [
        row
        for row in read.rule_rows("carried")
        if row["fitted"] == read.lm and "_below_" not in row["method"]
    ]
    if carried:
        columns = "method lm questions own carried difference retrieved_own retrieved_carried"
        yield _table(f"Thresholds of {read.lm} carried", carried, columns)


def _temperatures(tried: dict) -> Table:
    """The gold answers' bits per byte at each of REPLUG's temperatures."""
    rows = []
    for row in tried["temperatures"]:
        mark = "chosen" if row["temperature"] == tried["chosen"] else ""
        rows.append([f"{row['temperature']:g}", f"{row['bits_per_byte']:.3f}", mark])
    title = f"Temperature on {tried['questions']} training questions"
    return Table(title, ["temperature", "bits per byte of gold answers", "use"], rows)


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


def _sections(read: Tables, titles: Iterable[str]) -> Iterator[Table]:
    """Tables of the report. Bits per byte are shown with no document, one, and the most."""
    for title in titles:
        name, columns, wanted = SECTIONS[title]
        wanted = wanted | ({"dataset": [read.dataset]} if name in OF_QUESTIONS else {})
        wanted |= (
            {"k": (0, 1, max((row["k"] for row in read.rows(name)), default=0))}
            if name == "bits_per_byte"
            else {}
        )
        rows = [row for row in read.rows(name) if all(row[key] in of for key, of in wanted.items())]
        rows = (
            [row for row in rows if row["lm"] == row["against_lm"]]
            if name == "comparisons"
            else rows
        )
        if rows:
            yield _table(title, rows, columns)


def _table(title: str, rows: list[dict], columns: str) -> Table:
    """Rows whose language models stand one below the other."""
    names, groups = columns.split(), {}
    keys = [name for name in names[: names.index("lm")]] if "lm" in names else []
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    ordered = [row for group in groups.values() for row in group]
    head = [column(name).label for name in names]
    return Table(title, head, [[_cell(name, row[name]) for name in names] for row in ordered])


def _cell(name: str, value: object) -> str:
    """A cell as text; shares in points, and "" for a figure that the row lacks."""
    if isinstance(value, Interval):
        shown = value.times(100) if name in POINTS else value
        return (
            show(shown, digits=1 if name in POINTS else None) if math.isfinite(value.value) else ""
        )
    if isinstance(value, float):
        return f"{value:.4g}"
    return label(value) if name in LABELLED else "" if value is None else str(value)


def _adaptive(read: Tables, search: str) -> Iterator[list[str]]:
    """Of each method and language model what thresholds do."""
    of_set = read.metrics.get("adaptive", {}).get(read.dataset, {})
    named = {name: None for of_lm in of_set.values() for name in of_lm}
    for method in named:
        for lm in read.settings.lms:
            searches = of_set.get(lm, {}).get(method)
            if isinstance(searches, dict) and search in searches:
                figures = [searches[search][name] for name in ADAPTIVE]
                cells = (
                    show(interval(figure).times(100), digits=1) if figure else ""
                    for figure in figures
                )
                yield [label(method), lm, *cells]


def _read_json(file: Path):
    return json.loads(file.read_text(encoding="utf-8"))


RUNS = {
    "sizes": _sizes,
    "teachers": _teachers,
    "rewards": partial(_teachers, answered=False),
    "likely": _likely,
    "uncertain": _uncertain,
    "mixture": _mixture,
}
DONE = {  # run -> the file that a copy has when it has figures
    "sizes": "data/analyses",
    "teachers": "judged/recall.parquet",
    "rewards": "judged/recall.parquet",
    "likely": "judged/bits.parquet",
    "uncertain": "data/analyses",
    "mixture": "data/metrics/tasks_nq_smollm2-135m.json",
}
