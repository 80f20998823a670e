"""Stage tune_thresholds: when retrieving is worth it, a popularity threshold per relation (PopQA, section 6).

It writes in data/adaptive/popularity, for every language model and every method that brings passages, and for the pairs
of `thresholds.pairs` (data/README.md has the columns):
- thresholds.parquet: each relation's threshold by each search, and what it was worth on questions held out;
- the tables of studies (their RULE_TABLES);
- thresholds.json: the rules to use, by `thresholds.search` and the verdict: dataset -> lm -> method -> the rule as
  `rule.as_json` has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from pipelines import all_studies
from pipelines.adaptive import held_out, rule
from pipelines.adaptive.held_out import POLICIES
from pipelines.adaptive.pairs import Choice, Pairs, choices, read_pairs
from pipelines.adaptive.refits import Column, Resamples, refitted_means
from pipelines.adaptive.searches import SEARCHES
from pipelines.adaptive.tuning import Tuned, tune_pairs
from pipelines.answering import answer_files
from pipelines.params import params
from pipelines.storage import parquet, shards
from pipelines.work import stage

DATA = Path("data")
OUT = DATA / "adaptive/popularity"
SECTIONS = ("seed", "lms", "retrievers", "thresholds", "report", "parts")
_NAMES = ("threshold", "adaptive", "retrieved")
THRESHOLDS = pa.schema(
    dict.fromkeys(("dataset", "lm", "method", "search", "relation"), pa.string())
    | {"questions": pa.int64(), "pooled": pa.bool_(), "popularity_least": pa.float64(), "popularity_most": pa.float64()}
    | {"policy": pa.string()}
    | dict.fromkeys(("deployed", "closed_book", "augmented"), pa.float64())
    | {name + end: pa.float64() for name in _NAMES for end in ("", "_low", "_high")}
)


@dataclass(frozen=True)
class AllRules:
    """What studies of all thresholds have at hand: those tuned, with the answers between which they choose."""

    tuned: dict[tuple[str, str, str], tuple[Pairs, Tuned]]  # (dataset, language model, method) -> its questions
    params: SimpleNamespace
    data: Path


def evaluate_thresholds(answered: Pairs, chosen: params.Thresholds, seed: int, resamples: int) -> Tuned:
    """Every search judged on the same splits, with the figures of the model's doubt and of studies.

    Questions of unknown popularity count for studies alone. Raises LongtailError if the splits hold no question out.
    """
    pairs = answered.known()
    tuned = tune_pairs(pairs, chosen, seed, resamples)
    figures = tuned.figures | uncertainty(pairs, tuned.train, tuned.drawn, chosen, seed, resamples)
    for study in all_studies.studies_offering("of_pairs"):
        figures |= study.of_pairs(answered, tuned, chosen, seed, resamples)
    return replace(tuned, figures=figures)


def uncertainty(
    pairs: Pairs, train: np.ndarray, drawn: Resamples, chosen: params.Thresholds, seed: int, resamples: int
) -> dict:
    """{"uncertainty": figures}: held-out accuracy if the model's own doubt decides, or popularity (REPLUG, its limits).

    Its doubt is the closed-book answer's probability. Thresholds are fitted by the search in use. The result is empty
    if too few questions have such a probability. `difference` is uncertainty - popularity. `drawn` are resamples of
    `pairs`.
    """
    known = np.isfinite(pairs.confidence)
    pairs, train, drawn = pairs.take(known), train[known], drawn.take(known)
    if not pairs.usable(chosen.min_questions):
        return {}
    policies, columns = {}, {}
    for name, signal in {"popularity": pairs.popularity, "uncertainty": pairs.confidence}.items():
        order = np.lexsort((signal, pairs.relations))
        ordered, sides, again = replace(pairs, signal=signal).take(order), train[order], drawn.take(order)
        fitted = held_out.fit_all(ordered, sides, again, chosen.search, chosen)
        judged = held_out.judge(ordered, sides, fitted.splits)
        policies[name] = held_out.policy(ordered, judged.retrieved, again, fitted).take(np.argsort(order))
        columns[name] = Column(pairs.right_above, {name: pairs.gains})
        columns[f"retrieved_{name}"] = Column(0.0, {name: 1.0}, apart=True)
    columns["difference"] = Column(0.0, {"uncertainty": pairs.gains, "popularity": -pairs.gains}, apart=True)
    fixed = held_out.scores(pairs, policies["popularity"].retrieved)
    fixed = {name: fixed[name] for name in ("always", "never", "oracle")}
    figures = refitted_means(columns, policies, drawn) | held_out.fixed_means(fixed, pairs.subjects, seed, resamples)
    return {"uncertainty": {"questions": len(train)} | {name: mean.as_json() for name, mean in figures.items()}}


def read_all(chosen: SimpleNamespace) -> dict[tuple[str, Choice], Pairs]:
    """(dataset, choice) -> both answers of each question. Raises LongtailError as `choices` does."""
    split = chosen.thresholds.imported
    files = {
        dataset: answer_files.sets(dataset, chosen.lms, chosen.retrievers, split=split)
        for dataset in chosen.parts.answered
    }
    pairs = {}
    for dataset, choices_of_set in choices(files, chosen.lms, chosen.thresholds.pairs).items():
        for choice in choices_of_set:
            above, below = (files[dataset][choice.lm][method] for method in (choice.popular, choice.tail))
            pairs[dataset, choice] = read_pairs(_questions(dataset), above, below, split)
    return pairs


def _questions(dataset: str) -> Path:
    return DATA / f"questions/{dataset}/{dataset}.parquet"


def month_of(dataset: str) -> str | None:
    """The month of a question set's page views, or the first and the last one; None if it does not say it."""
    if "month" not in parquet.schema_of(_questions(dataset)).names:
        return None
    column = parquet.read_parquet(_questions(dataset), ["month"])["month"]
    months = sorted(filter(None, column.unique().to_pylist()))
    return " to ".join(dict.fromkeys(months[:1] + months[-1:])) or None


def tune_thresholds(chosen: SimpleNamespace) -> stage.Metrics:
    """Tune thresholds between all answers of a run; write the tables, the rules and the metrics."""
    settings, relations, rules, logged, tuned = chosen.thresholds, [], {}, {}, {}
    metrics: dict = {dataset: {} for dataset in chosen.parts.answered}
    for dataset in metrics:
        for sentence in answer_files.left_out(dataset, chosen.lms, chosen.retrievers, split=settings.imported):
            print(sentence)
    for (dataset, choice), pairs in read_all(chosen).items():
        figures, known = metrics[dataset].setdefault(choice.lm, {}), pairs.known()
        figures |= {"questions": len(known.signal), "excluded_without_popularity": known.excluded}
        if not known.usable(settings.min_questions):
            continue
        lm, method = choice.lm, choice.name
        found = evaluate_thresholds(pairs, settings, chosen.seed, chosen.report.bootstrap)
        relations += [{"dataset": dataset, "lm": lm, "method": method} | row for row in found.relations]
        answers = f"{lm}/{choice.popular}", f"{lm}/{choice.tail}"
        file = rule.of_tuned(found, *answers, settings.search, month_of(dataset))
        rules.setdefault(dataset, {}).setdefault(lm, {})[method] = rule.as_json(file)
        figures[method], tuned[dataset, lm, method] = found.figures, (known, found)
        logged |= {
            f"{dataset}.{lm}.{method}.{search}.{name}": found.figures[search][name]["mean_over_splits"]
            for search in SEARCHES
            for name in (*POLICIES, "gain")
        }
    tables = {"thresholds": pa.Table.from_pylist(relations, THRESHOLDS)}
    for study in all_studies.studies_offering("of_rules"):
        rows, figures_of_study = study.of_rules(AllRules(tuned, chosen, DATA))
        tables |= {name: pa.Table.from_pylist(rows[name], schema) for name, schema in study.RULE_TABLES.items()}
        for (dataset, lm), figures in figures_of_study.items():
            metrics[dataset].setdefault(lm, {}).update(figures)
    with shards.atomic(OUT) as folder:
        folder.mkdir()
        for name, table in tables.items():
            parquet.write_parquet(table, folder / f"{name}.parquet")
        shards.write_json(folder / "thresholds.json", {"rules": rules})
    shards.write_json(DATA / "metrics/adaptive.json", metrics)
    return logged


def main() -> None:
    stage.run("tune_thresholds", SECTIONS, tune_thresholds, out=str(OUT))


if __name__ == "__main__":
    main()
