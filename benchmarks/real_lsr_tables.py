"""Tables of what LSR did in the runs of real models: before training, in validation, and after.

Where a run has several seeds, a row for all of them pools their questions, and a subject's
questions of all seeds are one cluster.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import yaml

from benchmarks.papers_effects import read_run
from benchmarks.real_report_tables import PARTS, Table, read_json, report_tables
from pipelines import draws, intervals
from pipelines.intervals import Interval, interval
from pipelines.methods import Method
from pipelines.pages.values import show
from pipelines.scoring.bits_per_byte import bits_per_byte
from pipelines.storage import parquet

RESAMPLES = 1000
LSR_METRICS = "data/metrics/lsr_dense.json"
LOOK = ("queries", "documents", "all equal", "beta", "entropy of Q")
JUDGED = ("auc_lm", "auc_retriever", "auc_gain", "best_lm", "best_retriever", "best_gain")
GAINS = ("gain_first", "gain_mean", "gain_best")  # in nats a token
RECALLS = ("questions", "recall@1", "change in recall@1", "recall@5", "change in recall@5")
ANSWERS = ("answered", "accuracy", "change in accuracy")
OF_TEACHER = ("teacher", "demonstrations", "likelihood", "seed")


class Tuning(NamedTuple):
    """LSR in a copy of the project."""

    copy: Path
    lm: str
    shots: int
    likelihood: str
    rate: float
    seed: int
    metrics: dict

    @property
    def teacher(self) -> tuple[str, str, str]:
        """The cells that name who taught, and how."""
        return self.lm, str(self.shots), self.likelihood


def teachers(copies: list[Path], *, answered: bool = True) -> Iterator[Table]:
    """What each teacher knows before training, and what the tuned encoder is worth, for each seed
    and all of them.
    """
    tunings = [_read_tuning(copy) for copy in copies]
    tunings.sort(key=lambda of: (of.lm, of.shots, of.likelihood, of.seed))
    looks = [[*of.teacher, str(of.seed), *_look(of, JUDGED)] for of in tunings]
    yield Table("Before training", [*OF_TEACHER, *LOOK, *JUDGED], looks)

    rows = []
    copies_of: dict[tuple[str, str, str], list[Path]] = {}
    for tuning in tunings:
        rows.append([*tuning.teacher, str(tuning.seed), *_changes([tuning.copy], answered)])
        copies_of.setdefault(tuning.teacher, []).append(tuning.copy)
    for teacher, of_teacher in copies_of.items():
        if len(of_teacher) > 1:
            rows.append([*teacher, "all", *_changes(of_teacher, answered)])
    measures = [*RECALLS, *ANSWERS] if answered else RECALLS
    yield Table("After training", [*OF_TEACHER, *measures], rows)


def likely(copies: list[Path]) -> Iterator[Table]:
    """What the language model could teach, the validation, and the chosen encoder's held-out
    figures.
    """
    tuning = _read_tuning(copies[0])
    yield Table("Before training", [*LOOK, *JUDGED], [_look(tuning, JUDGED)])
    yield _validation("Chosen on validation questions", tuning)
    bits = _bits(copies[0])
    figures = [*_changes(copies), *bits.values()]
    yield Table("On held-out questions", [*RECALLS, *ANSWERS, *bits], [figures])


def uncertain(copies: list[Path]) -> Iterator[Table]:
    """What the language model could teach, the validation while it does, and bits per byte on the
    test texts.
    """
    tuning = _read_tuning(copies[0])
    yield Table("Before training", [*LOOK, *GAINS], [_look(tuning, GAINS)])
    yield _validation("While training", tuning)
    read, _, _ = read_run(copies[0])
    yield from report_tables(read, PARTS, ["Language modelling"])


def chosen(copies: list[Path]) -> Iterator[Table]:
    """The validation of the first copy, if it tuned an encoder."""
    if (copies[0] / LSR_METRICS).is_file():
        yield _validation("LSR", _read_tuning(copies[0]))


def _read_tuning(copy: Path) -> Tuning:
    params = yaml.safe_load((copy / "params.yaml").read_text(encoding="utf-8"))
    lsr = params["lsr"]
    shots = lsr["n_shots"]
    if shots is None:
        shots = params["answer"]["n_shots"]
    return Tuning(
        copy=copy,
        lm=lsr["lm"],
        shots=shots,
        likelihood=lsr["likelihood"],
        rate=lsr["learning_rate"],
        seed=params["seed"],
        metrics=read_json(copy / LSR_METRICS),
    )


def _validation(title: str, tuning: Tuning) -> Table:
    """What every encoder that was validated is worth, and which one is used."""
    validation = tuning.metrics["validation"]
    figures = [name for name in validation[0] if name != "step"]
    rows = []
    for row in validation:
        values = [f"{row[name]:.4f}" for name in figures]
        mark = "chosen" if row["step"] == tuning.metrics["kept_step"] else ""
        rows.append([f"{tuning.rate:g}", str(row["step"]), *values, mark])
    return Table(title, ["learning rate", "step", *figures, "use"], rows)


def _look(tuning: Tuning, columns: Iterable[str]) -> list[str]:
    """The cells of the look before training."""
    row = tuning.metrics["look"][0]
    cells = [str(row["queries"]), str(row["documents"]), f"{row.get('uniform', 0):.2f}"]
    cells += [f"{row['beta']:.3g}", f"{row['entropy']:.2f}"]
    for name in columns:
        cells.append(show(interval(row[name]), digits=3) if name in row else "")
    return cells


def _changes(copies: list[Path], answered: bool = True) -> list[str]:
    """Recall and accuracy with the untuned retriever, and what LSR changes, over the questions of
    all copies.
    """
    files = [copy / "judged/recall.parquet" for copy in copies]
    recall = pa.concat_tables([parquet.read_parquet(file) for file in files])
    cells = [str(recall.num_rows), *_before_and_change(recall, "at_1")]
    cells += _before_and_change(recall, "at_5")
    if answered:
        right = pa.concat_tables([_answers(copy) for copy in copies])
        cells += [str(right.num_rows), *_before_and_change(right, "right")]
    return cells


def _before_and_change(questions: pa.Table, measure: str) -> list[str]:
    """A measure with the untuned retriever, and its change by LSR, in points."""
    before = questions[f"dense_{measure}"].to_numpy().astype(float)
    after = questions[f"lsr_{measure}"].to_numpy().astype(float)
    ones = np.ones(len(before))
    figures = _clustered(
        questions,
        [
            ("before", intervals.ratio, [before, ones]),
            ("change", intervals.ratio, [after - before, ones]),
        ],
    )
    before_cell = show(figures["before"].times(100), digits=1)
    change_cell = show(figures["change"].times(100), signed=True, digits=1)
    return [before_cell, change_cell]


def _clustered(questions: pa.Table, asked: list[tuple]) -> dict[str, Interval]:
    """Figures with intervals clustered by subject; `asked` as in `intervals.of_clusters`."""
    subjects = questions["subject"].to_numpy().astype(str)
    generator = draws.generator(0, "real page")
    return intervals.of_clusters(asked, subjects, generator, RESAMPLES)


def _answers(copy: Path) -> pa.Table:
    """Whether the main language model is right with each retriever's passage, and the subject, by
    question.
    """
    params = yaml.safe_load((copy / "params.yaml").read_text(encoding="utf-8"))
    folder = copy / "data/predictions" / params["parts"]["answered"][0] / params["lms"][0]
    joined = parquet.read_parquet(copy / "judged/recall.parquet", ["question_id", "subject"])
    for name in ("dense", "lsr"):
        file = folder / f"{Method(name, params['retrievers'][0]).name}.parquet"
        answers = parquet.read_parquet(file, ["question_id", "correct"])
        right = answers.rename_columns(["question_id", f"{name}_right"])
        joined = joined.join(right, "question_id", join_type="inner")
    return joined.sort_by("question_id")


def _bits(copy: Path) -> dict[str, str]:
    """Bits per byte of the gold answers with each retriever's document, and what LSR saves in %."""
    judged = parquet.read_parquet(copy / "judged/bits.parquet")
    dense = judged["dense_nats"].to_numpy().astype(float)
    lsr = judged["lsr_nats"].to_numpy().astype(float)
    n_bytes = judged["bytes"].to_numpy().astype(float)
    figures = _clustered(
        judged,
        [
            ("bits per byte", _bits_per_byte, [dense, n_bytes]),
            ("bits per byte, LSR", _bits_per_byte, [lsr, n_bytes]),
            ("saved, %", _percent_saved, [lsr, dense]),
        ],
    )
    cells = {}
    for name, figure in figures.items():
        digits = 2 if "%" in name else 3
        cells[name] = show(figure, digits=digits)
    return cells


def _bits_per_byte(sums: np.ndarray) -> np.ndarray:
    return bits_per_byte(*sums.T)


def _percent_saved(sums: np.ndarray) -> np.ndarray:
    return 100 * (1 - intervals.ratio(sums))
