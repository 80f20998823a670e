"""What the report's intervals cover: each kind, on simulated data sets, should hold the truth in 95
% of them.

    .venv/bin/python -m benchmarks.coverage > coverage.csv
    .venv/bin/python -m benchmarks.coverage --popqa popQA.tsv --questions 14267 --worlds mixed --only thresholds
    .venv/bin/python -m benchmarks.coverage --only tables --worlds mixed --per-subject 1 3.3 10
    .venv/bin/python -m benchmarks.coverage --only thresholds --searches exact shrunk bins    # the mean tells the best
    .venv/bin/python -m benchmarks.coverage --only thresholds --searches exact bins shrunk --worlds always never even together --questions 500 2000
    .venv/bin/python -m benchmarks.coverage --only thresholds --searches exact bins shrunk --worlds always never even together --questions 100 --relations 4

The truth is the mean figure over all data sets: what such a figure is expected to be. That of `gain`
is what thresholds fitted to three quarters of so many questions are expected to gain on the others,
over the constant policy that is better on these questions. The truth's own error is a tenth of what
the figures vary. The truth of a relation's threshold is the best cut of 200,000 questions. With 200
data sets, a kind that covers 95 % shows 92 to 98 % in 19 of 20 cases.

simulated_answers.py says what the data sets of questions are.
"""

import argparse
import csv
import math
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd

from benchmarks.simulated_answers import N_RELATIONS, WORLDS, World
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

REPETITIONS = 200
RESAMPLES = 1000
SPLITS = 50
BENCHMARK_QUESTIONS = 150
CLUSTERS = (30, 200)  # source documents of scored texts
QUESTIONS_OF_TRUTH = 200_000
SEED_OF_TRUTH = 10_000_000
HEAD = [
    "world", "questions", "questions a subject", "interval of", "data sets", "covers, %", "mean",
    "standard deviation", "width",
]  # fmt: skip
SETTINGS = tuning.DEFAULTS.model_copy(update={"splits": SPLITS})

# The name of an interval is its KIND, or KIND|WHICH if a data set has several of the kind.
Intervals = Iterator[tuple[str, Interval]]
OF_THRESHOLD = "threshold of a relation"


# What the intervals of a figure cover: the number of data sets, %, the truth, the figure's standard
# deviation, and the mean width.
Coverage = tuple[int, float, float, float, float]


def main() -> None:
    arguments = parse_arguments()
    views = None
    if arguments.popqa:
        views = pd.read_csv(arguments.popqa, sep="\t")["s_pop"].to_numpy(float)

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(HEAD)
    sizes = product(arguments.worlds, arguments.questions, arguments.per_subject)
    for name, n, per_subject in sizes:
        world = World(name, per_subject, views, arguments.relations)
        of_world = [name, str(n), str(per_subject)]
        if "thresholds" in arguments.only:
            make = partial(thresholds, world, n, searches=arguments.searches)
            truths = best_cuts(world, arguments.searches)
            writer.writerows(rows_of(of_world, cover(make, arguments.repetitions, truths)))
        for kind, intervals_of_kind in KINDS.items():
            if kind in arguments.only:
                make = partial(intervals_of_kind, world, n)
                writer.writerows(rows_of(of_world, cover(make, arguments.repetitions, {})))
    if "texts" in arguments.only:
        for clusters in CLUSTERS:
            covered = cover(partial(texts, clusters), arguments.repetitions, {})
            writer.writerows(rows_of(["", "", ""], covered))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.coverage", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--repetitions", type=int, default=REPETITIONS, help="simulated data sets of each kind")
    add("--questions", type=int, nargs="+", default=[260, 1400], help="of a data set")
    add(
        "--per-subject", type=float, nargs="+", default=[1.5], help="questions of a subject, a mean"
    )
    add("--relations", type=int, default=N_RELATIONS)
    add("--worlds", nargs="+", default=list(WORLDS), choices=WORLDS)
    add("--searches", nargs="+", default=["shrunk", "exact"])
    add("--only", nargs="+", default=["thresholds", *KINDS, "texts"])
    add("--popqa", type=Path, help="the published question set, popQA.tsv, for its popularities")
    return parser.parse_args()


def rows_of(of_world: list[str], covered: Mapping[str, list[Coverage]]) -> Iterator[list[str]]:
    """A row for each kind, as HEAD says: means over its intervals."""
    for kind, coverages in covered.items():
        fewest = min(coverage[0] for coverage in coverages)
        share, *figures = np.mean(coverages, axis=0)[1:]
        texts_of_figures = [f"{figure:.4f}" for figure in figures]
        yield [*of_world, kind, str(fewest), f"{share:.1f}", *texts_of_figures]


def cover(
    make: Callable[[int], Intervals], repetitions: int, truths: Mapping[str, float]
) -> dict[str, list[Coverage]]:
    """What the intervals of each kind cover, over data sets that `make` draws by a seed.

    Figures that are not finite are left out, as are thresholds whose truth is not known.
    """
    by_name: dict[str, list[Interval]] = defaultdict(list)
    for seed in range(repetitions):
        for name, interval in make(seed):
            is_figure = math.isfinite(interval.value) and not name.startswith(OF_THRESHOLD)
            if is_figure or name in truths:
                by_name[name].append(interval)

    by_kind: dict[str, list[Coverage]] = defaultdict(list)
    for name, drawn in by_name.items():
        kind, _, _ = name.partition("|")
        by_kind[kind].append(coverage_of(drawn, truths.get(name)))
    return by_kind


def coverage_of(drawn: list[Interval], truth: float | None) -> Coverage:
    """What intervals of the same figure cover; without a `truth`, their values' mean."""
    values = np.array([interval.value for interval in drawn])
    lows = np.array([interval.low for interval in drawn])
    highs = np.array([interval.high for interval in drawn])
    if truth is None:
        truth = values.mean()
    is_covered = (lows <= truth + 1e-12) & (truth <= highs + 1e-12)
    with np.errstate(invalid="ignore"):  # a threshold may be infinite
        width = (highs - lows).mean()
        return len(drawn), 100 * is_covered.mean(), truth, values.std(), width


def best_cuts(world: World, searches: list[str]) -> dict[str, float]:
    """Each relation's best cut of very many questions, which is the truth of every search."""
    pairs = world.draw(QUESTIONS_OF_TRUTH, SEED_OF_TRUTH)
    everything = np.ones((len(pairs.ids), 1), bool)
    cuts = held_out.fit(pairs, everything, "exact", SETTINGS)
    return {
        f"{OF_THRESHOLD}, {search}|{relation}": float(cuts[relation][0])
        for search, relation in product(searches, cuts)
    }


def thresholds(world: World, n: int, seed: int, *, searches: list[str]) -> Intervals:
    """What `tune_thresholds` says of searches."""
    settings = SETTINGS.model_copy(update={"search": searches[0]})
    tuned = tuning.tune_pairs(world.draw(n, seed), settings, seed, RESAMPLES, searches)
    for search, figures in tuned.figures.items():
        for name in ("adaptive", "gain", "retrieved", "always", "oracle"):
            yield f"{name}, {search}", intervals.interval(figures[name])
    for row in tuned.relations:
        of_relation = f"{row['search']}|{row['relation']}"
        for name in ("adaptive", "retrieved"):
            if row[name] is not None:
                yield f"{name} of a relation, {of_relation}", bounded(row, name)
        yield f"{OF_THRESHOLD}, {of_relation}", bounded(row, "threshold")


def bounded(row: dict, name: str) -> Interval:
    """The interval in the columns NAME, NAME_low and NAME_high."""
    return Interval(row[name], row[f"{name}_low"], row[f"{name}_high"])


def deciding(world: World, n: int, seed: int) -> Intervals:
    """What else is derived from thresholds: another signal, and savings."""
    pairs = world.draw(n, seed)
    tuned = tuning.tune_pairs(pairs, SETTINGS, seed, RESAMPLES, [SETTINGS.search])
    doubt = tune_thresholds.uncertainty(tuned.pairs, tuned.train, tuned.drawn, SETTINGS)
    for name in ("uncertainty", "difference", "retrieved_uncertainty"):
        yield f"{name}, the model's doubt", intervals.interval(doubt["uncertainty"][name])

    spent = savings.spent(answers(pairs, seed), "dense")
    yield "tokens saved", savings.saved(spent, tuned.fitted.policy, tuned.drawn)["tokens_saved"]


def others(world: World, n: int, seed: int) -> Intervals:
    """What `thresholds` says of a system that decides by the model's doubt, with some chance."""
    pairs = world.draw(n, seed)
    tuned = tuning.tune_pairs(pairs, SETTINGS, seed, RESAMPLES, [SETTINGS.search])
    retrieves = pairs.confidence < np.random.default_rng([seed, 8]).random(n)
    right = np.where(retrieves, pairs.right_below, pairs.right_above)
    system = Answered("system", right.astype(np.int8), None, [], calls=retrieves.astype(float))
    closed_book = Answered(
        "closed_book",
        pairs.right_above.astype(np.int8),
        None,
        [],
        uncertainty=1 - pairs.confidence,
    )
    places = np.arange(n)
    decided = deciders.judge_deciders(tuned, SETTINGS.search, places, closed_book, [system])
    for row in decided:
        for name, figure in row.items():
            if isinstance(figure, Interval) and figure.low < figure.high:
                yield f"{name}, {row['system']}", figure


def tables(world: World, n: int, seed: int) -> Intervals:
    """What `analyse` says of accuracy."""
    pairs = world.draw(n, seed)
    judged = answers(pairs, seed).take(np.argsort(pairs.ids.astype(str)))
    closed_book, _ = accuracy.accuracy(judged)
    yield "accuracy", closed_book["substring"]
    yield "correlation with log popularity", closed_book["correlation"]

    for row in accuracy.by_relation(judged):
        if row["method"] == "dense":
            yield f"accuracy of a relation|{row['relation']}", row["substring"]
            yield f"correlation in a relation|{row['relation']}", row["correlation"]

    least = popularity_bins.LEAST
    for row in popularity_bins.by_decile(judged):
        if row["method"] == "dense":
            yield f"accuracy in a bin of {least} or more|{row['decile']}", row["substring"]
            yield f"gain in a bin of {least} or more|{row['decile']}", row["gain"]

    (row,) = paired.comparisons({"lm": judged})
    yield "paired difference of two methods, by subject", row["gain"]
    for row in retrieval_effects.where_retrieval_helps(judged):
        if row["group"] in ("tail", retrieval_effects.TAIL_LESS_HEAD):
            yield f"gain, {row['group']}", row["gain"]
    for row in retrieval_effects.recall(judged):
        if row["answers"] == "both wrong":
            yield "recall where both answers are wrong", row["recall"]

    draw = np.random.default_rng(seed)
    gains = draw.permutation(pairs.gains.astype(float))[:BENCHMARK_QUESTIONS]
    yield "gain on a benchmark, by question", intervals.mean(gains, draw, RESAMPLES)


KINDS = {"deciding": deciding, "others": others, "tables": tables}


def answers(pairs: Pairs, seed: int) -> answer_sets.Answers:
    """The pairs as the answers of two methods, which read about one token and four."""
    n = len(pairs.ids)
    draw = np.random.default_rng(n)
    by_method = {
        "closed_book": method_answers(pairs, pairs.right_above, draw.gamma(4.0, 0.25, n)),
        "dense": method_answers(pairs, pairs.right_below, draw.gamma(16.0, 0.25, n)),
    }
    return answer_sets.Answers(
        ids=pairs.ids,
        relations=pairs.relations,
        subjects=pairs.subjects,
        popularity=pairs.signal,
        ambiguous=pairs.signal < 100,
        by_method=by_method,
        seed=seed,
        resamples=RESAMPLES,
    )


def method_answers(
    pairs: Pairs, is_right: np.ndarray, tokens: np.ndarray
) -> answer_sets.MethodAnswers:
    right = is_right.astype(float)
    unknown = np.full(len(right), np.nan)
    # the text may hold an answer that the model overlooks
    has_answer = is_right | (pairs.confidence < 0.2)
    return answer_sets.MethodAnswers(
        correct=right,
        correct_word=right,
        doc_has_answer=has_answer.astype(float),
        doc_is_subject=unknown,
        doc_is_namesake=unknown,
        lm_calls=tokens,
        prompt_tokens=tokens,
        new_tokens=np.zeros_like(tokens),
        cost=tokens,
        exact=right,
        f1=right,
        abstained=np.zeros_like(right),
    )


def texts(clusters: int, seed: int) -> Intervals:
    """Bits per byte, and what retrieval saves of them, over source documents of many lengths."""
    draw = np.random.default_rng(seed)
    sizes = draw.geometric(0.2, clusters)
    documents = np.repeat(np.arange(clusters), sizes)
    n = len(documents)
    n_bytes = draw.integers(200, 600, n).astype(float)
    bits_of_document = 2.5 * np.exp(draw.normal(0, 0.3, clusters))  # for each byte
    bits = n_bytes * bits_of_document[documents] * np.exp(draw.normal(0, 0.2, n))
    saved = draw.normal(0.04, 0.05, clusters)[documents] + draw.normal(0, 0.05, n)

    columns = np.stack([bits, n_bytes, bits * (1 - saved)], axis=1)
    sums = intervals.cluster_sums(columns, documents)
    figures = {
        f"bits per byte, {clusters} source documents": (intervals.ratio, slice(0, 2)),
        f"bits saved, {clusters} source documents": (saved_per_cent, slice(0, 3)),
    }
    yield from intervals.bootstraps(sums, figures, draw, RESAMPLES).items()


def saved_per_cent(sums: np.ndarray) -> np.ndarray:
    """Of sums (draws, 3) of bits without retrieval, bytes, and bits with retrieval."""
    return 100 * (1 - sums[:, 2] / sums[:, 0])


if __name__ == "__main__":
    main()
