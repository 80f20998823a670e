"""Stage tune_thresholds: when retrieving is worth it, a popularity threshold per relation (PopQA, section 6).

It writes in data/adaptive/popularity, for every language model and every method that brings passages, and for the pairs
of `thresholds.pairs` (data/README.md has the columns):
- thresholds.parquet: each relation's threshold by each search, and what it was worth on questions held out;
- splits.parquet: each policy's held-out accuracy on each split;
- costs.parquet: accuracy, share that retrieves and cost if retrieving has a price;
- reliability.parquet, coverage.parquet: whether closed-book answers are as often right as they are probable;
- carried.parquet: what thresholds are worth that were fitted to another language model's answers or another month's
  page views;
- thresholds.json: the thresholds of `thresholds.search` for use: dataset -> lm -> method -> relation -> number, null
  for always.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines import draws, params, parquet, shards, stage
from pipelines.adaptive import carried, confidence, gate, held_out
from pipelines.adaptive.alternatives import cost_curve, uncertainty
from pipelines.adaptive.held_out import POLICIES, HeldOut
from pipelines.adaptive.pairs import Pairs, choices, read_pairs
from pipelines.adaptive.searches import SEARCHES
from pipelines.answering import answer_files
from pipelines.errors import LongtailError

BLOCK = 100  # resamples fitted at a time: bounds memory


@dataclass(frozen=True)
class Evaluated:
    """The results for one method's answers; rows lack the key (dataset, lm, method)."""

    figures: dict  # search, "uncertainty" or "gate" -> figures of metrics/adaptive.json
    relations: list[dict]  # rows of thresholds.parquet
    splits: dict[str, dict[str, np.ndarray]]  # search -> columns of splits.parquet
    curve: list[dict]  # rows of costs.parquet
    cuts: dict[str, float]  # relation -> threshold of the search in use
    judged: HeldOut  # the splits' thresholds of the search in use


def evaluate(answered: Pairs, chosen: params.Thresholds, seed: int, resamples: int) -> Evaluated:
    """Every search judged on the same splits, and its thresholds by relation, fitted on all questions.

    Questions of unknown popularity count for the gate alone. Raises LongtailError if the splits hold no question out.
    """
    pairs = answered.known()
    train = held_out.split_train(seed, pairs.units(chosen.split_by), chosen.splits, chosen.train_share)
    if train.all():
        raise LongtailError(
            f"thresholds.splits: {chosen.splits} hold none of {len(train)} questions out, expected some; set more"
        )
    everything = np.ones((len(pairs.signal), 1), dtype=bool)
    drawn = resampled_thresholds(pairs, chosen, seed, resamples)
    figures, relations, splits, in_use = {}, [], {}, ()
    for search in SEARCHES:
        judged = held_out.judge(pairs, train, held_out.fit(pairs, train, search, chosen))
        cuts = {r: float(cut[0]) for r, cut in held_out.fit(pairs, everything, search, chosen).items()}
        figures[search] = held_out.summary(pairs, judged, seed, resamples)
        rows = relation_rows(pairs, cuts, judged, drawn[search], chosen.min_questions, seed, resamples)
        relations += [{"search": search} | row for row in rows]
        splits[search] = judged.table
        in_use = (cuts, judged) if search == chosen.search else in_use
    curve = cost_curve(pairs, train, chosen, seed, resamples)
    figures |= uncertainty(pairs, train, chosen, seed, resamples)
    figures["gate"] = gate.evaluate(answered, in_use[1], chosen, seed, resamples)
    return Evaluated(figures, relations, splits, curve, *in_use)


def resampled_thresholds(
    pairs: Pairs, chosen: params.Thresholds, seed: int, resamples: int
) -> dict[str, dict[str, np.ndarray]]:
    """search -> relation -> thresholds fitted on subjects drawn with replacement, (resamples,).

    They show what other questions would have given.
    """
    names, subjects = np.unique(pairs.subjects, return_inverse=True)
    n, generator = len(names), draws.generator(seed, "threshold resamples")
    found = {search: [] for search in SEARCHES}
    for start in range(0, resamples, BLOCK):
        size = min(BLOCK, resamples - start)
        picks = generator.integers(0, n, (size, n)) + np.arange(size)[:, None] * n
        times = np.bincount(picks.ravel(), minlength=size * n).astype(np.int32).reshape(size, n).T[subjects]
        for search, blocks in found.items():
            blocks.append(held_out.fit(pairs, times, search, chosen))
    return {
        search: {relation: np.concatenate([block[relation] for block in blocks]) for relation in blocks[0]}
        for search, blocks in found.items()
    }


def relation_rows(
    pairs: Pairs,
    cuts: dict[str, float],
    judged: HeldOut,
    drawn: dict[str, np.ndarray],
    min_questions: int,
    seed: int,
    resamples: int,
) -> list[dict]:
    """The rows of thresholds.parquet for one search."""
    rows = []
    for relation, members in pairs.members().items():
        of_relation = pairs.take(members)
        held = held_out.scores(of_relation, judged.retrieved[members])
        means = held_out.means({k: held[k] for k in ("adaptive", "retrieved")}, of_relation.subjects, seed, resamples)
        row = {
            "relation": relation,
            "questions": len(of_relation.signal),
            "pooled": len(of_relation.signal) < min_questions,
            "threshold": cuts[relation],
            "closed_book": float(of_relation.closed.mean()),
            "augmented": float(of_relation.augmented.mean()),
        }
        over_splits = judged.cuts[relation]
        row |= _quantiles("threshold", drawn[relation]) | _quantiles("threshold_splits", over_splits)
        row["threshold_splits"] = float(np.quantile(over_splits, 0.5, method="nearest"))
        for name, mean in means.items():
            row |= {name if key == "value" else f"{name}_{key}": value for key, value in mean.as_json().items()}
            over_splits = judged.relations[relation][name]
            over_splits = over_splits[np.isfinite(over_splits)]
            row |= _quantiles(f"{name}_splits", over_splits)
            row[f"{name}_splits"] = float(over_splits.mean()) if len(over_splits) else None
        rows.append(row)
    return rows


def read_all(
    datasets: list[str], lms: list[str], retrievers: list[str], chosen: params.Thresholds
) -> dict[tuple[str, str, str], Pairs]:
    """(dataset, lm, method) -> both answers of each question; keys as `Choice.lm` and `Choice.name`.

    Raises LongtailError as `choices` does, and if costs count, but are not known of all answers.
    """
    pairs = {}
    files = {dataset: answer_files.sets(dataset, lms, retrievers) for dataset in datasets}
    for dataset, choices_of_set in choices(files, lms, chosen.pairs).items():
        questions = Path(f"data/questions/{dataset}/{dataset}.parquet")
        for choice in choices_of_set:
            closed, augmented = (files[dataset][lm][method] for lm, method in (choice.popular, choice.tail))
            brought = choice.popular[1] != "closed_book", choice.tail[1] != "closed_book"
            pairs[dataset, choice.lm, choice.name] = read_pairs(questions, closed, augmented, chosen.cost, brought)
    for key in pairs if chosen.cost_weight else ():
        if not pairs[key].costs_known:
            raise LongtailError(
                f"{'/'.join(key)}: what an answer costs in {chosen.cost} is not known of all, expected it with "
                "thresholds.cost_weight above 0; set thresholds.cost to retrievals"
            )
    return pairs


def read_closed_book(datasets: list[str], lms: list[str]) -> dict[tuple[str, str], confidence.Answers]:
    """(dataset, lm) -> its closed-book answers of known probability, if it has any answers."""
    return {
        (dataset, lm): confidence.read(Path(f"data/questions/{dataset}/{dataset}.parquet"), files["closed_book"])
        for dataset in datasets
        for lm, files in answer_files.sets(dataset, lms, retrievers=()).items()
        if "closed_book" in files
    }


def main() -> None:
    out = Path("data/adaptive/popularity")

    def work(chosen) -> stage.Metrics:
        settings = chosen.thresholds
        relations, splits, curve = [], [SPLITS.empty_table()], []
        thresholds: dict = {}
        metrics: dict = {dataset: {} for dataset in chosen.parts.answered}
        logged: dict[str, float] = {}
        tuned: dict[tuple[str, str, str], tuple[Pairs, HeldOut]] = {}
        reliability, coverage = [], []
        inputs = chosen.parts.answered, chosen.lms, chosen.retrievers
        for (dataset, lm, method), pairs in read_all(*inputs, settings).items():
            figures = metrics[dataset].setdefault(lm, {})
            known = pairs.known()
            figures |= {"questions": len(known.signal), "excluded_without_popularity": known.excluded}
            if not known.usable(settings.min_questions):
                continue
            evaluated = evaluate(pairs, settings, chosen.seed, chosen.report.bootstrap)
            key = {"dataset": dataset, "lm": lm, "method": method}
            relations += [key | row for row in evaluated.relations]
            splits += [_split_table(key | {"search": search}, table) for search, table in evaluated.splits.items()]
            curve += [key | row for row in evaluated.curve]
            cuts = {relation: cut if math.isfinite(cut) else None for relation, cut in evaluated.cuts.items()}
            thresholds.setdefault(dataset, {}).setdefault(lm, {})[method] = cuts
            figures[method] = evaluated.figures
            tuned[dataset, lm, method] = known, evaluated.judged
            logged |= {
                f"{dataset}.{lm}.{method}.{search}.{name}": evaluated.figures[search][name]["mean_over_splits"]
                for search in SEARCHES
                for name in (*POLICIES, "gain")
            }
        for (dataset, lm), answers in read_closed_book(chosen.parts.answered, chosen.lms).items():
            trusted = confidence.evaluate(answers, settings, chosen.seed, chosen.report.bootstrap)
            key = {"dataset": dataset, "lm": lm}
            reliability += [key | row for row in trusted.reliability]
            coverage += [key | row for row in trusted.coverage]
            if trusted.figures:
                metrics[dataset].setdefault(lm, {})["confidence"] = trusted.figures
        rows_carried = carried.between_models(tuned, settings, chosen.seed, chosen.report.bootstrap)
        rows_carried += carried.between_months(tuned, Path("data"), settings, chosen.seed, chosen.report.bootstrap)
        with shards.atomic(out) as folder:
            folder.mkdir()
            for name, table in (
                ("thresholds", pa.Table.from_pylist(relations, THRESHOLDS)),
                ("splits", pa.concat_tables(splits)),
                ("costs", pa.Table.from_pylist(curve, COSTS)),
                ("reliability", pa.Table.from_pylist(reliability, RELIABILITY)),
                ("coverage", pa.Table.from_pylist(coverage, COVERAGE)),
                ("carried", pa.Table.from_pylist(rows_carried, CARRIED)),
            ):
                parquet.write(table, folder / f"{name}.parquet")
            shards.write_json(folder / "thresholds.json", {"search": settings.search, "thresholds": thresholds})
        shards.write_json("data/metrics/adaptive.json", metrics)
        return logged

    stage.run("tune_thresholds", ("seed", "lms", "retrievers", "thresholds", "report", "parts"), work, out=str(out))


def _with_bounds(*names: str) -> dict[str, pa.DataType]:
    return {name + end: pa.float64() for name in names for end in ("", "_low", "_high")}


_KEY = dict.fromkeys(("dataset", "lm", "method"), pa.string())
THRESHOLDS = pa.schema(
    _KEY
    | {"search": pa.string(), "relation": pa.string(), "questions": pa.int64(), "pooled": pa.bool_()}
    | {"closed_book": pa.float64(), "augmented": pa.float64()}
    | _with_bounds("threshold", "threshold_splits", "adaptive", "adaptive_splits", "retrieved", "retrieved_splits")
)
SPLITS = pa.schema(
    _KEY
    | {"search": pa.string(), "split": pa.int32(), "test_questions": pa.int64()}
    | dict.fromkeys((*POLICIES, "retrieved", "train_adaptive"), pa.float64())
)
COSTS = pa.schema(
    _KEY
    | {"unit": pa.string(), "price": pa.float64(), "cost_weight": pa.float64()}
    | _with_bounds("adaptive", "retrieved", "cost")
)
_OF_LM = {name: kind for name, kind in _KEY.items() if name != "method"}
RELIABILITY = pa.schema(
    _OF_LM
    | {"calibration": pa.string(), "bin": pa.int32(), "questions": pa.int64(), "confidence": pa.float64()}
    | _with_bounds("accuracy")
)
COVERAGE = pa.schema(
    _OF_LM
    | {"coverage": pa.float64(), "least_confidence": pa.float64(), "questions": pa.int64()}
    | _with_bounds("accuracy")
)
CARRIED = pa.schema(
    _KEY
    | dict.fromkeys(("kind", "fitted", "judged", "scale"), pa.string())
    | {"questions": pa.int64()}
    | _with_bounds("own", "carried", "difference")
    | {"difference_splits_low": pa.float64(), "difference_splits_high": pa.float64()}
    | _with_bounds("retrieved_own", "retrieved_carried")
)


def _quantiles(name: str, values: np.ndarray) -> dict[str, float | None]:
    """The bounds of 95 % of the values. Both are values themselves, because infinity can't be interpolated."""
    low, high = np.quantile(values, [0.025, 0.975], method="nearest") if len(values) else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _split_table(key: dict[str, str], table: dict[str, np.ndarray]) -> pa.Table:
    """A search's rows of splits.parquet; `key` has the columns that are the same in all rows."""
    n = len(table["adaptive"])
    columns = {name: pa.repeat(value, n) for name, value in key.items()} | {"split": np.arange(n)} | table
    return pa.table(columns).select(SPLITS.names).cast(SPLITS)


if __name__ == "__main__":
    main()
