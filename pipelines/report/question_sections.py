"""What the report's sections on questions say and show: popularity, accuracy, retrieval, thresholds (PopQA, 3 to 6)."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from pipelines import methods as names
from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.rule import THRESHOLDS, VIEWS
from pipelines.adaptive.searches import SEARCHES
from pipelines.evaluation import popularity_bins
from pipelines.evaluation.popularity_bins import FEWEST
from pipelines.intervals import Interval
from pipelines.pages.figures import ranges
from pipelines.pages.section import RULES, Figure
from pipelines.pages.values import label, named
from pipelines.report.entries import RULED, Drawn, Row, Rows, measured, spread
from pipelines.report.inputs import Inputs

WILSON = "Bands are 95 % intervals (Wilson's, clustered by subject)."
ENOUGH = 3 * FEWEST  # questions with a known popularity; with fewer, nothing is shown by popularity
POLICIES = ("never", "always", "adaptive", "oracle")
SIGNALS = ("popularity", "uncertainty")
CUTS = ("threshold", "threshold_low", "threshold_high")
ORACLE = "The oracle knows which of the two answers is right. Thin lines are adaptive's 95 % intervals over subjects."
DRAWN = (
    "bm25",
    "dense",
    "lsr",
)  # kinds of methods in the figures of thresholds; the tables have all


# popularity and accuracy


def enough_known(inputs: Inputs, row: Row) -> bool:
    """Whether a question set has enough questions of known popularity."""
    return inputs.rows("accuracy", dataset=row["dataset"])[0]["popularity_known"] >= ENOUGH


def popularity_curves(inputs: Inputs) -> list[Row]:
    """By question set, the share of questions with fewer views than the bounds of the bins (Figure 3, added up).

    All curves go on to the last bound of all question sets.
    """
    bins, curves = inputs.tables["popularity"], []
    for dataset, known in inputs.popularity.items():
        counts: dict[float, int] = {}  # bound -> questions of the bin below it
        for row in (row for row in bins if row["dataset"] == dataset):
            counts.setdefault(round(row["least"], 3), 0)
            counts[round(row["below"], 3)] = row["questions"]
        counts.setdefault(round(max(row["below"] for row in bins), 3), 0)
        for bound, fewer in zip(counts, accumulate(counts.values()), strict=True):
            curves.append({"dataset": dataset, "below": bound, "share": fewer / known["known"]})
    return curves


def merged_bins(rows: Sequence[Row]) -> str:
    """What the bins of a figure by popularity are, for its caption."""
    least = popularity_bins.least_of(
        sum(row["questions"] for row in rows if row["series"] == rows[0]["series"])
    )
    return f"Deciles with fewer than {least} questions are merged with their neighbours; REPLUG is in the table alone."


def first_methods(inputs: Inputs) -> list[Row]:
    """The row of accuracy of each question set's first method."""
    return [inputs.rows("accuracy", dataset=dataset)[0] for dataset in inputs.asked]


def beside_guesses(inputs: Inputs) -> list[Row]:
    """The main language model's accuracy by relation from memory, and that of the relation's usual answer."""
    rows = [
        row for row in inputs.tables["guessable"] if row["lm"] == inputs.main and row["relation"]
    ]
    return [
        row
        | {
            "of": named(row["relation"]),
            "series": series,
            "substring": row[one],
            "word": row[f"{one}_word"],
        }
        for row in rows
        for one, series in (("closed_book", "closed_book"), ("majority", "usual answer"))
    ]


def how(method: str) -> str:
    """How a method answers, as a sentence begins with it."""
    return "From memory" if method == "closed_book" else f"With text from {label(method)}"


def lead_method(inputs: Inputs) -> str:
    """The method of the claim on retrieving: that with the highest adaptive accuracy, or else the first method."""
    methods = [row["method"] for row in inputs.rows("retrieval_effect", dataset=inputs.asked[0])]
    best = best_policy(inputs)
    return best["method"] if best and best["method"] in methods else next(iter(methods), "")


def effect_gains(inputs: Inputs, rule: str) -> dict[str, Interval]:
    """What a passage of this method changes on each group of the first question set."""
    rows = inputs.rows("retrieval_effect", dataset=inputs.asked[0], method=lead_method(inputs))
    return {row["group"]: row[RULED["gain"][[*RULES].index(rule)]] for row in rows}


def examples(inputs: Inputs) -> list[Row]:
    """Questions on which only one of two answers is right."""
    rows = [row for dataset in inputs.asked for row in inputs.rows("examples", dataset=dataset)]
    return [row | {f"example_{name}": value for name, value in row.items()} for row in rows]


def models_by_size(inputs: Inputs) -> list[Row]:
    """Accuracy of every model on its own questions, smaller models first, those of unknown size last."""
    judged, sizes, order = (
        {row["lm"]: row["judged"] for row in inputs.tables["models"]},
        inputs.sizes,
        [*inputs.sizes],
    )
    rows = [
        row | {"parameters": sizes[row["lm"]], "judged": judged[row["lm"]]}
        for row in inputs.tables["accuracy"]
    ]
    several = {
        of for of in inputs.asked if len({row["lm"] for row in rows if row["dataset"] == of}) > 1
    }
    rows = [row for row in rows if row["dataset"] in several]
    return sorted(rows, key=lambda row: (row["parameters"] or math.inf, order.index(row["lm"])))


def common_closed_book(inputs: Inputs, rule: str) -> list[Row]:
    """Closed-book accuracy of each model on the questions that all of them answered, the best one first."""
    rows = [row for row in inputs.tables["common_accuracy"] if row["method"] == "closed_book"]
    rows = [
        row
        for row in rows
        if row["dataset"] == rows[0]["dataset"] and math.isfinite(row[rule].value)
    ]
    return sorted(rows, key=lambda row: -row[rule].value)


# adaptive retrieval


def of_search(*searches: str) -> Rows:
    """The figures of metrics/adaptive.json for these searches, or "uncertainty", the main model first."""

    def rows(inputs: Inputs) -> list[dict[str, Any]]:
        by_set = inputs.metrics.get("adaptive", {}) if inputs.parts.rules else {}
        order = {lm: place for place, lm in enumerate(inputs.models)}
        return [
            {"dataset": dataset, "lm": lm, "method": method, "search": search}
            | measured(found[method][search])
            for dataset in inputs.parts.answered
            for lm in sorted(
                by_set.get(dataset, {}), key=lambda lm: (order.get(lm, len(order)), lm)
            )
            for found in [by_set[dataset][lm]]
            for method in names.ordered(
                m for m, of in found.items() if isinstance(of, dict) and SEARCHES[0] in of
            )
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
    named_by = [
        row | {"of": label(row["method"]) + f", {row['lm']}" * (row["lm"] not in main)}
        for row in rows
    ]
    named_by.sort(
        key=lambda row: (inputs.parts.answered.index(row["dataset"]), -row["adaptive"].value)
    )
    return spread(named_by, {policy: policy for policy in POLICIES})


def thresholds(inputs: Inputs) -> list[Mapping[str, Any]]:
    rows = [
        row
        for row in inputs.tables["thresholds"]
        if row["search"] == inputs.chosen.thresholds.search
    ]
    return [row | {"own_threshold": not row["pooled"]} for row in rows]


def drawn_thresholds(inputs: Inputs) -> list[Figure]:
    rows = _of_main(thresholds(inputs))
    kept = [row for row in rows if names.split(row["method"])[0] in DRAWN] or rows
    return draw_thresholds(
        kept, VIEWS, {relation: named(relation) for relation in {row["relation"] for row in kept}}
    )


def draw_thresholds(
    rows: Sequence[Mapping], signal: str, relations: Mapping[str, str], each: str = "dataset"
) -> list:
    """A figure of the thresholds of thresholds.parquet's rows, one for each `each`; `relations` are their names."""
    known = [row for row in rows if None not in [row[key] for key in CUTS]]
    cuts = [
        row | {"cut": Interval(*(row[key] for key in CUTS)), "name": relations[row["relation"]]}
        for row in known
    ]
    cuts.sort(key=lambda row: row["relation"])
    caption = (
        "thresholds fitted on all questions. Bars span the thresholds that are not clearly worse."
    )
    axes = {
        "x": f"threshold, {signal} (left edge: never retrieve, right edge: always)",
        "log_x": True,
    }
    return Drawn(ranges, "thresholds", cuts, "name", "cut", caption, axes, "method", each).blocks()


def cut(value: float) -> float | str:
    """A threshold as a cell: never and always in words."""
    return "never" if value == 0 else "always" if value == math.inf else value


def by_what_decides(inputs: Inputs) -> list[dict[str, Any]]:
    rows = of_search("uncertainty")(inputs)
    return [row | {f"accuracy_{signal}": row[signal] for signal in SIGNALS} for row in rows]


def retrieves_by_size(inputs: Inputs) -> list[Mapping[str, Any]]:
    """How much language models of known size retrieve, the smaller ones first."""
    rows = [row | {"size": inputs.sizes.get(row["lm"])} for row in in_use(inputs)]
    return sorted((row for row in rows if row["size"]), key=lambda row: row["size"])


def policies_by_set(inputs: Inputs) -> list[dict[str, Any]]:
    """Of each question set, the first model's questions of unknown popularity, and where thresholds are not in use."""
    rows, found = in_use(inputs), inputs.metrics.get("adaptive", {})
    return [
        {"dataset": dataset, "excluded": found[dataset][lm]["excluded_without_popularity"]}
        | {
            "lost": [
                row for row in rows if row["dataset"] == dataset and row["policy"] != THRESHOLDS
            ]
        }
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
    return " ".join(
        too_few(of, of_lm, inputs.chosen.thresholds.min_questions) for of, of_lm in found.items()
    )


def main_policies(inputs: Inputs) -> list[Mapping[str, Any]]:
    """The main language model's figures by method on the first question set: never, always and adaptive retrieval."""
    rows = [row for row in _of_main(in_use(inputs)) if BELOW not in row["method"]]
    return [row for row in rows if row["dataset"] == rows[0]["dataset"]]


def best_policy(inputs: Inputs) -> Mapping[str, Any] | None:
    """Those of the method with the highest adaptive accuracy."""
    return max(main_policies(inputs), key=lambda row: row["adaptive"].value, default=None)
