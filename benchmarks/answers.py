"""Seconds, tokens and cost of an answer by each method, and what adaptive retrieval saves of them.

    .venv/bin/python -m benchmarks.answers
    .venv/bin/python -m benchmarks.answers --dataset entityquestions --questions 200 --price 0.02

Every model of `lms` answers the same questions of the finished run in data/ by every method, in one process, one method
after another. Opening models and indexes is not counted. The first columns are of retrieving for every question. The
columns "adaptive" are of retrieving only below the thresholds of data/adaptive/popularity/thresholds.json, and
answering closed-book otherwise; the seconds of both methods are weighed by the share of questions that each answers. A
local model costs nothing, so its cost is what a server would take for the same tokens at --price for 1,000 of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from contextlib import chdir
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import catalogue, params_file
from pipelines.answering import answer, passages
from pipelines.answering.answer_files import METHODS

DATA = Path("data").absolute()


def answered(chosen, name: str, method: str, dataset: str, questions: pa.Table) -> tuple[pa.Table, float]:
    """The answers, ordered by question_id, and the seconds that they took after everything was opened."""
    from pipelines.lm.open_lm import open_lm

    settings = chosen.lm[name]
    lm = open_lm(DATA / "models/lm" / name, settings, chosen.compute)
    source = passages.open_source(method, lm, chosen, DATA)
    few = questions.filter(pa.array(np.array(questions["split"].to_pylist()) == "test")).slice(0, 8)
    for asked, key in ((few, "warm-up"), (questions, "measured")):
        in_use = chosen.answer.of(settings)
        setup = answer.Setup(dataset, method, lm, source, in_use, chosen.replug, chosen.seed, key, settings.http)
        table, taken = answer.answer(asked, setup)
        seconds = taken.seconds
    return table, seconds


def compare(chosen, name: str, dataset: str, price: float) -> list[str]:
    """Markdown: a line for each method of one language model, and what adaptive retrieval saves of it."""
    questions = pq.read_table(DATA / "questions" / dataset / f"{dataset}.parquet")
    rules = json.loads((DATA / "adaptive/popularity/thresholds.json").read_text())["rules"][dataset].get(name, {})
    cuts = {method: rule["thresholds"] for method, rule in rules.items()}
    popularity = dict(zip(*(questions[c].to_pylist() for c in ("question_id", "s_pop")), strict=True))
    relations = dict(zip(*(questions[c].to_pylist() for c in ("question_id", "relation")), strict=True))
    heads = ["method", "seconds", "LM calls", "tokens", "cost", "accuracy"]
    heads += ["adaptive: retrieves", "seconds saved", "tokens saved", "cost saved", "accuracy"]
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    closed: dict[str, np.ndarray] = {}
    for method in METHODS:
        table, seconds = answered(chosen, name, method, dataset, questions)
        n, calls = table.num_rows, np.mean(table["lm_calls"].to_numpy())
        figures = _figures(table, price) | {"seconds": np.full(n, seconds / n)}
        means = {what: float(np.mean(values)) for what, values in figures.items()}
        line = f"| {method} | {means['seconds']:.4f} | {calls:.0f} | {means['tokens']:.0f} | {means['cost']:.2g} "
        line += f"| {means['correct']:.3f} |"
        if method == "closed_book":
            closed = figures
        elif method in cuts:
            ids = table["question_id"].to_pylist()
            retrieves = np.array([_retrieves(cuts[method], relations[id_], popularity[id_]) for id_ in ids])
            mixed = {what: float(np.mean(np.where(retrieves, figures[what], closed[what]))) for what in figures}
            saved = (f"{1 - mixed[what] / means[what]:.0%}" for what in ("seconds", "tokens", "cost"))
            line += f" {retrieves.mean():.0%} | {' | '.join(saved)} | {mixed['correct']:.3f} |"
        out.append(line)
    return out


def _figures(table: pa.Table, price: float) -> dict[str, np.ndarray]:
    """Tokens, cost and correctness of each question; NaN if a server does not show its tokens."""
    prompt, new = (table[name].to_numpy().astype(float) for name in ("prompt_tokens", "new_tokens"))
    cost = table["cost"].to_numpy().astype(float)
    tokens = prompt + new
    correct = np.array(table["correct"].to_pylist(), float)
    return {"tokens": tokens, "cost": np.where(cost == 0, tokens * price / 1000, cost), "correct": correct}


def _retrieves(cuts: dict[str, float | None], relation: str, popularity: int | None) -> bool:
    """Whether a question retrieves: always if there is no threshold (null), or if the popularity is not known."""
    cut = cuts.get(relation)
    return cut is None or popularity is None or popularity < cut


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=catalogue.names("answered"), default="popqa")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--price", type=float, default=0.02, help="of 1,000 tokens, for a local model's tokens")
    given = parser.parse_args()
    sections = ("seed", "language", "compute", "lm", "lms", "retriever", "retrievers", "replug", "answer", "parts")
    chosen = params_file.load(*sections)
    chosen.answer = chosen.answer.model_copy(update={"max_questions": given.questions})
    os.environ["OMP_NUM_THREADS"] = str(chosen.compute.threads)
    folder = Path(tempfile.mkdtemp())
    try:
        with chdir(folder):  # finished shards lie here, and none of an earlier run
            tables = {name: compare(chosen, name, given.dataset, given.price) for name in chosen.lms}
    finally:
        shutil.rmtree(folder)
    for name, lines in tables.items():
        shots = chosen.answer.of(chosen.lm[name]).n_shots
        print(
            f"\n{name}, {given.questions} questions of {given.dataset}, {shots}-shot, ensembles of "
            f"{chosen.replug.top_k}, {chosen.compute.threads} thread(s); all a question\n"
        )
        print("\n".join(lines))
    print(
        "\nSeconds are wall time: what else the machine does lengthens them. Thresholds were fitted on these questions "
        "among others; metrics/adaptive.json has accuracies held out."
    )


if __name__ == "__main__":
    main()
