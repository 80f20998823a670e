"""The report's section on adaptive retrieval: policies, thresholds, and what else can decide (PopQA, section 6)."""

from __future__ import annotations

from statistics import median

from pipelines import methods as names
from pipelines import params, parquet
from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.rule import VIEWS
from pipelines.adaptive.searches import SEARCHES
from pipelines.intervals import interval
from pipelines.report import costs_section, deciding_tables, figures
from pipelines.report.deciding_tables import CUTS, over_splits
from pipelines.report.inputs import Inputs, bounded
from pipelines.report.page import Figure, Percent, Section, Share, Table, label, named, points

SIGNALS = ("popularity", "uncertainty", "both")
DRAWN = ("bm25", "dense", "lsr")  # kinds of methods in the figures of thresholds; the tables have all
Tuned = dict[str, dict[str, dict]]  # language model -> method -> search, or "uncertainty" -> figures


def adaptive(inputs: Inputs, chosen: params.Thresholds) -> Section:
    """Adaptive against always, never and the oracle, for every search, and the thresholds themselves."""
    title, search = "Adaptive retrieval", chosen.search
    answered = inputs.parts.answered if inputs.parts.rules else []
    by_dataset = {dataset: tuned for dataset in answered if (tuned := _tuned(inputs, dataset))}
    if not by_dataset:
        return Section("adaptive", title)
    says = _says(*next(iter(by_dataset.items())), search)
    first = [
        _policies(dataset, {lm: of for lm, of in models.items() if lm not in inputs.models[1:]}, search)
        for dataset, models in by_dataset.items()
    ]
    blocks: list = [
        *first,
        "Thresholds are fitted and judged by the substring rule. "
        "Below a relation's popularity threshold, the answer with retrieved text counts; from the threshold on, the "
        "closed-book answer. Thresholds are fitted on one part of the subjects and judged on the others, over many "
        "seeded splits.",
    ]
    if any(BELOW in method for models in by_dataset.values() for methods in models.values() for method in methods):
        blocks.append(
            "A row named after two answers, such as dense below GenRead, has the first one below the threshold, in "
            "place of the augmented answer, and the second one from it on, in place of the closed-book answer."
        )
    tables = {
        name: parquet.read(inputs.data / f"adaptive/popularity/{name}.parquet").to_pylist()
        for name in ("costs", "reliability", "coverage", "carried")
    }
    for dataset, models in by_dataset.items():
        lm = next(iter(models))
        excluded = inputs.metrics["adaptive"][dataset][lm]["excluded_without_popularity"]
        if excluded:
            blocks.append(
                f"{excluded:,} questions of {label(dataset)} are of unknown popularity. They are left out here, and no "
                "threshold is fitted to them. `longtail ask` retrieves for such a question, and says why."
            )
        thresholds = [row for row in inputs.thresholds if row["dataset"] == dataset and row["search"] == search]
        blocks += [*deciding_tables.verdicts(dataset, models, search), _searches(dataset, models, search)]
        blocks += deciding_tables.pooled(dataset, lm, thresholds, chosen.min_questions)
        blocks += _thresholds(dataset, lm, thresholds)
        of_set = {name: [row for row in rows if row["dataset"] == dataset] for name, rows in tables.items()}
        blocks += costs_section.prices(dataset, lm, of_set["costs"])
        blocks += _signals(dataset, lm, models)
        blocks += deciding_tables.gate(dataset, models)
        figures_of_set = inputs.metrics["adaptive"][dataset]
        trusted = {lm: figures_of_set[lm]["confidence"] for lm in models if "confidence" in figures_of_set[lm]}
        blocks += deciding_tables.confidence(dataset, trusted, of_set["reliability"], of_set["coverage"])
        blocks += _by_size(dataset, models, thresholds, inputs.sizes, search)
        blocks += deciding_tables.carried(dataset, of_set["carried"])
    lacking = {
        dataset: next(iter(inputs.metrics["adaptive"].get(dataset, {}).values()), {})
        for dataset in answered
        if dataset not in by_dataset
    }
    missing = " ".join(too_few(dataset, of_lm, chosen.min_questions) for dataset, of_lm in lacking.items())
    return Section("adaptive", title, blocks, missing, says)


def _says(dataset: str, models: Tuned, search: str) -> str:
    """What choosing by popularity is worth to the main language model with its retriever, tuned if it is."""
    lm, by_method = next(iter(models.items()))
    method = next((name for name in ("lsr", "dense") if name in by_method), next(iter(by_method)))
    figures = by_method[method][search]
    shares = {name: 100 * figures[name]["value"] for name in ("adaptive", "always", "never")}
    gain = interval(figures["gain"])
    worth = {1: "beats both always and never retrieving", -1: "loses to the better of always and never retrieving"}
    return (
        f"On {label(dataset)}, choosing by popularity when {lm} reads what {label(method)} finds "
        f"{worth.get(gain.sign, 'is not clearly better or worse than the better of always and never retrieving')}: "
        f"{shares['adaptive']:.1f} % right, against {shares['always']:.1f} % and {shares['never']:.1f} % "
        f"({points(gain)}).{deciding_tables.of_best(method, by_method, search)}"
    )


def too_few(dataset: str, figures: dict, least: int) -> str:
    """Why a question set has no thresholds; `figures` are a language model's in metrics/adaptive.json."""
    if "questions" not in figures:
        return f"No two kinds of answers to the questions of {label(dataset)} are there to choose from."
    return (
        f"There are no thresholds: {figures['questions']:,} questions of {label(dataset)} were answered and have a "
        f"known popularity, but no relation has {least:,} of them (thresholds.min_questions). If one relation has, "
        "those with fewer use the pooled threshold. Set answer.max_questions higher."
    )


def _tuned(inputs: Inputs, dataset: str) -> Tuned:
    """The language models with thresholds, the main one first, and their methods in one order."""
    by_lm = inputs.metrics.get("adaptive", {}).get(dataset, {})
    order = [lm for lm in inputs.models if lm in by_lm] + sorted(set(by_lm) - set(inputs.models))
    tuned = {lm: {method: by_lm[lm][method] for method in _methods(by_lm[lm])} for lm in order}
    return {lm: methods for lm, methods in tuned.items() if methods}


def _methods(figures: dict) -> list[str]:
    """The methods with thresholds, then all others, such as thresholds.pairs; `figures` are a language model's."""
    return names.ordered(name for name, value in figures.items() if isinstance(value, dict) and SEARCHES[0] in value)


def _searches(dataset: str, models: Tuned, search: str) -> Table:
    return Table(
        f"adaptive-{dataset}",
        f"{label(dataset)}: held-out accuracy in per cent, with intervals over subjects; the gain over the better of "
        "always and never in points; what is put to use; adaptive's mean, middle 95 % and standard deviation over "
        "splits; the share of questions that retrieve and the accuracy on training subjects in per cent. Intervals of "
        "adaptive, the gain and the share fit the thresholds again to resampled subjects. In simulations they cover "
        "91 to 100 %, but the share's only 84 to 91 % with 260 questions. The search in use is "
        f"{search}.",
        [
            *("language model", "retriever", "search", "adaptive", "always", "never", "oracle", "gain", "use"),
            *("over splits", "sd", "retrieves", "training"),
        ],
        [
            [lm, label(method), name]
            + [Percent(interval(figure[policy])) for policy in ("adaptive", "always", "never", "oracle")]
            + [Percent(interval(figure["gain"]), signed=True), figure["policy"]]
            + [Percent(over_splits(figure["adaptive"])), Share(figure["adaptive"]["sd"])]
            + [Percent(interval(figure["retrieved"])), Share(figure["train_adaptive"]["value"])]
            for lm, methods in models.items()
            for method, by_search in methods.items()
            for name, figure in ((name, by_search[name]) for name in SEARCHES)
        ],
    )


def _policies(dataset: str, models: Tuned, search: str) -> Figure:
    """Accuracy by policy of the main language model, and of imported models beside it."""
    main = next(iter(models))
    bars = [(lm, method, by_search[search]) for lm, methods in models.items() for method, by_search in methods.items()]
    return deciding_tables.policies(
        f"policies-{dataset}",
        [label(method) if lm == main else f"{label(method)}, {lm}" for lm, method, _ in bars],
        [figure for _, _, figure in bars],
        f"{label(dataset)}, {' and '.join(models)}: adaptive against always and never retrieving, by where the text "
        "comes from.",
    )


def _thresholds(dataset: str, lm: str, rows: list[dict]) -> list[Figure | Table]:
    cells = {(row["lm"], row["method"], row["relation"]): row for row in rows}
    relations = sorted({row["relation"] for row in rows if row["lm"] == lm})
    methods = [m for m in dict.fromkeys(row["method"] for row in rows) if any((lm, m, r) in cells for r in relations)]
    drawn = [m for m in methods if names.split(m)[0] in DRAWN] or methods
    of_methods = {method: {relation: cells[lm, method, relation] for relation in relations} for method in drawn}
    shown = {relation: named(relation) for relation in relations}
    return [
        deciding_tables.thresholds(f"thresholds-{dataset}", of_methods, shown, VIEWS, f"{label(dataset)}, {lm}"),
        Table(
            f"thresholds-{dataset}",
            f"{label(dataset)}: thresholds in monthly page views (0: never retrieve, ∞: always), with the middle 95 % "
            "over resampled subjects and over splits; the threshold in use by the verdict above; the least and the "
            "most popular subject tuned on, beyond which nothing is known; accuracies and the share that retrieves in "
            "per cent, adaptive's and the share held out. Relations with few questions share the threshold of all "
            "relations together. The middle 95 % of a relation's thresholds held the best one in 77 to 83 % of "
            "the relations of 1,400 simulated questions, and in 58 % of those of 260, because a threshold jumps from "
            "one question to another.",
            [
                *("relation", "language model", "retriever", "questions", "own threshold", "threshold", "from", "to"),
                *("splits from", "splits to", "in use", "least views", "most views", "closed-book", "augmented"),
                *("adaptive", "adaptive, over splits", "retrieves", "retrieves, over splits"),
            ],
            [
                [named(row["relation"]), row["lm"], label(row["method"]), row["questions"], not row["pooled"]]
                + [row[key] for key in (*CUTS, "threshold_splits_low", "threshold_splits_high")]
                + [row[key] for key in ("deployed", "popularity_least", "popularity_most")]
                + [Share(row["closed_book"]), Share(row["augmented"])]
                + [
                    Percent(bounded(row, name))
                    for name in ("adaptive", "adaptive_splits", "retrieved", "retrieved_splits")
                ]
                for row in rows
            ],
        ),
    ]


def _signals(dataset: str, lm: str, models: dict[str, dict]) -> list[str | Figure | Table]:
    """Deciding by popularity, by the model's own uncertainty or by both; nothing if probabilities are not known."""
    compared = {
        (name, method): by_search["uncertainty"]
        for name, methods in models.items()
        for method, by_search in methods.items()
        if "uncertainty" in by_search
    }
    if not compared:
        return []
    of_lm = {method: policies for (name, method), policies in compared.items() if name == lm}
    order = ("never", "always", *SIGNALS, "oracle")
    drawn = []
    if of_lm:
        accuracies = {name: [interval(policies[name]).times(100) for policies in of_lm.values()] for name in order}
        caption = (
            f"{label(dataset)}, {lm}: deciding by the subject's popularity, by the mean log-probability of the "
            "closed-book answer's tokens, and by both."
        )
        methods = [label(method) for method in of_lm]
        drawn.append(
            figures.bars(f"deciding-{dataset}", methods, accuracies, y="held-out accuracy, %", caption=caption)
        )
    costs = all(f"cost_{name}" in policies for name in SIGNALS for policies in compared.values())
    return [
        "The language model's uncertainty can decide as well: retrieve if it gave its closed-book answer a low "
        "probability. Thresholds on this probability are fitted and judged on the same splits. Popularity is known "
        "before the model is asked; uncertainty is known only after a closed-book answer.",
        *drawn,
        Table(
            f"deciding-{dataset}",
            f"{label(dataset)}: held-out accuracy in per cent by what decides, differences in points, and the share of "
            "the questions that retrieve in per cent"
            + (", and the cost of a question in the unit above." if costs else "."),
            ["language model", "retriever", "questions", *SIGNALS, "uncertainty less popularity"]
            + ["both less the better", *(f"retrieves, {name}" for name in SIGNALS)]
            + [f"cost, {name}" for name in SIGNALS if costs],
            [
                [name, label(method), policies["questions"]]
                + [Percent(interval(policies[signal])) for signal in SIGNALS]
                + [Percent(interval(policies[key]), signed=True) for key in ("difference", "both_difference")]
                + [Percent(interval(policies[f"retrieved_{signal}"])) for signal in SIGNALS]
                + [interval(policies[f"cost_{signal}"]) for signal in SIGNALS if costs]
                for (name, method), policies in compared.items()
            ],
        ),
    ]


def _by_size(
    dataset: str, models: Tuned, thresholds: list[dict], sizes: dict[str, int | None], search: str
) -> list[Figure | Table]:
    """Share retrieving and thresholds by language model; the figure needs two models of known size."""
    if len(models) < 2:
        return []
    ordered = sorted(models, key=lambda lm: (sizes.get(lm) is None, sizes.get(lm) or 0))
    sized = [lm for lm in ordered if sizes.get(lm)]
    everywhere = dict.fromkeys(m for lm in sized for m in models[lm])
    methods = [m for m in everywhere if sum(m in models[lm] for lm in sized) > 1]
    series = {
        m: (
            [sizes[lm] for lm in sized if m in models[lm]],
            [interval(models[lm][m][search]["retrieved"]).times(100) for lm in sized if m in models[lm]],
        )
        for m in methods
    }
    drawn = [
        figures.lines(
            f"retrieves-by-lm-{dataset}",
            series,
            x="parameters",
            y="share of the questions that retrieve, %",
            caption=f"{label(dataset)}: how much language models retrieve by their size, held out.",
            log_x=True,
        )
    ]
    cuts = {
        (lm, m): [row["threshold"] for row in thresholds if (row["lm"], row["method"]) == (lm, m)]
        for lm in models
        for m in models[lm]
    }
    return (drawn if series else []) + [
        Table(
            f"adaptive-by-lm-{dataset}",
            f"{label(dataset)}: language models by size, adaptive and never retrieving held out in per cent, share of "
            "the questions that retrieve in per cent, and the median of the relations' thresholds in monthly page "
            f"views. The search is {search}.",
            ["language model", "parameters", "retriever", "never", "adaptive", "gain", "retrieves", "median threshold"],
            [
                [lm, sizes.get(lm), label(m)]
                + [Percent(interval(by_search[search][policy])) for policy in ("never", "adaptive")]
                + [Percent(interval(by_search[search]["gain"]), signed=True)]
                + [Percent(interval(by_search[search]["retrieved"])), float(median(cuts[lm, m]))]
                for lm in ordered
                for m, by_search in models[lm].items()
            ],
        )
    ]
