"""What the report's section on adaptive retrieval says and shows: policies, thresholds, doubt (PopQA, section 6)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines import methods as names
from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.rule import THRESHOLDS, VIEWS
from pipelines.adaptive.searches import SEARCHES
from pipelines.intervals import Interval
from pipelines.report.entries import Drawn, Rows, measured, spread
from pipelines.report.figures import ranges
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, label, named

POLICIES = ("never", "always", "adaptive", "oracle")
SIGNALS = ("popularity", "uncertainty")
CUTS = ("threshold", "threshold_low", "threshold_high")
ORACLE = "The oracle knows which of the two answers is right. Thin lines are adaptive's 95 % intervals over subjects."
DRAWN = ("bm25", "dense", "lsr")  # kinds of methods in the figures of thresholds; the tables have all


def of_search(*searches: str) -> Rows:
    """The figures of metrics/adaptive.json for these searches, or "uncertainty", the main model first.

    The methods with thresholds come before all others, such as thresholds.pairs.
    """

    def rows(inputs: Inputs) -> list[dict[str, Any]]:
        by_set = inputs.metrics.get("adaptive", {}) if inputs.parts.rules else {}
        return [
            {"dataset": dataset, "lm": lm, "method": method, "search": search} | measured(found[method][search])
            for dataset in inputs.parts.answered
            for lm, found in sorted(
                by_set.get(dataset, {}).items(), key=lambda item: ([*inputs.models, item[0]].index(item[0]), item[0])
            )
            for method in names.ordered(m for m, of in found.items() if isinstance(of, dict) and SEARCHES[0] in of)
            for search in searches
            if search in found[method]
        ]

    return rows


all_searches = of_search(*SEARCHES)


def in_use(inputs: Inputs) -> list[dict[str, Any]]:
    return of_search(inputs.chosen.thresholds.search)(inputs)


def _of_main(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of each question set's first language model, the main one."""
    first = {row["dataset"]: row["lm"] for row in reversed(rows)}
    return [row for row in rows if row["lm"] == first[row["dataset"]]]


def policies(inputs: Inputs) -> list[Mapping[str, Any]]:
    """A mark for each policy, of the main language model and the imported ones; the best by adaptive come first."""
    rows = [row for row in in_use(inputs) if row["lm"] not in inputs.models[1:]]
    main = {row["lm"] for row in _of_main(rows)}
    named_by = [row | {"of": label(row["method"]) + f", {row['lm']}" * (row["lm"] not in main)} for row in rows]
    named_by.sort(key=lambda row: (inputs.parts.answered.index(row["dataset"]), -row["adaptive"].value))
    return spread(named_by, {policy: policy for policy in POLICIES})


def thresholds(inputs: Inputs) -> list[Mapping[str, Any]]:
    search = inputs.chosen.thresholds.search
    rows = [row for row in inputs.tables["thresholds"] if row["search"] == search]
    return [row | {"own_threshold": not row["pooled"]} for row in rows]


def drawn_thresholds(inputs: Inputs) -> list[Figure]:
    rows = _of_main(thresholds(inputs))
    kept = [row for row in rows if names.split(row["method"])[0] in DRAWN] or rows
    return draw_thresholds(kept, VIEWS, {relation: named(relation) for relation in {row["relation"] for row in kept}})


def draw_thresholds(rows: Sequence[Mapping], signal: str, relations: Mapping[str, str], each: str = "dataset") -> list:
    """A figure of the thresholds of thresholds.parquet's rows, one for each `each`; `relations` are their names."""
    known = [row for row in rows if None not in [row[key] for key in CUTS]]
    cuts = [row | {"cut": Interval(*(row[key] for key in CUTS)), "name": relations[row["relation"]]} for row in known]
    return Drawn(
        ranges,
        "thresholds",
        sorted(cuts, key=lambda row: row["relation"]),
        "name",
        "cut",
        "thresholds fitted on all questions. Bars span the thresholds that are not clearly worse.",
        {"x": f"threshold, {signal} (left edge: never retrieve, right edge: always)", "log_x": True},
        series="method",
        each=each,
    ).blocks()


def cut(value: float) -> float | str:
    """A threshold as a cell: never and always in words."""
    return "never" if value == 0 else "always" if value == math.inf else value


def by_what_decides(inputs: Inputs) -> list[dict[str, Any]]:
    """The figures by what decides; the accuracy by popularity has a name that no other column has."""
    rows = of_search("uncertainty")(inputs)
    return [row | {f"accuracy_{signal}": row[signal] for signal in SIGNALS} for row in rows]


def retrieves_by_size(inputs: Inputs) -> list[Mapping[str, Any]]:
    """How much language models retrieve by their size, by methods that two of known size have."""
    rows = [row | {"size": inputs.sizes.get(row["lm"])} for row in in_use(inputs) if inputs.sizes.get(row["lm"])]
    times = Counter((row["dataset"], row["method"]) for row in rows)
    return sorted((r for r in rows if times[r["dataset"], r["method"]] > 1), key=lambda row: row["size"])


def policies_by_set(inputs: Inputs) -> list[dict[str, Any]]:
    """Of each question set, the first model's questions of unknown popularity, and where thresholds are not in use."""
    rows = in_use(inputs)
    return [
        {"dataset": dataset, "excluded": inputs.metrics["adaptive"][dataset][lm]["excluded_without_popularity"]}
        | {"lost": [row for row in rows if row["dataset"] == dataset and row["policy"] != THRESHOLDS]}
        for dataset, lm in {row["dataset"]: row["lm"] for row in reversed(rows)}.items()
    ]


def too_few(dataset: str, found: dict, least: int) -> str:
    """Why a question set has no thresholds; `found` are a language model's figures in metrics/adaptive.json."""
    if "questions" not in found:
        return f"No two kinds of answers to the questions of {label(dataset)} are there to choose from."
    return (
        f"There are no thresholds: {found['questions']:,} questions of {label(dataset)} were answered and have a "
        f"known popularity, but no relation has {least:,} of them (thresholds.min_questions). If one relation has, "
        "those with fewer use the pooled threshold. Set answer.max_questions higher."
    )


def without_thresholds(inputs: Inputs) -> str:
    there = {row["dataset"] for row in in_use(inputs)}
    lacking = [dataset for dataset in inputs.parts.answered if dataset not in there]
    found = {of: next(iter(inputs.metrics["adaptive"].get(of, {}).values()), {}) for of in lacking}
    return " ".join(too_few(of, of_lm, inputs.chosen.thresholds.min_questions) for of, of_lm in found.items())


def main_policies(inputs: Inputs) -> list[Mapping[str, Any]]:
    """The main language model's figures by method on the first question set: never, always and adaptive retrieval."""
    rows = [row for row in _of_main(in_use(inputs)) if BELOW not in row["method"]]
    return [row for row in rows if row["dataset"] == rows[0]["dataset"]]


def best_policy(inputs: Inputs) -> Mapping[str, Any] | None:
    """Those of the method with the highest adaptive accuracy."""
    return max(main_policies(inputs), key=lambda row: row["adaptive"].value, default=None)
