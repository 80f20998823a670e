"""Stage tune_thresholds: when retrieving is worth it, a popularity threshold per relation (PopQA, section 6).

It writes thresholds.parquet, the tables of studies (their RULE_TABLES), and the rules in use as thresholds.json:
dataset -> language model -> method -> the rule as `rule.as_json` has it. data/README.md has the columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import numpy as np
import pyarrow as pa

from pipelines.adaptive import held_out, rule
from pipelines.adaptive.held_out import POLICIES
from pipelines.adaptive.pairs import Pairs, choices, read_pairs
from pipelines.adaptive.refits import Column, Resamples, refitted_means
from pipelines.adaptive.searches import SEARCHES
from pipelines.adaptive.tuning import Tuned, tune_pairs
from pipelines.answering import answer_files
from pipelines.params import params
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

DATA = Path("data")
OUT = DATA / "adaptive/popularity"
SECTIONS = ("seed", "lms", "retrievers", "thresholds", "report", "parts")
_NAMES = ("threshold", "closed_book", "augmented", "adaptive", "retrieved")
THRESHOLDS = pa.schema(
    dict.fromkeys(("dataset", "lm", "method", "search", "relation"), pa.string())
    | {
        "questions": pa.int64(),
        "pooled": pa.bool_(),
        "popularity_least": pa.float64(),
        "popularity_most": pa.float64(),
    }
    | {"policy": pa.string()}
    | {"deployed": pa.float64()}
    | {name + end: pa.float64() for name in _NAMES for end in ("", "_low", "_high")}
)


def evaluate_thresholds(
    pairs: Pairs, chosen: params.Thresholds, seed: int, resamples: int
) -> Tuned:
    """Every search judged on the same splits, with the figures of the model's doubt.

    Raises LongtailError if the splits hold no question out.
    """
    tuned = tune_pairs(pairs, chosen, seed, resamples)
    return replace(
        tuned, figures=tuned.figures | uncertainty(pairs, tuned.train, tuned.drawn, chosen)
    )


def uncertainty(
    pairs: Pairs, train: np.ndarray, drawn: Resamples, chosen: params.Thresholds
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
    for name, signal in {"popularity": pairs.signal, "uncertainty": pairs.confidence}.items():
        order = np.lexsort((signal, pairs.relations))
        ordered, sides, again = (
            replace(pairs, signal=signal).take(order),
            train[order],
            drawn.take(order),
        )
        fitted = held_out.fit_all(ordered, sides, again, chosen.search, chosen)
        judged = held_out.judge(ordered, sides, fitted.splits)
        policies[name] = held_out.policy(ordered, judged.retrieved, again, fitted).take(
            np.argsort(order)
        )
        columns |= held_out.policy_columns(pairs, name)
    columns["difference"] = Column(
        0.0, {"uncertainty": pairs.gains, "popularity": -pairs.gains}, apart=True
    )
    figures = refitted_means(columns, policies, drawn)
    figures |= held_out.fixed_shares(pairs, policies["popularity"].retrieved)
    return {
        "uncertainty": {"questions": len(train)}
        | {name: mean.as_json() for name, mean in figures.items()}
    }


class RuleStudy(Protocol):
    """A module of pipelines/studies that makes tables from all thresholds."""

    RULE_TABLES: dict[str, pa.Schema]

    def rows_of_rules(
        self, tuned: Mapping[tuple[str, str, str], tuple[Pairs, Tuned]], chosen: SimpleNamespace
    ) -> dict[str, list[dict]]:
        """The rows of each of RULE_TABLES; `tuned` has (dataset, language model, method) as keys."""


def tune_thresholds(chosen: SimpleNamespace, studies: Sequence[RuleStudy] = ()) -> stage.Metrics:
    """Tune thresholds between all answers of a run; write the tables, the rules and the metrics.

    Raises LongtailError as `choices` and `read_pairs` do.
    """
    settings, relations, rules, logged, tuned = chosen.thresholds, [], {}, {}, {}
    of_run = chosen.lms, chosen.retrievers
    files = {dataset: answer_files.sets(dataset, *of_run) for dataset in chosen.parts.answered}
    metrics: dict = {dataset: {} for dataset in files}
    for dataset, of_set in choices(files, chosen.lms, settings.pairs).items():
        for sentence in answer_files.left_out(dataset, *of_run):
            print(sentence)
        questions = DATA / f"questions/{dataset}/{dataset}.parquet"
        for choice in of_set:
            (lm, popular, tail), method = choice, choice.name
            pairs = read_pairs(questions, files[dataset][lm][popular], files[dataset][lm][tail])
            figures = metrics[dataset].setdefault(lm, {})
            figures |= {
                "questions": len(pairs.signal),
                "excluded_without_popularity": pairs.excluded,
            }
            if not pairs.usable(settings.min_questions):
                continue
            found = evaluate_thresholds(pairs, settings, chosen.seed, chosen.report.bootstrap)
            relations += [
                {"dataset": dataset, "lm": lm, "method": method} | row for row in found.relations
            ]
            in_use = rule.of_tuned(
                found, f"{lm}/{popular}", f"{lm}/{tail}", settings.search, _months(questions)
            )
            rules.setdefault(dataset, {}).setdefault(lm, {})[method] = rule.as_json(in_use)
            figures[method], tuned[dataset, lm, method] = found.figures, (pairs, found)
            logged |= {
                f"{dataset}.{lm}.{method}.{search}.{name}": found.figures[search][name][
                    "mean_over_splits"
                ]
                for search in SEARCHES
                for name in (*POLICIES, "gain")
            }
    tables = {"thresholds": pa.Table.from_pylist(relations, THRESHOLDS)}
    for study in studies:
        rows = study.rows_of_rules(tuned, chosen)
        tables |= {
            name: pa.Table.from_pylist(rows[name], schema)
            for name, schema in study.RULE_TABLES.items()
        }
    with atomic(OUT) as folder:
        folder.mkdir()
        for name, table in tables.items():
            parquet.write_parquet(table, folder / f"{name}.parquet")
        write_json(folder / "thresholds.json", {"rules": rules})
    write_json(DATA / "metrics/adaptive.json", metrics)
    return logged


def _months(questions: Path) -> str | None:
    """The month of a question set's page views, or the first and the last one; None if it does not say it."""
    if "month" not in parquet.schema_of(questions).names:
        return None
    months = sorted(
        filter(None, parquet.read_parquet(questions, ["month"])["month"].unique().to_pylist())
    )
    return " to ".join(dict.fromkeys(months[:1] + months[-1:])) or None


def main(studies: Sequence[RuleStudy]) -> None:
    """Run the stage."""
    stage.run(
        "tune_thresholds",
        SECTIONS,
        lambda params: tune_thresholds(params, studies),
        out=str(OUT),
    )
