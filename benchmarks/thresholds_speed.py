"""Threshold search: how fast all splits at once are, compared with the published notebook, and which search is best.

    .venv/bin/python -m benchmarks.thresholds_speed
    .venv/bin/python -m benchmarks.thresholds_speed --worlds           # each search's held-out accuracy
    .venv/bin/python -m benchmarks.thresholds_speed --large 1000000    # what all searches take of so many questions

Answers are simulated for the popularities of the published question set ($LONGTAIL_REAL/popqa/popQA.tsv), else for
log-normal popularities of as many questions and relations. Both ways judge the same splits on one core and must find
the same numbers. Worlds are of relations that differ much.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import measure
from benchmarks.measure import Row
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


def compare(questions: pd.DataFrame, n: int, splits: int, rounds: int) -> list[Row]:
    pairs = simulate(questions, 0, n)
    drawing = measure.timed(lambda: held_out.split_train(0, pairs.subjects, splits, TRAIN_SHARE))
    train = drawing.result
    frame = pd.DataFrame({name: getattr(pairs, name) for name in ("popularity", "closed", "augmented")})
    frame["relation"] = pairs.relations
    settings = CHOSEN.model_copy(update={"min_questions": 1})  # the notebook pools no relations

    def judged(search: str) -> pd.DataFrame:
        return held_out.judge(pairs, train, held_out.fit(pairs, train, search, settings)).table

    works = {"notebook": lambda: notebook.run(frame, train.T)[1]} | {name: partial(judged, name) for name in SEARCHES}
    run = measure.best({name: partial(measure.timed, work) for name, work in works.items()}, rounds)
    for name in ("adaptive", "always", "never", "retrieved", "train_adaptive"):
        np.testing.assert_allclose(run["bins"].result[name], run["notebook"].result[name], rtol=1e-12, err_msg=name)
    what = f"thresholds, {len(frame):,} questions x {len(pairs.members())} relations x {splits} splits"
    ways = {name: run[name] for name in SEARCHES}
    ways["exact, and drawing the splits"] = run["exact"]._replace(cpu=run["exact"].cpu + drawing.cpu)
    peer = "the published notebook's way, its ten bins"
    return [
        measure.row(f"{what}, {name}", peer, "splits", splits, run["notebook"], one, memory=False)
        for name, one in ways.items()
    ]


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


def tune(n: int) -> str:
    """What `tuning.tune` takes from arrays to the rule: all searches, their splits, resamples and intervals."""
    pairs = simulate(read_questions(None, n), 0, n)
    columns = pairs.popularity, pairs.relations, pairs.subjects, pairs.closed, pairs.augmented
    run = measure.alone(lambda: tuning.tune(*columns).rule.verdict)
    return f"{n:,} questions, all searches: {run.cpu:.1f} CPU s, {run.memory:,.0f} MB beyond the answers; {run.result}"


def rows(quick: bool = False, worlds: bool = False, large: int = 0) -> list[Row]:
    """`worlds` prints held-out accuracies, `large` what so many questions take."""
    if large:
        print(tune(large))
        return []
    questions = read_questions(measure.real("popqa/popQA.tsv"))
    if worlds:
        choice(questions)
        return []
    return compare(questions, 400, 3, 1) if quick else compare(questions, QUESTIONS, SPLITS, 3)


if __name__ == "__main__":
    measure.main(rows)
