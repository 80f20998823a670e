"""What the report's intervals cover: each kind, on simulated data sets, should hold the truth in 95
% of them.

    .venv/bin/python -m benchmarks.coverage
    .venv/bin/python -m benchmarks.coverage --popqa popQA.tsv --questions 14267 --worlds mixed --only thresholds
    .venv/bin/python -m benchmarks.coverage --only tables --worlds mixed --per-subject 1 3.3 10
    .venv/bin/python -m benchmarks.coverage --only thresholds --searches exact shrunk bins    # the mean tells the best

The truth is the mean figure over all data sets: what such a figure is expected to be. Its own error
is a tenth of what the figures vary. The truth of a relation's threshold is the best cut of 200,000
questions. With 200 data sets, a kind that covers 95 % shows 92 to 98 % in 19 of 20 cases.

A data set has questions of 16 relations, 1.5 of a subject unless another number is given. Being
right depends on the subject's popularity, on the relation and on the subject, so that questions of
a subject go together. In the world `mixed` either answer may be the better one, in `always`
retrieving nearly always is, and in `flat` popularity says little.
"""

import argparse
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd

from pipelines import intervals
from pipelines.adaptive import held_out, tune_thresholds, tuning
from pipelines.adaptive.pairs import Pairs
from pipelines.evaluation import (
    accuracy,
    answer_sets,
    paired,
    popularity_bins,
    retrieval_effects,
    savings,
)
from pipelines.foreign import deciders
from pipelines.foreign.judge_files import Answered
from pipelines.intervals import Interval
from pipelines.studies import carried

RELATIONS, REPETITIONS, RESAMPLES, SPLITS = 16, 200, 1000, 50
# level and slope of the closed-book and of the augmented answer, (mean, deviation) over relations
WORLDS = {
    "mixed": ((-1.6, 1.0), (0.9, 0.4), (-0.8, 0.8), (0.1, 0.25)),
    "always": ((-2.2, 0.4), (0.5, 0.2), (-0.3, 0.4), (0.1, 0.1)),
    "flat": ((-1.0, 1.0), (0.1, 0.4), (-1.0, 0.8), (0.1, 0.25)),
}
CHOSEN = tuning.DEFAULTS.model_copy(update={"splits": SPLITS})
Figures = dict[str, Interval]


def bounded(row: dict, name: str) -> Interval:
    return Interval(*(row[name + end] for end in ("", "_low", "_high")))


class World:
    """Relations with their levels and slopes, from which any number of data sets is drawn."""

    def __init__(
        self,
        name: str,
        per_subject: float = 1.5,
        popularity: np.ndarray | None = None,
        seed: int = 1,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.per_subject = per_subject
        self.sizes = rng.dirichlet(np.full(RELATIONS, 2.0))
        self.closed_level, self.closed_slope, self.level, self.slope = (
            rng.normal(*moments, RELATIONS) for moments in WORLDS[name]
        )
        self.popularity = popularity

    def draw(self, n: int, seed: int, shift: float = 0.0) -> Pairs:
        """`n` questions; `shift` makes the closed-book answers as good as a better model's."""
        rng = np.random.default_rng([seed, 7])
        m = math.ceil(n / self.per_subject)
        subjects = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
        views = (
            10 ** rng.normal(3.3, 0.9, m)
            if self.popularity is None
            else rng.choice(self.popularity, m)
        )
        popularity, of = np.ceil(views)[subjects], rng.choice(RELATIONS, n, p=self.sizes)
        at, hard = np.log10(np.maximum(popularity, 1)) - 3, rng.normal(0, 0.7, m)[subjects]
        closed = self.closed_level[of] + self.closed_slope[of] * at + hard + shift
        augmented = self.level[of] + self.slope[of] * at + hard
        doubt = 1 / (1 + np.exp(-(closed + rng.normal(0, 1, n)) / 2))  # too sure, and noisy
        pairs = Pairs(
            ids=np.array([f"q{i:06d}" for i in range(n)], dtype=object),
            subjects=np.array([f"Q{i}" for i in subjects], dtype=object),
            relations=np.array([f"P{i:02d}" for i in of], dtype=object),
            signal=popularity,
            confidence=doubt,
            right_above=rng.random(n) < 1 / (1 + np.exp(-closed)),
            right_below=rng.random(n) < 1 / (1 + np.exp(-augmented)),
        )
        return pairs.take(
            np.lexsort((pairs.ids.astype(str), popularity, pairs.relations.astype(str)))
        )


def thresholds(world: World, n: int, seed: int, *, search: str) -> Iterator[tuple[str, Interval]]:
    """What `tune_thresholds` says of a search."""
    pairs = world.draw(n, seed)
    tuned = tuning.tune_pairs(
        pairs, CHOSEN.model_copy(update={"search": search}), seed, RESAMPLES, [search]
    )
    figures = tuned.figures[search]
    for name in ("adaptive", "gain", "retrieved", "always", "oracle"):
        yield f"{name}, {search}", intervals.interval(figures[name])
    for row in tuned.relations:
        for name in ("adaptive", "retrieved"):
            if row[name] is not None:
                yield f"{name} of a relation, {search}|{row['relation']}", bounded(row, name)
        yield f"threshold of a relation, {search}|{row['relation']}", bounded(row, "threshold")


def deciding(world: World, n: int, seed: int) -> Iterator[tuple[str, Interval]]:
    """What else is derived from thresholds: another signal, other models' thresholds, savings."""
    pairs = world.draw(n, seed)
    train = held_out.split_train(seed, pairs.subjects, SPLITS, CHOSEN.train_share)

    def fit(of: Pairs) -> held_out.Fitted:
        return held_out.fit_all(
            of, *held_out.sides(of, CHOSEN, seed, RESAMPLES), CHOSEN.search, CHOSEN
        )

    fitted = fit(pairs)
    drawn = tuning.refits.resample(
        pairs.subjects, pairs.subjects, CHOSEN.train_share, seed, RESAMPLES
    )
    figures = tune_thresholds.uncertainty(pairs, train, drawn, CHOSEN)["uncertainty"]
    for name in ("uncertainty", "difference", "retrieved_uncertainty"):
        yield f"{name}, the model's doubt", intervals.interval(figures[name])
    judged = held_out.judge(pairs, train, dict(fitted.splits))
    brought = fit(world.draw(n, seed, shift=1.0))
    row = carried.compare_carried(pairs, fitted, brought, CHOSEN, seed, RESAMPLES)
    for name in ("carried", "difference", "retrieved_carried"):
        yield f"{name}, thresholds carried over", bounded(row, name)
    policy = held_out.policy(pairs, judged.retrieved, drawn, fitted)
    figures = savings.saved(savings.spent(answers(pairs, seed), "dense"), policy, drawn)
    yield "tokens saved", figures["tokens_saved"]


def others(world: World, n: int, seed: int) -> Iterator[tuple[str, Interval]]:
    """What `thresholds` says of a system that decides by the model's doubt, with some chance."""
    pairs = world.draw(n, seed)
    tuned = tuning.tune_pairs(pairs, CHOSEN, seed, RESAMPLES, [CHOSEN.search])
    calls = 1.0 * (pairs.confidence < np.random.default_rng([seed, 8]).random(n))
    closed = Answered(
        "closed_book", pairs.right_above.astype(np.int8), None, [], uncertainty=1 - pairs.confidence
    )
    right = np.where(calls > 0, pairs.right_below, pairs.right_above)
    system = Answered("system", right.astype(np.int8), None, [], calls=calls)
    places = np.arange(len(pairs.ids))
    for row in deciders.judge_deciders(
        tuned, CHOSEN.search, places, closed, [system], seed, RESAMPLES
    ).rows:
        for name, figure in row.items():
            if isinstance(figure, Interval) and figure.low < figure.high:
                yield f"{name}, {row['system']}", figure


def answers(pairs: Pairs, seed: int) -> answer_sets.Answers:
    nothing = np.full(len(pairs.ids), np.nan)

    def method(right: np.ndarray, cost: np.ndarray) -> answer_sets.MethodAnswers:
        holds = 1.0 * (
            right | (pairs.confidence < 0.2)
        )  # the text holds an answer that the model may overlook
        return answer_sets.MethodAnswers(
            right * 1.0, right * 1.0, holds, nothing, nothing, cost, cost, 0 * cost, cost
        )

    rng, n = np.random.default_rng(len(pairs.ids)), len(pairs.ids)
    methods = {"closed_book": method(pairs.right_above, rng.gamma(4.0, 0.25, n))}
    methods["dense"] = method(pairs.right_below, rng.gamma(16.0, 0.25, n))
    columns = pairs.ids, pairs.relations, pairs.subjects, pairs.signal, pairs.signal < 100
    return answer_sets.Answers(*columns, by_method=methods, seed=seed, resamples=RESAMPLES)


def tables(world: World, n: int, seed: int) -> Iterator[tuple[str, Interval]]:
    """What `analyse` says of accuracy."""
    pairs = world.draw(n, seed)
    asked = answers(pairs, seed).take(np.argsort(pairs.ids.astype(str)))
    closed, _ = accuracy.accuracy(asked)
    yield "accuracy", closed["substring"]
    yield "correlation with log popularity", closed["correlation"]
    for row in accuracy.by_relation(asked):
        if row["method"] == "dense":
            yield f"accuracy of a relation|{row['relation']}", row["substring"]
            yield f"correlation in a relation|{row['relation']}", row["correlation"]
    for row in popularity_bins.by_decile(asked, popularity_bins.LEAST):
        if row["method"] == "dense":
            yield (
                f"accuracy in a bin of {popularity_bins.LEAST} or more|{row['decile']}",
                row["substring"],
            )
            yield f"gain in a bin of {popularity_bins.LEAST} or more|{row['decile']}", row["gain"]
    (row,) = paired.comparisons({"lm": asked})
    yield "paired difference of two methods, by subject", row["gain"]
    for row in retrieval_effects.where_retrieval_helps(asked):
        if row["group"] in ("tail", retrieval_effects.TAIL_LESS_HEAD):
            yield f"gain, {row['group']}", row["gain"]
    cells = {row["answers"]: row for row in retrieval_effects.recall(asked)}
    yield "recall where both answers are wrong", cells["both wrong"]["recall"]
    rng = np.random.default_rng(seed)
    change = pairs.right_below.astype(float) - pairs.right_above
    yield (
        "gain on a benchmark, by question",
        intervals.mean(rng.permutation(change)[:150], rng, RESAMPLES),
    )


def texts(clusters: int, seed: int) -> Iterator[tuple[str, Interval]]:
    """Bits per byte, what retrieval saves of them, and what attribution says, over source
    documents of many lengths.
    """
    rng = np.random.default_rng(seed)
    size = rng.geometric(0.2, clusters)
    documents = np.repeat(np.arange(clusters), size)
    n = len(documents)
    n_bytes = rng.integers(200, 600, n).astype(float)
    level = (2.5 * np.exp(rng.normal(0, 0.3, clusters)))[documents]
    without = n_bytes * level * np.exp(rng.normal(0, 0.2, n))
    saved = rng.normal(0.04, 0.05, clusters)[documents] + rng.normal(0, 0.05, n)
    sums = intervals.cluster_sums(
        np.stack([without, n_bytes, without * (1 - saved)], axis=1), documents
    )

    def gain(drawn: np.ndarray) -> np.ndarray:
        return 100 * (1 - drawn[:, 2] / drawn[:, 0])

    figures = {"bits": (intervals.ratio, slice(0, 2)), "saved": (gain, slice(0, 3))}
    bits, saving = intervals.bootstraps(sums, figures, rng, RESAMPLES).values()
    yield f"bits per byte, {clusters} source documents", bits
    yield f"bits saved, {clusters} source documents", saving
    memory = np.stack([n_bytes * rng.beta(6, 3, clusters)[documents], n_bytes], axis=1)
    of_documents = intervals.cluster_sums(memory, documents)
    share = intervals.bootstrap(of_documents, intervals.ratio, rng, RESAMPLES)
    yield f"share that memory explains, {clusters} source documents", share


def cover(
    make: Callable[[int], Iterator[tuple[str, Interval]]], repetitions: int, truths: Figures
) -> list[list]:
    """A row for each kind of interval: its name, sets of data, share covered, mean figure,
    deviation, mean width.

    A kind may have several intervals in a data set, KIND|WHICH. Intervals of figures that do not
    vary are left out.
    """
    made: dict[str, list[Interval]] = defaultdict(list)
    for seed in range(repetitions):
        for name, interval in make(seed):
            if name in truths or (
                math.isfinite(interval.value) and not name.startswith("threshold of")
            ):
                made[name].append(interval)
    kinds: dict[str, list[tuple]] = defaultdict(list)
    for name, drawn in made.items():
        values, lows, highs = np.array([(one.value, one.low, one.high) for one in drawn]).T
        truth = truths[name].value if name in truths else values.mean()
        covered = 100 * ((lows <= truth + 1e-12) & (truth <= highs + 1e-12)).mean()
        with np.errstate(invalid="ignore"):
            kinds[name.partition("|")[0]].append(
                (covered, truth, values.std(), (highs - lows).mean(), len(drawn))
            )
    return [
        [
            kind,
            len(rows),
            min(row[-1] for row in rows),
            *np.mean([row[:-1] for row in rows], axis=0),
        ]
        for kind, rows in kinds.items()
    ]


def best_cuts(world: World, search: str) -> Figures:
    """Each relation's best cut of very many questions."""
    pairs = world.draw(200_000, 10_000_000)
    cuts = held_out.fit(pairs, np.ones((len(pairs.ids), 1), bool), "exact", CHOSEN)
    return {
        f"threshold of a relation, {search}|{r}": Interval(*[float(cut[0])] * 3)
        for r, cut in cuts.items()
    }


def main() -> None:
    kinds = {"deciding": deciding, "others": others, "tables": tables}
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.coverage", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--repetitions", type=int, default=REPETITIONS, help="simulated data sets of each kind"
    )
    parser.add_argument(
        "--questions", type=int, nargs="+", default=[260, 1400], help="of a data set"
    )
    parser.add_argument(
        "--per-subject", type=float, nargs="+", default=[1.5], help="questions of a subject, a mean"
    )
    parser.add_argument("--worlds", nargs="+", default=[*WORLDS], choices=WORLDS)
    parser.add_argument("--searches", nargs="+", default=["shrunk", "exact"])
    parser.add_argument("--only", nargs="+", default=["thresholds", *kinds, "texts"])
    parser.add_argument(
        "--popqa", type=Path, help="the published question set, popQA.tsv, for its popularities"
    )
    chosen = parser.parse_args()
    views = pd.read_csv(chosen.popqa, sep="\t")["s_pop"].to_numpy(float) if chosen.popqa else None
    heads = "".join(f"{head:>9}" for head in ("covers %", "mean", "sd", "width"))
    print(f"{'world':8}{'questions':>10}{'a subject':>10}  {'interval of':58}{'sets':>6}{heads}")

    def show(
        world: str, n: int | str, each: float | str, make: Callable, truths: Figures | None = None
    ) -> None:
        for kind, many, sets, share, *rest in cover(make, chosen.repetitions, truths or {}):
            named = f"{kind} ({many} of each)" if many > 1 else kind
            figures = "".join(f"{value:>9.4f}" for value in rest)
            print(
                f"{world:8}{n:>10}{each:>10}  {named:58}{sets:>6}{share:>9.1f}{figures}", flush=True
            )

    for name, n, each in product(chosen.worlds, chosen.questions, chosen.per_subject):
        world = World(name, each, views)
        for search in chosen.searches if "thresholds" in chosen.only else ():
            show(
                name,
                n,
                each,
                partial(thresholds, world, n, search=search),
                best_cuts(world, search),
            )
        for kind in (kind for kind in kinds if kind in chosen.only):
            show(name, n, each, partial(kinds[kind], world, n))
    for clusters in (30, 200) if "texts" in chosen.only else ():
        show("", "", "", partial(texts, clusters))


if __name__ == "__main__":
    main()
