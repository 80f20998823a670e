"""Stage tune_thresholds: when retrieving is worth it, a popularity threshold per relation (PopQA, section 6).

It writes in data/adaptive/popularity, for every language model and every method that brings passages, and for the pairs
of `thresholds.pairs` (data/README.md has the columns):
- thresholds.parquet: each relation's threshold by each search, and what it was worth on questions held out;
- splits.parquet: each policy's held-out accuracy on each split;
- costs.parquet: accuracy, share that retrieves and cost if retrieving has a price;
- the tables of studies (their RULE_TABLES);
- thresholds.json: the rules to use, by `thresholds.search` and the verdict: dataset -> lm -> method -> the rule as
  `rule.as_json` has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from pipelines import all_studies
from pipelines.adaptive import rule
from pipelines.adaptive.alternatives import cost_curve, uncertainty
from pipelines.adaptive.held_out import POLICIES
from pipelines.adaptive.pairs import Choice, Pairs, choices, read_pairs
from pipelines.adaptive.searches import SEARCHES
from pipelines.adaptive.tuning import Tuned, tune_pairs
from pipelines.answering import answer_files
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.storage import parquet, shards
from pipelines.work import stage


@dataclass(frozen=True)
class Evaluated:
    """The results for one method's answers; rows lack the key (dataset, lm, method)."""

    figures: dict  # search, "uncertainty" or a study's -> figures of metrics/adaptive.json
    relations: list[dict]  # rows of thresholds.parquet
    splits: dict[str, dict[str, np.ndarray]]  # search -> columns of splits.parquet
    curve: list[dict]  # rows of costs.parquet
    tuned: Tuned


@dataclass(frozen=True)
class AllRules:
    """What studies of all thresholds have at hand: those tuned, with the answers between which they choose."""

    tuned: dict[tuple[str, str, str], tuple[Pairs, Tuned]]  # (dataset, language model, method) -> its questions
    params: SimpleNamespace
    data: Path


def evaluate_thresholds(answered: Pairs, chosen: params.Thresholds, seed: int, resamples: int) -> Evaluated:
    """Every search judged on the same splits, and its thresholds by relation, fitted on all questions.

    Questions of unknown popularity count for studies alone. Raises LongtailError if the splits hold no question out.
    """
    pairs = answered.known()
    tuned = tune_pairs(pairs, chosen, seed, resamples)
    figures = tuned.figures | uncertainty(pairs, tuned.train, tuned.drawn, chosen, seed, resamples)
    for study in all_studies.studies_offering("of_pairs"):
        figures |= study.of_pairs(answered, tuned, chosen, seed, resamples)
    curve = cost_curve(pairs, tuned.train, tuned.drawn, chosen)
    return Evaluated(figures, tuned.relations, tuned.splits, curve, tuned)


def read_all(
    datasets: list[str], lms: list[str], retrievers: list[str], chosen: params.Thresholds
) -> dict[tuple[str, str, str], Pairs]:
    """(dataset, lm, method) -> both answers of each question; keys as `Choice.lm` and `Choice.name`.

    Raises LongtailError as `choices` does, and if costs count, but are not known of all answers.
    """
    pairs = {}
    files = {dataset: answer_files.sets(dataset, lms, retrievers, split=chosen.imported) for dataset in datasets}
    for dataset, choices_of_set in choices(files, lms, chosen.pairs).items():
        questions = Path(f"data/questions/{dataset}/{dataset}.parquet")
        for choice in choices_of_set:
            closed, augmented = (files[dataset][lm][method] for lm, method in (choice.popular, choice.tail))
            brought = tuple(
                answer_files.brings_text(method, file)
                for (_, method), file in ((choice.popular, closed), (choice.tail, augmented))
            )
            pairs[dataset, choice.lm, choice.name] = read_pairs(
                questions, closed, augmented, chosen.cost, brought, chosen.imported
            )
    for key in pairs if chosen.cost_weight else ():
        if not pairs[key].costs_known:
            raise LongtailError(
                f"{'/'.join(key)}: what an answer costs in {chosen.cost} is not known of all, expected it with "
                "thresholds.cost_weight above 0; set thresholds.cost to retrievals"
            )
    return pairs


def choice_of(lm: str, method: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """The answers, (language model, method), that the tables call so: from the threshold on, and below it."""
    choice = Choice.named(lm, method)
    return choice.popular, choice.tail


def month_of(dataset: str) -> str | None:
    """The month of a question set's page views, or the first and the last one; None if it does not say it."""
    file = Path(f"data/questions/{dataset}/{dataset}.parquet")
    if "month" not in parquet.schema_of(file).names:
        return None
    months = sorted(filter(None, parquet.read_parquet(file, ["month"])["month"].unique().to_pylist()))
    return " to ".join(dict.fromkeys(months[:1] + months[-1:])) or None


def main() -> None:
    out = Path("data/adaptive/popularity")

    def work(chosen) -> stage.Metrics:
        settings = chosen.thresholds
        relations, splits, curve = [], [SPLITS.empty_table()], []
        rules: dict = {}
        metrics: dict = {dataset: {} for dataset in chosen.parts.answered}
        logged: dict[str, float] = {}
        tuned: dict[tuple[str, str, str], tuple[Pairs, Tuned]] = {}
        inputs = chosen.parts.answered, chosen.lms, chosen.retrievers
        for dataset in chosen.parts.answered:
            for sentence in answer_files.left_out(dataset, chosen.lms, chosen.retrievers, split=settings.imported):
                print(sentence)
        for (dataset, lm, method), pairs in read_all(*inputs, settings).items():
            figures = metrics[dataset].setdefault(lm, {})
            known = pairs.known()
            figures |= {"questions": len(known.signal), "excluded_without_popularity": known.excluded}
            if not known.usable(settings.min_questions):
                continue
            evaluated = evaluate_thresholds(pairs, settings, chosen.seed, chosen.report.bootstrap)
            key = {"dataset": dataset, "lm": lm, "method": method}
            relations += [key | row for row in evaluated.relations]
            splits += [_split_table(key | {"search": search}, table) for search, table in evaluated.splits.items()]
            curve += [key | row for row in evaluated.curve]
            answers = ("/".join(answer) for answer in choice_of(lm, method))
            file = rule.of_tuned(evaluated.tuned, *answers, settings.search, month_of(dataset))
            rules.setdefault(dataset, {}).setdefault(lm, {})[method] = rule.as_json(file)
            figures[method] = evaluated.figures
            tuned[dataset, lm, method] = known, evaluated.tuned
            logged |= {
                f"{dataset}.{lm}.{method}.{search}.{name}": evaluated.figures[search][name]["mean_over_splits"]
                for search in SEARCHES
                for name in (*POLICIES, "gain")
            }
        tables = {
            "thresholds": pa.Table.from_pylist(relations, THRESHOLDS),
            "splits": pa.concat_tables(splits),
            "costs": pa.Table.from_pylist(curve, COSTS),
        }
        for study in all_studies.studies_offering("of_rules"):
            rows, figures_of_study = study.of_rules(AllRules(tuned, chosen, Path("data")))
            tables |= {name: pa.Table.from_pylist(rows[name], schema) for name, schema in study.RULE_TABLES.items()}
            for (dataset, lm), figures in figures_of_study.items():
                metrics[dataset].setdefault(lm, {}).update(figures)
        with shards.atomic(out) as folder:
            folder.mkdir()
            for name, table in tables.items():
                parquet.write_parquet(table, folder / f"{name}.parquet")
            shards.write_json(folder / "thresholds.json", {"rules": rules})
        shards.write_json("data/metrics/adaptive.json", metrics)
        return logged

    stage.run("tune_thresholds", ("seed", "lms", "retrievers", "thresholds", "report", "parts"), work, out=str(out))


def with_bounds(*names: str) -> dict[str, pa.DataType]:
    """The columns of figures with the bounds of their intervals."""
    return {name + end: pa.float64() for name in names for end in ("", "_low", "_high")}


_KEY = dict.fromkeys(("dataset", "lm", "method"), pa.string())
THRESHOLDS = pa.schema(
    _KEY
    | {"search": pa.string(), "relation": pa.string(), "questions": pa.int64(), "pooled": pa.bool_()}
    | {"popularity_least": pa.float64(), "popularity_most": pa.float64()}
    | {"policy": pa.string(), "deployed": pa.float64()}
    | {"closed_book": pa.float64(), "augmented": pa.float64()}
    | with_bounds("threshold", "threshold_splits", "adaptive", "adaptive_splits", "retrieved", "retrieved_splits")
)
SPLITS = pa.schema(
    _KEY
    | {"search": pa.string(), "split": pa.int32(), "test_questions": pa.int64()}
    | dict.fromkeys((*POLICIES, "retrieved", "train_adaptive"), pa.float64())
)
COSTS = pa.schema(
    _KEY
    | {"unit": pa.string(), "price": pa.float64(), "cost_weight": pa.float64()}
    | with_bounds("adaptive", "retrieved", "cost")
)


def _split_table(key: dict[str, str], table: dict[str, np.ndarray]) -> pa.Table:
    """A search's rows of splits.parquet; `key` has the columns that are the same in all rows."""
    n = len(table["adaptive"])
    columns = {name: pa.repeat(value, n) for name, value in key.items()} | {"split": np.arange(n)} | table
    return pa.table(columns).select(SPLITS.names).cast(SPLITS)


if __name__ == "__main__":
    main()
