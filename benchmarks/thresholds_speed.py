"""Threshold search: how fast all splits at once are, compared with the published notebook, and which search is best.

    .venv/bin/python -m benchmarks.thresholds_speed --popqa popQA.tsv
    .venv/bin/python -m benchmarks.thresholds_speed --large 1000000

Answers are simulated for the popularities of the published question set if its file is given, else for log-normal
popularities of as many questions and relations. For the first table both ways judge the same splits on one core and
must find the same numbers. The second table has each search's held-out accuracy on worlds whose relations differ much.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd

from pipelines import params
from pipelines.adaptive import held_out, tuning
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.searches import SEARCHES

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import notebook

QUESTIONS, RELATIONS, SPLITS, TRAIN_SHARE = 14_267, 16, 100, 0.75
WORLDS = 20
CHOSEN = params.Thresholds(
    imported="all",
    pairs=[], search="shrunk",
    splits=SPLITS, split_by="subject", train_share=TRAIN_SHARE, pseudo_questions=None, quantiles=50, min_questions=20,
    cost="retrievals", cost_weight=0.0,
)  # fmt: skip


def read_questions(popqa: Path | None, n: int = QUESTIONS) -> pd.DataFrame:
    """Columns subject, relation and popularity."""
    if popqa:
        table = pd.read_csv(popqa, sep="\t")
        return pd.DataFrame(
            {"subject": table["s_uri"], "relation": table["prop"], "popularity": table["s_pop"].astype(float)}
        )
    rng = np.random.default_rng(0)
    sizes = rng.dirichlet(np.full(RELATIONS, 2.0))
    return pd.DataFrame(
        {
            "subject": [f"Q{i}" for i in rng.integers(0, n * 3, n)],
            "relation": [f"P{i:02d}" for i in rng.choice(RELATIONS, n, p=sizes)],
            "popularity": np.ceil(10 ** rng.normal(3.3, 0.9, n)),
        }
    )


def simulate(questions: pd.DataFrame, seed: int, n: int) -> Pairs:
    """Simulated closed-book and augmented answers to `n` of the questions.

    Their correctness is logistic in log popularity, with a level and slope for each relation and a difficulty for each
    question.
    """
    rng = np.random.default_rng(seed)
    drawn = questions.iloc[np.sort(rng.choice(len(questions), min(n, len(questions)), replace=False))]
    names, number = np.unique(drawn["relation"], return_inverse=True)
    at, hard = np.log10(drawn["popularity"].to_numpy()) - 3, rng.normal(0, 0.7, len(drawn))

    def right(level: tuple[float, float], slope: tuple[float, float]) -> np.ndarray:
        levels, slopes = (rng.normal(*moments, len(names))[number] for moments in (level, slope))
        return rng.random(len(drawn)) < 1 / (1 + np.exp(-(levels + slopes * at + hard)))

    popularity, nothing = drawn["popularity"].to_numpy(), np.zeros(len(drawn))
    pairs = Pairs(
        ids=drawn.index.astype(str).to_numpy(object),
        subjects=drawn["subject"].to_numpy(object),
        relations=drawn["relation"].to_numpy(object),
        signal=popularity,
        popularity=popularity,
        confidence=nothing,
        closed=right((-1.6, 1.0), (0.9, 0.4)),
        augmented=right((-0.8, 0.8), (0.1, 0.25)),
        closed_cost=nothing,
        augmented_cost=nothing + 1,
        score=nothing,
        margin=nothing,
        excluded=0,
    )
    return pairs.take(np.lexsort((popularity, pairs.relations)))


def speed(questions: pd.DataFrame) -> None:
    pairs = simulate(questions, 0, QUESTIONS)
    start = time.process_time()
    train = held_out.split_train(0, pairs.subjects, SPLITS, TRAIN_SHARE)
    drawing = time.process_time() - start
    frame = pd.DataFrame({name: getattr(pairs, name) for name in ("popularity", "closed", "augmented")})
    frame["relation"] = pairs.relations
    start = time.process_time()
    _, expected = notebook.run(frame, train.T)
    plain = time.process_time() - start
    print(f"{len(frame):,} questions x {len(pairs.members())} relations x {SPLITS} splits, on one core")
    print(f"{'':34}{'CPU s':>9}{'ratio':>8}{'with drawing':>14}")
    print(f"{'the notebook, a split at a time':34}{plain:9.3f}{1:8.0f}{'':>14}")
    for search in SEARCHES:
        taken = []
        for _ in range(3):
            start = time.process_time()
            settings = CHOSEN.model_copy(update={"min_questions": 1})  # the notebook pools no relations
            judged = held_out.judge(pairs, train, held_out.fit(pairs, train, search, settings))
            taken.append(time.process_time() - start)
        best = min(taken)
        print(f"{f'all splits at once, {search}':34}{best:9.3f}{plain / best:8.0f}{plain / (best + drawing):14.0f}")
        if search == "bins":
            for name in ("adaptive", "always", "never", "retrieved", "train_adaptive"):
                np.testing.assert_allclose(judged.table[name], expected[name], rtol=1e-12, err_msg=name)
    print(f"drawing the splits: {drawing:.3f} s, once for all searches, most of it a hash for each subject\n")


def choice(questions: pd.DataFrame) -> None:
    print(f"held-out accuracy in per cent, {WORLDS} worlds, {SPLITS} splits of each (less exact's, standard error)")
    shrunk_60 = CHOSEN.model_copy(update={"pseudo_questions": 60.0})
    ways = {search: (search, CHOSEN) for search in SEARCHES} | {"shrunk, 60 pseudo questions": ("shrunk", shrunk_60)}
    print(f"{'questions':>10}{'always':>8}{'never':>8}" + "".join(f"{way:>30}" for way in ways))
    for n in (1_300, 4_000, QUESTIONS):
        accuracies = []
        for seed in range(WORLDS):
            pairs = simulate(questions, seed, n)
            train = held_out.split_train(seed, pairs.subjects, SPLITS, TRAIN_SHARE)
            tables = [held_out.judge(pairs, train, held_out.fit(pairs, train, *way)).table for way in ways.values()]
            accuracies.append(
                [tables[0][name].mean() for name in ("always", "never")] + [t["adaptive"].mean() for t in tables]
            )
        accuracies = 100 * np.array(accuracies)
        less = accuracies[:, 2:] - accuracies[:, 2:3]
        cells = [
            f"{mean:.2f} ({difference:+.3f}, {error:.3f})"
            for mean, difference, error in zip(
                accuracies[:, 2:].mean(axis=0), less.mean(axis=0), less.std(axis=0, ddof=1) / WORLDS**0.5, strict=True
            )
        ]
        always, never = accuracies[:, :2].mean(axis=0)
        print(f"{n:10,}{always:8.2f}{never:8.2f}" + "".join(f"{cell:>30}" for cell in cells))


def large(n: int) -> None:
    """What `tuning.tune` takes from arrays to the rule: all searches, their splits, resamples and intervals."""
    pairs = simulate(read_questions(None, n), 0, n)
    columns = pairs.popularity, pairs.relations, pairs.subjects, pairs.closed, pairs.augmented
    before, start = _peak(), time.process_time()
    tuned = tuning.tune(*columns)
    print(
        f"{n:,} questions, all {len(SEARCHES)} searches: {time.process_time() - start:.1f} CPU s, at most "
        f"{_peak():.2f} GB of memory ({before:.2f} GB before); {tuned.rule.verdict}"
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thresholds_speed", description=__doc__.splitlines()[0])
    parser.add_argument("--popqa", type=Path, help="the published question set, popQA.tsv")
    parser.add_argument("--large", type=int, metavar="N", help="only tune thresholds to N questions, as 1000000")
    chosen = parser.parse_args()
    if chosen.large:
        large(chosen.large)
        return
    questions = read_questions(chosen.popqa)
    speed(questions)
    choice(questions)


if __name__ == "__main__":
    main()
