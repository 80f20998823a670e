"""The report's section on adaptive retrieval: policies, thresholds and doubt (PopQA, section 6)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from pipelines import methods as names
from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.rule import THRESHOLDS, VIEWS
from pipelines.adaptive.searches import SEARCHES
from pipelines.report import entries, figures
from pipelines.report.entries import Drawn, Entry, Rows, Shown, measured, spread
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, label, named, points, show

POLICIES = ("never", "always", "adaptive", "oracle")
SIGNALS = ("popularity", "uncertainty")
CUTS = ("threshold", "threshold_low", "threshold_high")
DRAWN = ("bm25", "dense", "lsr")  # kinds of methods in the figures of thresholds; the tables have all


def of_search(*searches: str) -> Rows:
    """The figures of metrics/adaptive.json for these searches, or "uncertainty" or "gate", the main model first."""

    def rows(inputs: Inputs) -> list[dict[str, Any]]:
        found = []
        for dataset in inputs.parts.answered if inputs.parts.rules else ():
            by_lm = inputs.metrics.get("adaptive", {}).get(dataset, {})
            order = [lm for lm in inputs.models if lm in by_lm] + sorted(set(by_lm) - set(inputs.models))
            for lm in order:
                found += [
                    {"dataset": dataset, "lm": lm, "method": method, "search": search}
                    | _by_signal(measured(by_lm[lm][method][search]), search)
                    for method in _methods(by_lm[lm])
                    for search in searches
                    if search in by_lm[lm][method]
                ]
        return found

    return rows


def _by_signal(row: dict[str, Any], search: str) -> dict[str, Any]:
    """The row with the accuracies of what decides, such as popularity, under names of their own."""
    signals = {"uncertainty": SIGNALS, "gate": ("popularity", "gate")}.get(search, ())
    return row | {f"accuracy_{signal}": row[signal] for signal in signals}


def trusted(inputs: Inputs) -> list[dict[str, Any]]:
    """The figures of each language model's confidence."""
    return [
        {"dataset": dataset, "lm": lm} | measured(found["confidence"])
        for dataset, by_lm in inputs.metrics.get("adaptive", {}).items()
        for lm, found in by_lm.items()
        if "confidence" in found and _methods(found)
    ]


def _methods(found: dict) -> list[str]:
    """The methods with thresholds, then all others, such as thresholds.pairs; `found` are a language model's."""
    return names.ordered(name for name, value in found.items() if isinstance(value, dict) and SEARCHES[0] in value)


def in_use(inputs: Inputs) -> list[dict[str, Any]]:
    return of_search(inputs.chosen.thresholds.search)(inputs)


def _of_main(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of each question set's first language model, the main one."""
    first = {row["dataset"]: row["lm"] for row in reversed(rows)}
    return [row for row in rows if row["lm"] == first[row["dataset"]]]


def _policies(inputs: Inputs) -> list[Mapping[str, Any]]:
    """A bar for each policy, of the main language model and the imported ones."""
    rows = [row for row in in_use(inputs) if row["lm"] not in inputs.models[1:]]
    main = {row["lm"] for row in _of_main(rows)}
    named_by = [row | {"of": label(row["method"]) + f", {row['lm']}" * (row["lm"] not in main)} for row in rows]
    return spread(named_by, {policy: policy for policy in POLICIES})


def _thresholds(inputs: Inputs) -> list[Mapping[str, Any]]:
    search = inputs.chosen.thresholds.search
    rows = [row for row in inputs.tables["thresholds"] if row["search"] == search]
    return [row | {"own_threshold": not row["pooled"]} for row in rows]


def _drawn_thresholds(inputs: Inputs) -> list[Figure]:
    drawn, rows = [], _of_main(_thresholds(inputs))
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        of_set = [row for row in rows if row["dataset"] == dataset]
        methods = dict.fromkeys(row["method"] for row in of_set)
        kept = [method for method in methods if names.split(method)[0] in DRAWN] or methods
        fitted = {m: {row["relation"]: row for row in of_set if row["method"] == m} for m in kept}
        relations = {relation: named(relation) for relation in sorted({row["relation"] for row in of_set})}
        of = f"{label(dataset)}, {of_set[0]['lm']}"
        drawn.append(draw_thresholds(f"thresholds-{dataset}", fitted, relations, VIEWS, of))
    return drawn


def draw_thresholds(
    name: str, rows: Mapping[str, dict[str, dict]], relations: Mapping[str, str], signal: str, of: str
) -> Figure:
    """Thresholds fitted to all questions `of` a set; `rows` are method -> relation -> row, `relations` their names."""
    cuts = {
        m: [tuple(of_method[relation][key] for key in CUTS) for relation in relations] for m, of_method in rows.items()
    }
    values = [value for of_method in cuts.values() for point in of_method for value in point]
    finite = [value for value in values if 0 < value < math.inf] or [1.0]
    middle = {method: median(point[0] for point in of_method) for method, of_method in cuts.items()}
    return figures.ranges(
        name,
        [*relations.values()],
        cuts,
        (min(finite), max(finite)),
        x=f"threshold, {signal} (left edge: never retrieve, right edge: always)",
        caption=f"{of}: thresholds fitted on all questions. Bars span the middle 95 % of the thresholds over resampled "
        "subjects (a bootstrap).",
        alt=f"Thresholds of {len(relations)} relations, in {signal}. The median over relations is "
        f"{'; '.join(f'{label(m)}: {show(cut(value))}' for m, value in middle.items())}. The numbers are in the table "
        "below.",
    )


def cut(value: float) -> float | str:
    """A threshold as a cell: never and always in words."""
    return "never" if value == 0 else "always" if value == math.inf else value


def _signals(inputs: Inputs) -> list[Mapping[str, Any]]:
    """A bar for each way to decide, of the main language model."""
    rows = [row for row in of_search("uncertainty")(inputs) if row["lm"] == inputs.main]
    return spread(rows, {signal: signal for signal in ("never", "always", *SIGNALS, "oracle")})


def _by_size(inputs: Inputs) -> list[Mapping[str, Any]]:
    """How much language models retrieve by their size, by methods that two of known size have."""
    rows = [row | {"size": inputs.sizes.get(row["lm"])} for row in in_use(inputs) if inputs.sizes.get(row["lm"])]
    times = Counter((row["dataset"], row["method"]) for row in rows)
    return sorted((r for r in rows if times[r["dataset"], r["method"]] > 1), key=lambda row: row["size"])


def _notes(inputs: Inputs) -> Iterator[str]:
    """What is odd: pairs of answers, unknown popularity, thresholds that are not put to use, pooled ones."""
    rows, search = in_use(inputs), inputs.chosen.thresholds.search
    if any(BELOW in row["method"] for row in rows):
        yield (
            "A row named after two answers, such as dense below GenRead, has the first one below the threshold, in "
            "place of the augmented answer, and the second one from it on, in place of the closed-book answer."
        )
    for dataset, lm in {row["dataset"]: row["lm"] for row in reversed(rows)}.items():
        if excluded := inputs.metrics["adaptive"][dataset][lm]["excluded_without_popularity"]:
            yield (
                f"{excluded:,} questions of {label(dataset)} are of unknown popularity. They are left out here, and no "
                "threshold is fitted to them. `longtail ask` retrieves for such a question, and says why."
            )
        of_set = [row for row in rows if row["dataset"] == dataset]
        lost = [f"{r['lm']}, {label(r['method'])}: {r['verdict']}" for r in of_set if r["policy"] != THRESHOLDS]
        if lost:
            yield (
                f"On {label(dataset)} thresholds are not put to use where they lose accuracy to always or never "
                "retrieving, with the whole interval of the gain, or to never at all. `longtail ask` and a release "
                f"follow this verdict: {'; '.join(lost)}."
            )
        of_lm = [row for row in inputs.tables["thresholds"] if (row["dataset"], row["lm"]) == (dataset, lm)]
        of_method = [r for r in of_lm if (r["method"], r["search"]) == (of_lm[0]["method"], search)]
        if sharing := [named(row["relation"]) for row in of_method if row["pooled"]]:
            yield (
                f"{len(sharing):,} of the {len(of_method):,} relations {'has' if len(sharing) == 1 else 'have'} fewer "
                f"than {inputs.chosen.thresholds.min_questions:,} questions of {label(dataset)} "
                f"(thresholds.min_questions): {', '.join(sharing)}. The threshold there is pooled: it is fitted to the "
                f"{sum(row['questions'] for row in of_method):,} questions of all relations."
            )


def too_few(dataset: str, found: dict, least: int) -> str:
    """Why a question set has no thresholds; `found` are a language model's figures in metrics/adaptive.json."""
    if "questions" not in found:
        return f"No two kinds of answers to the questions of {label(dataset)} are there to choose from."
    return (
        f"There are no thresholds: {found['questions']:,} questions of {label(dataset)} were answered and have a "
        f"known popularity, but no relation has {least:,} of them (thresholds.min_questions). If one relation has, "
        "those with fewer use the pooled threshold. Set answer.max_questions higher."
    )


def _missing(inputs: Inputs) -> str:
    there = {row["dataset"] for row in in_use(inputs)}
    lacking = [dataset for dataset in inputs.parts.answered if dataset not in there]
    found = {of: next(iter(inputs.metrics["adaptive"].get(of, {}).values()), {}) for of in lacking}
    return " ".join(too_few(of, of_lm, inputs.chosen.thresholds.min_questions) for of, of_lm in found.items())


def _says(inputs: Inputs, rule: str) -> str:
    """What choosing by popularity is worth to the main language model with its retriever, tuned if it is."""
    rows = _of_main(in_use(inputs))
    by_method = {row["method"]: row for row in rows if row["dataset"] == rows[0]["dataset"]}
    method = next((name for name in ("lsr", "dense") if name in by_method), next(iter(by_method)))
    row = by_method[method]
    shares = {name: 100 * row[name].value for name in ("adaptive", "always", "never")}
    worth = {
        1: "beats both always and never retrieving",
        -1: "loses to the better of always and never retrieving",
        0: "is not clearly better or worse than the better of always and never retrieving",
    }
    return (
        f"On {label(row['dataset'])}, choosing by popularity when {row['lm']} reads what {label(method)} finds "
        f"{worth[row['gain'].sign]}: {shares['adaptive']:.1f} % right, against {shares['always']:.1f} % and "
        f"{shares['never']:.1f} % ({points(row['gain'])}).{of_best(method, by_method)}"
    )


def of_best(method: str, by_method: Mapping[str, Mapping[str, Any]]) -> str:
    """What choosing adds to the method that is right most often when always used, in a sentence; "" if it is `method`.

    Answers that stand in for closed-book ones (pairs) don't count.
    """
    always = {name: row["always"].value for name, row in by_method.items() if BELOW not in name}
    best = max(always, key=lambda name: (always[name], name == method), default=method)
    if best == method:
        return ""
    gain, share = by_method[best]["gain"], 100 * always[best]
    return f" With {label(best)}, the most often right if always used ({share:.1f} %), choosing adds {points(gain)}."


ORACLE = "The oracle knows which of the two answers is right."
TEXT = {"method": "retriever"}
ADAPTIVE = Entry(
    "adaptive",
    "Adaptive retrieval",
    [
        Drawn(
            entries.bars, "policies", _policies, "of", "accuracy",
            f"adaptive against always and never retrieving, by where the text comes from. {ORACLE}",
            {"y": "held-out accuracy, %"}, each="dataset",
        ),
        "Thresholds are fitted and judged by the substring rule. Below a relation's popularity threshold, the answer "
        "with retrieved text counts; from the threshold on, the closed-book answer. Thresholds are fitted on one part "
        "of the subjects and judged on the others, over many seeded splits.",
        lambda inputs: [*_notes(inputs)],
        Shown(
            "adaptive", of_search(*SEARCHES),
            ["dataset", "lm", "method", "search", "adaptive", "always", "never", "oracle", "gain", "policy",
             "adaptive_splits", "retrieved", "train_adaptive"],
            lambda inputs, rows: "Held-out accuracy in per cent, with intervals over subjects; the gain over the "
            "better of always and never in points; what is put to use; adaptive's mean and middle 95 % over splits; "
            "the share of questions that retrieve and the accuracy on training subjects in per cent. Intervals of "
            "adaptive, the gain and the share fit the thresholds again to resampled subjects. In simulations they "
            "cover 91 to 100 %, but the share's only 84 to 91 % with 260 questions. The search in use is "
            f"{inputs.chosen.thresholds.search}.",
            TEXT | {"gain": "gain", "policy": "use", "adaptive_splits": "over splits", "train_adaptive": "training"},
        ),
        _drawn_thresholds,
        Shown(
            "thresholds", _thresholds,
            ["relation", "dataset", "lm", "method", "questions", "own_threshold", *CUTS, "deployed", "popularity_least",
             "popularity_most", "closed_book", "augmented", "adaptive", "retrieved"],
            "Thresholds in monthly page views (0: never retrieve, ∞: always), with the middle 95 % over resampled "
            "subjects; the threshold in use by the verdict above; the least and the most popular subject tuned on, "
            "beyond which nothing is known; accuracies and the share that retrieves in per cent, adaptive's and the "
            "share held out. Relations with few questions share the threshold of all relations together. The middle "
            "95 % of a relation's thresholds held the best one in 77 to 83 % of the relations of 1,400 simulated "
            "questions, and in 58 % of those of 260, because a threshold jumps from one question to another.",
            TEXT | {"threshold_low": "from", "threshold_high": "to", "deployed": "in use",
                    "popularity_least": "least views", "popularity_most": "most views"},
        ),
        Drawn(
            entries.bars, "deciding", _signals, "method", "accuracy",
            "deciding by the subject's popularity, or by the mean log-probability of the closed-book answer's "
            "tokens.",
            {"y": "held-out accuracy, %"}, each="dataset",
        ),
        Shown(
            "deciding", of_search("uncertainty"),
            ["dataset", "lm", "method", "questions",
             *(f"accuracy_{signal}" for signal in SIGNALS), "difference",
             *(f"retrieved_{signal}" for signal in SIGNALS)],
            "The language model's uncertainty can decide as well: retrieve if it gave its closed-book answer a low "
            "probability. Thresholds on this probability are fitted and judged on the same splits. Popularity is known "
            "before the model is asked; uncertainty is known only after a closed-book answer. Held-out accuracy in per "
            "cent by what decides, the difference in points, and the share of the questions that retrieve in per cent.",
            TEXT | {"difference": "uncertainty less popularity"} | {f"accuracy_{signal}": signal for signal in SIGNALS},
        ),
        Drawn(
            entries.lines, "retrieves-by-lm", _by_size, "size", "retrieved",
            "how much language models retrieve by their size, held out.",
            {"x": "parameters", "y": "share of the questions that retrieve, %", "log_x": True},
            series="method", each="dataset",
        ),
    ],
    _says,
    _missing,
)  # fmt: skip
