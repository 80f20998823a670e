"""Stage tune_thresholds: when retrieving is worth it, a popularity threshold per relation (PopQA, section 6).

Writes under data/adaptive:
- thresholds.parquet, a row per dataset, method, search and relation: `threshold` fitted on all questions (0: never
  retrieve, infinity: always), `threshold_low` and `threshold_high` (2.5 and 97.5 % of the splits' thresholds),
  `questions`, `pooled` (too few questions: the threshold of all relations together), and over these same questions
  `closed_book`, `augmented`, `adaptive` (accuracies, in sample) and `retrieved` (share that retrieves).
- splits.parquet, a row per dataset, method, search and split: held-out accuracy of `adaptive`, `always`, `never` and
  `oracle` (whichever answer is right), `retrieved`, `test_questions`, and `train_adaptive` on the training side.
- thresholds.json, the thresholds of `thresholds.search` for use: dataset -> method -> relation -> number, null for
  always.

A subject's questions all fall on the same side of a split. They share a popularity, a page and whatever the model knows
of their subject, so that a subject on both sides would let a threshold be judged on what it was fitted to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import draws, params, shards, stage
from pipelines.adaptive import DATASETS, searches
from pipelines.adaptive.pairs import Pairs, read_pairs
from pipelines.evaluation import intervals

METHODS = ("bm25", "dense", "lsr")
SEARCHES = ("exact", "bins", "shrunk")
POLICIES = ("adaptive", "always", "never", "oracle")


@dataclass(frozen=True)
class HeldOut:
    """One search judged on all splits."""

    cuts: dict[str, np.ndarray]  # relation -> (splits,) thresholds
    table: dict[str, np.ndarray]  # column of splits.parquet -> (splits,)
    question_scores: np.ndarray  # (n,) mean held-out rightness of the adaptive answer; NaN where never held out


def split_train(seed: int, subjects: np.ndarray, splits: int, train_share: float) -> np.ndarray:
    """Which questions each split trains on, (splits, n) bool, decided by hash for each subject."""
    names, numbers = np.unique(subjects, return_inverse=True)
    drawn = [draws.uniforms(seed, f"thresholds split {split}", names) < train_share for split in range(splits)]
    return np.stack(drawn)[:, numbers] if len(names) else np.zeros((splits, 0), dtype=bool)


def fit(pairs: Pairs, train: np.ndarray, search: str, chosen: params.Thresholds) -> dict[str, np.ndarray]:
    """Each relation's threshold, fitted on each row of `train` (splits, n): relation -> (splits,)."""
    popularity, gains = pairs.popularity, pairs.gains
    if search == "shrunk":
        candidates = searches.quantile_cuts(popularity, train, chosen.quantiles)
        summed = searches.gains_at(popularity, gains, train, candidates)
        mean_gain = summed / np.maximum(train.sum(axis=1, keepdims=True), 1)

    def best(rows: np.ndarray, pseudo_questions: float) -> np.ndarray:
        own = popularity[rows], gains[rows], train[:, rows]
        if search == "shrunk":
            return searches.shrunk(*own, candidates, mean_gain, pseudo_questions)
        return {"exact": searches.exact, "bins": searches.bins}[search](*own)

    pooled = best(np.arange(len(popularity)), 0.0)
    members = {relation: np.flatnonzero(pairs.relations == relation) for relation in np.unique(pairs.relations)}
    return {
        relation: best(rows, chosen.pseudo_questions) if len(rows) >= chosen.min_questions else pooled
        for relation, rows in members.items()
    }


def judge(pairs: Pairs, train: np.ndarray, cuts: dict[str, np.ndarray]) -> HeldOut:
    """Held-out accuracies of every policy on every split, given the thresholds fitted on its training side."""
    threshold = np.empty(train.shape)
    for relation, values in cuts.items():
        threshold[:, pairs.relations == relation] = values[:, None]
    retrieves = pairs.popularity < threshold  # (splits, n)
    adaptive = np.where(retrieves, pairs.augmented, pairs.closed)
    test = ~train
    right = {
        "adaptive": adaptive,
        "always": pairs.augmented,
        "never": pairs.closed,
        "oracle": pairs.augmented | pairs.closed,
        "retrieved": retrieves,
    }
    held = test.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        table = {name: (values & test).sum(axis=1) / held for name, values in right.items()}
        table["train_adaptive"] = (adaptive & train).sum(axis=1) / train.sum(axis=1)
        scores = (adaptive & test).sum(axis=0) / test.sum(axis=0)
    return HeldOut(cuts, table | {"test_questions": held}, scores)


def tune(pairs: Pairs, chosen: params.Thresholds, seed: int) -> tuple[dict[str, HeldOut], dict[str, dict[str, float]]]:
    """Each search judged on the same splits, and its thresholds by relation, fitted on all questions."""
    train = split_train(seed, pairs.subjects, chosen.splits, chosen.train_share)
    everything = np.ones((1, len(pairs.popularity)), dtype=bool)
    judged = {search: judge(pairs, train, fit(pairs, train, search, chosen)) for search in SEARCHES}
    final = {search: fit(pairs, everything, search, chosen) for search in SEARCHES}
    return judged, {search: {r: float(cut[0]) for r, cut in cuts.items()} for search, cuts in final.items()}


def usable(pairs: Pairs, min_questions: int) -> bool:
    """Whether some relation has questions enough for a threshold of its own."""
    return len(pairs.relations) > 0 and np.unique(pairs.relations, return_counts=True)[1].max() >= min_questions


def relation_rows(
    pairs: Pairs, cuts: dict[str, float], splits: dict[str, np.ndarray], min_questions: int
) -> list[dict]:
    """The rows of thresholds.parquet for one search."""
    rows = []
    for relation, cut in cuts.items():
        own = pairs.relations == relation
        closed, augmented, retrieves = pairs.closed[own], pairs.augmented[own], pairs.popularity[own] < cut
        low, high = np.quantile(splits[relation], [0.025, 0.975], method="nearest")  # infinity allows no interpolation
        rows.append(
            {
                "relation": relation,
                "questions": int(own.sum()),
                "pooled": bool(own.sum() < min_questions),
                "threshold": cut,
                "threshold_low": float(low),
                "threshold_high": float(high),
                "closed_book": float(closed.mean()),
                "augmented": float(augmented.mean()),
                "adaptive": float(np.where(retrieves, augmented, closed).mean()),
                "retrieved": float(retrieves.mean()),
            }
        )
    return rows


def summary(pairs: Pairs, judged: HeldOut, seed: int, resamples: int) -> dict[str, dict[str, float | None]]:
    """One search's figures for the metrics file: means over splits, with intervals over splits and over questions.

    `low` and `high` are a bootstrap over subjects (what other questions would have given, thresholds as fitted);
    `splits_low`, `splits_high` and `sd` say how much the figure moves from split to split. `gain` is adaptive minus the
    better of always and never, whichever that is over all held-out questions.
    """
    held = np.isfinite(judged.question_scores)
    scores = {
        "adaptive": judged.question_scores,
        "always": pairs.augmented.astype(float),
        "never": pairs.closed.astype(float),
        "oracle": (pairs.augmented | pairs.closed).astype(float),
    }
    better = "always" if judged.table["always"].mean() >= judged.table["never"].mean() else "never"
    scores["gain"] = scores["adaptive"] - scores[better]
    per_split = {name: judged.table[name] for name in POLICIES}
    per_split["gain"] = per_split["adaptive"] - per_split[better]
    figures = {}
    for name, values in scores.items():
        generator = draws.generator(
            seed, "adaptive bootstrap"
        )  # the same resamples for all: they compare like with like
        over_questions = intervals.mean(values[held], generator, resamples, pairs.subjects[held])
        low, high = np.quantile(per_split[name], [0.025, 0.975])
        figures[name] = over_questions.as_json() | {
            "mean_over_splits": float(per_split[name].mean()),
            "sd": float(per_split[name].std(ddof=1)) if len(per_split[name]) > 1 else 0.0,
            "splits_low": float(low),
            "splits_high": float(high),
        }
    return figures | {
        "retrieved": {"value": float(judged.table["retrieved"].mean())},
        "train_adaptive": {"value": float(judged.table["train_adaptive"].mean())},
    }


def main() -> None:
    out = Path("data/adaptive")

    def work(chosen) -> stage.Metrics:
        rows: list[dict] = []
        split_rows: list[pa.Table] = []
        thresholds: dict = {}
        metrics: dict = {}
        for dataset in DATASETS:
            answers = Path(f"data/predictions/{dataset}")
            for method in METHODS:
                pairs = read_pairs(
                    Path(f"data/{dataset}/{dataset}.parquet"),
                    answers / "closed_book.parquet",
                    answers / f"{method}.parquet",
                )
                figures = metrics.setdefault(dataset, {})
                figures |= {"questions": len(pairs.relations), "excluded_without_popularity": pairs.excluded}
                if not usable(pairs, chosen.thresholds.min_questions):
                    continue
                judged, final = tune(pairs, chosen.thresholds, chosen.seed)
                figures[method] = {
                    search: summary(pairs, judged[search], chosen.seed, chosen.report.bootstrap) for search in SEARCHES
                }
                for search in SEARCHES:
                    name = {"dataset": dataset, "method": method, "search": search}
                    found = relation_rows(pairs, final[search], judged[search].cuts, chosen.thresholds.min_questions)
                    rows += [name | row for row in found]
                    split_rows.append(_split_table(name, judged[search]))
                cuts = final[chosen.thresholds.search].items()
                thresholds.setdefault(dataset, {})[method] = {r: c if math.isfinite(c) else None for r, c in cuts}
        with shards.atomic(out) as folder:
            folder.mkdir()
            pq.write_table(pa.Table.from_pylist(rows, THRESHOLDS), folder / "thresholds.parquet", compression="zstd")
            table = pa.concat_tables([SPLITS.empty_table(), *split_rows])
            pq.write_table(table, folder / "splits.parquet", compression="zstd")
            shards.write_json(
                folder / "thresholds.json", {"search": chosen.thresholds.search, "thresholds": thresholds}
            )
        shards.write_json("data/metrics/adaptive.json", metrics)
        return {
            f"{dataset}.{method}.{search}.{figure}": metrics[dataset][method][search][figure]["mean_over_splits"]
            for dataset in thresholds
            for method in thresholds[dataset]
            for search in SEARCHES
            for figure in (*POLICIES, "gain")
        }

    stage.run("tune_thresholds", ("seed", "thresholds", "report"), work, out=str(out))


_NAME = [("dataset", pa.string()), ("method", pa.string()), ("search", pa.string())]
THRESHOLDS = pa.schema(
    [
        *_NAME,
        ("relation", pa.string()),
        ("questions", pa.int64()),
        ("pooled", pa.bool_()),
        ("threshold", pa.float64()),
        ("threshold_low", pa.float64()),
        ("threshold_high", pa.float64()),
        ("closed_book", pa.float64()),
        ("augmented", pa.float64()),
        ("adaptive", pa.float64()),
        ("retrieved", pa.float64()),
    ]
)
SPLITS = pa.schema(
    [
        *_NAME,
        ("split", pa.int32()),
        ("test_questions", pa.int64()),
        *[(name, pa.float64()) for name in (*POLICIES, "retrieved", "train_adaptive")],
    ]
)


def _split_table(name: dict[str, str], judged: HeldOut) -> pa.Table:
    splits = len(judged.table["adaptive"])
    columns = {key: [value] * splits for key, value in name.items()} | {"split": np.arange(splits, dtype=np.int32)}
    return pa.table(columns | judged.table).select(SPLITS.names).cast(SPLITS)


if __name__ == "__main__":
    main()
