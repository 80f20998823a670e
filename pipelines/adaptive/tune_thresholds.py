"""Stage tune_thresholds: when retrieving is worth it, a popularity threshold per relation (PopQA,
section 6).

It writes thresholds.parquet, and the rules in use as thresholds.json: dataset -> language model ->
method -> the rule as `rule.as_json` has it.
docs/columns.md has the columns.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.adaptive import held_out, rule
from pipelines.adaptive.pairs import Pairs, choices, read_pairs
from pipelines.adaptive.refits import Column, Resamples, refitted_means
from pipelines.adaptive.searches import SEARCHES
from pipelines.adaptive.tuning import Tuned, tune_pairs
from pipelines.answering import answer_files
from pipelines.params.param_types import LMName, RetrieverName, Section
from pipelines.params.params import Parts, Report, Thresholds
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.tables.answers import THRESHOLDS
from pipelines.work import stage

DATA = Path("data")
OUT = DATA / "adaptive/popularity"
KEYS = ("dataset", "lm", "method", "search", "relation")
# the figures of a search that MLflow shows
LOGGED = ("adaptive", "always", "never", "oracle", "gain")


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    seed: int
    lms: list[LMName]
    retrievers: list[RetrieverName]
    thresholds: Thresholds
    report: Report
    parts: Parts


def tune_thresholds(settings: Settings) -> stage.Metrics:
    """Tune thresholds between all answers of a run; write the table, the rules and the metrics.

    Raises LongtailError as `choices` and `read_pairs` do.
    """
    files = {}
    for dataset in settings.parts.answered:
        files[dataset] = answer_files.sets(dataset, settings.lms, settings.retrievers)

    rows = []
    rules: dict = {}
    logged: dict[str, float | list[float]] = {}
    metrics: dict = {dataset: {} for dataset in files}
    choices_of_sets = choices(files, settings.lms, settings.thresholds.pairs)
    for dataset, choices_of_set in choices_of_sets.items():
        for sentence in answer_files.left_out(dataset, settings.lms, settings.retrievers):
            print(sentence)
        questions = DATA / f"questions/{dataset}/{dataset}.parquet"
        for choice in choices_of_set:
            lm = choice.lm
            name = choice.name
            by_method = files[dataset][lm]
            above = by_method[choice.above.name]
            below = by_method[choice.below.name]
            pairs = read_pairs(questions, above, below)
            figures = metrics[dataset].setdefault(lm, {})
            figures["questions"] = len(pairs.signal)
            figures["excluded_without_popularity"] = pairs.excluded
            if not pairs.usable(settings.thresholds.min_questions):
                continue

            result = evaluate_thresholds(
                pairs, settings.thresholds, settings.seed, settings.report.bootstrap
            )
            key = {"dataset": dataset, "lm": lm, "method": name}
            rows += [key | row for row in result.relations]
            rule_in_use = rule.of_tuned(
                result,
                above=f"{lm}/{choice.above.name}",
                below=f"{lm}/{choice.below.name}",
                search=settings.thresholds.search,
                month=_months(questions),
            )
            rules_of_lm = rules.setdefault(dataset, {}).setdefault(lm, {})
            rules_of_lm[name] = rule.as_json(rule_in_use)
            figures[name] = result.figures
            logged |= _logged_figures(f"{dataset}.{lm}.{name}", result.figures)

    table = pa.Table.from_pylist(rows, THRESHOLDS.schema)
    with atomic(OUT) as folder:
        folder.mkdir()
        parquet.write_parquet(table, folder / "thresholds.parquet")
        write_json(folder / "thresholds.json", {"rules": rules})
    write_json(DATA / "metrics/adaptive.json", metrics)
    return logged


def evaluate_thresholds(pairs: Pairs, settings: Thresholds, seed: int, resamples: int) -> Tuned:
    """Every search judged on the same splits, with the figures of the model's doubt.

    Raises LongtailError if the splits hold no question out.
    """
    tuned = tune_pairs(pairs, settings, seed, resamples)
    doubt = uncertainty(pairs, tuned.train, tuned.drawn, settings)
    return replace(tuned, figures=tuned.figures | doubt)


def uncertainty(pairs: Pairs, train: np.ndarray, drawn: Resamples, settings: Thresholds) -> dict:
    """{"uncertainty": figures}: held-out accuracy if the model's own doubt decides, or popularity
    (REPLUG, its limits).

    The model's doubt is the closed-book answer's probability. Thresholds are fitted by the search
    in use. The result is empty if too few questions have such a probability. `difference` is
    uncertainty - popularity. `drawn` are resamples of `pairs`.
    """
    known = np.isfinite(pairs.confidence)
    pairs = pairs.take(known)
    train = train[known]
    drawn = drawn.take(known)
    if not pairs.usable(settings.min_questions):
        return {}

    signals = {"popularity": pairs.signal, "uncertainty": pairs.confidence}
    policies = {}
    columns: dict[str, Column] = {}
    for name, signal in signals.items():
        order = np.lexsort((signal, pairs.relations))
        pairs_by_signal = replace(pairs, signal=signal).take(order)
        train_by_signal = train[order]
        drawn_by_signal = drawn.take(order)

        fitted = held_out.fit_all(
            pairs_by_signal, train_by_signal, drawn_by_signal, settings.search, settings
        )
        places = np.argsort(order)  # of `pairs` in the order of the signal
        policies[name] = fitted.policy.take(places)
        columns |= held_out.policy_columns(pairs, name)
    difference = {"uncertainty": pairs.gains, "popularity": -pairs.gains}
    columns["difference"] = Column(0.0, difference, apart=True)

    means = refitted_means(columns, policies, drawn)
    means |= held_out.fixed_shares(pairs, policies["popularity"].retrieved)
    figures: dict = {"questions": len(train)}
    for name, mean in means.items():
        figures[name] = mean.as_json()
    return {"uncertainty": figures}


def _logged_figures(choice: str, figures: Mapping[str, dict]) -> dict[str, float]:
    """The known figures of a choice that MLflow shows, as popqa.tiny.dense.shrunk.adaptive.

    `figures` are those of metrics/adaptive.json.
    """
    logged = {}
    for search in SEARCHES:
        for name in LOGGED:
            value = figures[search][name]["value"]
            if value is not None:
                logged[f"{choice}.{search}.{name}"] = value
    return logged


def _months(questions: Path) -> str | None:
    """The month of a question set's page views, or the first and the last one; None if it does not
    say it.
    """
    if "month" not in parquet.schema_of(questions).names:
        return None
    column = parquet.read_parquet(questions, ["month"])["month"]
    months = sorted(filter(None, column.unique().to_pylist()))
    if not months:
        return None
    first = months[0]
    last = months[-1]
    return first if first == last else f"{first} to {last}"


def main() -> None:
    stage.run("tune_thresholds", Settings, tune_thresholds, out=str(OUT))


if __name__ == "__main__":
    main()
