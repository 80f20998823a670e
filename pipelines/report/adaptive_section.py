"""The section on adaptive retrieval: when to retrieve, and what it is worth (PopQA, section 6)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.rule import THRESHOLDS, VIEWS
from pipelines.adaptive.searches import SEARCHES
from pipelines.methods import Method
from pipelines.pages.section import Axis, Block, Figure, Row, Section, Table, grouped
from pipelines.pages.table_rows import spread, table_of
from pipelines.pages.thresholds import ORACLE, POLICIES, advice, threshold_figure
from pipelines.pages.values import label, named, show
from pipelines.report import adaptive_metrics
from pipelines.report.findings import after_holm
from pipelines.report.run_tables import Tables

HELD_OUT = Axis("held-out accuracy, %")
DRAWN_METHODS = ("bm25", "dense", "lsr")  # of the thresholds' figures; the tables have all
HAS_SAVINGS = "calls_saved IS NOT NULL OR tokens_saved IS NOT NULL OR cost_saved IS NOT NULL"
POLICIES_OF_PAIRS = {
    "never": "always the second text",
    "always": "always the first text",
    "adaptive": "adaptive",
    "oracle": "oracle",
}
SIGNALS = ("popularity", "uncertainty")  # of what decides whether to retrieve


def section(tables: Tables) -> Section:
    policies = _policies(tables)
    blocks: list[Block] = [
        *_figures_of_policies(policies),
        "Below a relation's popularity threshold, the answer with retrieval counts; from the "
        "threshold on, the answer without. Thresholds are fitted on one part of the subjects and "
        "judged on the others, over many seeded splits, by the substring rule. In the rows of two "
        "texts, such as BM25 below dense, the second one's answer stands for that without "
        "retrieval.",
        " ".join(_unknown_popularity(tables)),
        _where_thresholds_lose(tables),
        _table_of_searches(tables),
        _table_of_savings(tables),
        _figure_of_thresholds(tables),
        _table_of_thresholds(tables),
        _table_of_signals(tables),
        _by_size(tables),
    ]

    return Section(
        id="adaptive",
        title="Adaptive retrieval",
        blocks=blocks,
        leads=_leads(tables),
        missing=_without_thresholds(tables),
    )


def _leads(tables: Tables) -> str:
    best = adaptive_metrics.best_policy(tables)
    if best is None:
        return ""
    method = label(best["method"])
    leads = f"With {method}, the advice is {advice(best)}{after_holm(tables, best)}."
    rows = adaptive_metrics.main_policies(tables)
    if len(rows) > 1:
        better = [row for row in rows if row["policy"] == THRESHOLDS and row["gain"].sign > 0]
        leads += (
            f" With {len(better) or 'none'} of {len(rows)} methods, adaptive retrieval is clearly "
            "better than both other policies"
        )
        lost = [row for row in better if after_holm(tables, row)]
        if lost:
            leads += f", and after Holm's correction with {len(better) - len(lost) or 'none'}"
        leads += "."
    return leads


def _without_thresholds(tables: Tables) -> str:
    """Why question sets have no thresholds."""
    with_thresholds = {row["dataset"] for row in adaptive_metrics.in_use(tables)}
    least = tables.settings.thresholds.min_questions
    reasons = []
    for dataset in tables.settings.parts.answered:
        if dataset not in with_thresholds:
            by_lm = adaptive_metrics.figures_of_set(tables, dataset)
            reasons.append(adaptive_metrics.too_few(dataset, next(iter(by_lm.values()), {}), least))
    return " ".join(reasons)


def _policies(tables: Tables) -> list[Row]:
    """The policies of the main language model and imported ones; the best come first."""
    rows = []
    for row in adaptive_metrics.in_use(tables):
        if row["lm"] not in tables.settings.lms[1:]:
            rows.append(row)

    main = {row["lm"] for row in adaptive_metrics.of_main_models(rows)}
    sets = tables.settings.parts.answered
    names = []
    for row in sorted(rows, key=lambda row: (sets.index(row["dataset"]), -row["adaptive"].value)):
        method = label(row["method"])
        name = method if row["lm"] in main else f"{method}, {row['lm']}"
        names.append({**row, "of": name})

    return names


def _figures_of_policies(rows: Sequence[Row]) -> list[Figure]:
    with_text = [row for row in rows if BELOW not in row["method"]]
    methods = Figure(
        name="policies",
        kind="dumbbell",
        rows=spread(with_text, {policy: policy for policy in POLICIES}),
        x="of",
        y="accuracy",
        y_axis=HELD_OUT,
        caption=(f"three policies by where the text comes from, best first. {ORACLE}"),
        by="dataset",
    )

    of_pairs = [row for row in rows if BELOW in row["method"]]
    pairs = Figure(
        name="policies-of-pairs",
        kind="dumbbell",
        rows=spread(of_pairs, POLICIES_OF_PAIRS),
        x="of",
        y="accuracy",
        y_axis=HELD_OUT,
        caption=(f"the same choice between two sources of text (thresholds.pairs). {ORACLE}"),
        by="dataset",
    )

    return [methods, pairs]


def _unknown_popularity(tables: Tables) -> Iterator[str]:
    for dataset, rows in grouped(adaptive_metrics.in_use(tables), "dataset").items():
        figures = adaptive_metrics.figures_of_set(tables, dataset)[rows[0]["lm"]]
        excluded = figures["excluded_without_popularity"]
        if excluded:
            known = figures["questions"]
            yield (
                f"{show(excluded)} questions of {label(dataset)} are of unknown popularity. They "
                "are left out here, and no threshold is fitted to them. Accuracies here, and those "
                f"by popularity, are therefore of {show(known)} questions, and others of all "
                f"{show(known + excluded)}. `longtail ask` retrieves for a "
                "question of unknown popularity, and says why."
            )


def _where_thresholds_lose(tables: Tables) -> str:
    """What is put to use instead of thresholds that lose accuracy."""
    lost = [row for row in adaptive_metrics.in_use(tables) if row["policy"] != THRESHOLDS]
    of_sets = []
    for dataset, rows in grouped(lost, "dataset").items():
        verdicts = [f"{row['lm']}, {label(row['method'])}: {row['verdict']}" for row in rows]
        of_sets.append(f"On {label(dataset)}: {'; '.join(verdicts)}.")

    if not of_sets:
        return ""
    return (
        "Thresholds are not put to use where they clearly lose accuracy, where it can't be told, "
        "or where answers without retrieval are as good and cheaper. `longtail ask` and a release "
        "follow this verdict. "
        f"{' '.join(of_sets)}"
    )


def _table_of_searches(tables: Tables) -> Table:
    return table_of(
        "adaptive",
        "Held-out accuracy in per cent on questions of known popularity, the gain over the better "
        "policy without thresholds in points, and what is put to use, by threshold search "
        f"({tables.settings.thresholds.search} is in use).",
        adaptive_metrics.rows_of(tables, SEARCHES),
        [
            "dataset",
            "lm",
            "method",
            "search",
            "adaptive",
            "always",
            "never",
            "oracle",
            "gain",
            "policy",
            "retrieved",
            "over_budget",
            "retrieved_most",
        ],
        {"method": "retriever", "gain": "gain", "policy": "use"},
    )


def _table_of_savings(tables: Tables) -> Table:
    return table_of(
        "savings",
        "What adaptive retrieval saves against always retrieving, in per cent, on held-out "
        "questions.",
        tables.answered("savings", HAS_SAVINGS),
        [
            "dataset",
            "lm",
            "method",
            "questions",
            "retrieved",
            "calls_saved",
            "tokens_saved",
            "cost_saved",
        ],
        {"calls_saved": "prompts saved"},
    )


def _thresholds(tables: Tables) -> list[Row]:
    """The thresholds of the search in use, by relation."""
    rows = []
    search = tables.settings.thresholds.search
    for row in tables.thresholds("search = $search", search=search):
        cut = row["threshold"]
        bounds = {"threshold": cut.value, "threshold_low": cut.low, "threshold_high": cut.high}
        rows.append({**row, **bounds, "cut": cut, "own_threshold": not row["pooled"]})
    return rows


def _figure_of_thresholds(tables: Tables) -> Figure:
    rows = adaptive_metrics.of_main_models(_thresholds(tables))
    drawn = [row for row in rows if Method.of_name(row["method"]).kind in DRAWN_METHODS] or rows
    named_rows = [{**row, "name": named(row["relation"])} for row in drawn]
    return replace(threshold_figure(named_rows, VIEWS), by="dataset")


def _table_of_thresholds(tables: Tables) -> Table:
    return table_of(
        "thresholds",
        "Thresholds in monthly page views (0: without retrieval, ∞: always retrieving), the range "
        "that is not clearly worse, and held-out accuracy and share that retrieves in per cent.",
        _thresholds(tables),
        [
            "relation",
            "dataset",
            "lm",
            "method",
            "questions",
            "own_threshold",
            "threshold",
            "threshold_low",
            "threshold_high",
            "deployed",
            "adaptive",
            "retrieved",
        ],
        {
            "method": "retriever",
            "deployed": "in use",
        },
    )


def _table_of_signals(tables: Tables) -> Table:
    rows = []
    for row in adaptive_metrics.rows_of(tables, [adaptive_metrics.UNCERTAINTY]):
        accuracies = {f"accuracy_{signal}": row[signal] for signal in SIGNALS}
        rows.append({**row, **accuracies})
    return table_of(
        "deciding",
        "Held-out accuracy in per cent if popularity decides, or the model's uncertainty about its "
        "answer without retrieval; the difference in points, and the shares that retrieve.",
        rows,
        [
            "dataset",
            "lm",
            "method",
            "questions",
            "accuracy_popularity",
            "accuracy_uncertainty",
            "difference",
            "retrieved_popularity",
            "retrieved_uncertainty",
        ],
        {
            "method": "retriever",
            "difference": "uncertainty less popularity",
            "accuracy_popularity": "popularity",
            "accuracy_uncertainty": "uncertainty",
        },
    )


def _by_size(tables: Tables) -> Figure:
    """How much language models of known size retrieve, the smaller ones first."""
    rows = []
    for row in adaptive_metrics.in_use(tables):
        parameters = tables.parameters.get(row["lm"])
        if parameters:
            rows.append({**row, "size": parameters})

    return Figure(
        name="retrieves-by-lm",
        kind="lines",
        rows=sorted(rows, key=lambda row: row["size"]),
        series="method",
        x="size",
        y="retrieved",
        x_axis=Axis("parameters", log=True),
        y_axis=Axis("share of the questions that retrieve, %"),
        caption="how much language models retrieve by their size, held out.",
        min_marks=2,
        by="dataset",
    )
