"""The section on benchmarks: MMLU and open-domain questions (REPLUG, section 6; Tables 2 and 3)."""

from collections.abc import Iterator

from pipelines.pages.section import Block, Figure, Row, Section, Table
from pipelines.pages.table_rows import figures_by, is_known, table_of
from pipelines.pages.thresholds import cut_and_bounds
from pipelines.pages.values import in_points, label, show
from pipelines.report.curves import ACCURACY, BANDS, VIEWS, with_views
from pipelines.report.effect_section import VERBS
from pipelines.report.run_tables import Tables

SOLVED = """method IN ('closed_book', 'dense', 'replug', 'replug_lsr') AND (task, lm) IN
    (SELECT (task, lm) FROM tasks WHERE method = 'closed_book')"""

# Of each benchmark, the first language model that answered it.
FIRST_LM = """(task, lm) IN
    (SELECT (task, arg_min(lm, file_row_number)) FROM tasks_thresholds GROUP BY task)"""


def section(tables: Tables) -> Section:
    rows = solved(tables)
    figure = Figure(
        name="tasks",
        kind="bars",
        rows=[row for row in rows if row["category"] == "all"],
        series="method",
        x="task",
        y="accuracy",
        y_axis=ACCURACY,
        caption="accuracy by benchmark and method. Thin lines are 95 % intervals.",
    )

    table = table_of(
        "tasks",
        "Accuracy in per cent and the change against answers without retrieval in points, over all "
        "questions and by category, with 95 % intervals.",
        rows,
        ["task", "lm", "method", "answered_by", "category", "questions", "accuracy", "gain"],
    )

    text = (
        "A multiple-choice question is answered by the likeliest of its four letters; guessing is "
        "right on 25 %. Other questions are answered by generation; an answer is right if it "
        "equals a gold answer after normalisation. REPLUG's ensembles answer by the mixture of "
        "probabilities where the language model shows them, else by a vote over an answer with "
        "each document."
    )

    blocks: list[Block] = [
        *figures_by(figure, "lm"),
        text,
        table,
        *_by_popularity(tables),
        " ".join(_effects(tables)),
        _table_of_thresholds(tables),
    ]
    return Section("tasks", "Benchmarks", blocks, _leads(tables, rows), _missing(tables, rows))


def _by_popularity(tables: Tables) -> list[Figure]:
    figure = Figure(
        name="tasks-by-popularity",
        kind="lines",
        rows=with_views(tables.rows("tasks_by_popularity", FIRST_LM)),
        series="method",
        x="views",
        y="accuracy",
        x_axis=VIEWS,
        y_axis=ACCURACY,
        caption=(
            "accuracy by decile of popularity of the entity that a question names; small deciles "
            f"are merged. {BANDS}"
        ),
        min_marks=2,
    )
    return figures_by(figure, "task")


def _effects(tables: Tables) -> Iterator[str]:
    """Whether each ensemble helps in the tail and at the head, and the questions left out."""
    for row in tables.rows("tasks_thresholds", FIRST_LM):
        name = label(row["task"])
        if row["method"] == "closed_book" and row["not_known"]:
            known = show(row["questions"])
            yield (
                f"{show(row['not_known'])} questions of {name} name no entity of known popularity. "
                f"They are left out of the figure by popularity and of the thresholds, which have "
                f"the other {known}."
            )
        if is_known(row["tail"]) and is_known(row["head"]):
            method = label(row["method"])
            if row["lm"] != tables.lm:
                method = f"{method} of {row['lm']}"
            yield (
                f"On {name}, {method} {VERBS[row['tail'].sign]} with unpopular "
                f"entities ({in_points(row['tail'])} points) and {VERBS[row['head'].sign]} with "
                f"the most popular ones ({in_points(row['head'])} points)."
            )


def _table_of_thresholds(tables: Tables) -> Table:
    rows = []
    for row in tables.rows("tasks_thresholds"):
        rows.append({**row, **cut_and_bounds(row["threshold"])})
    return table_of(
        "tasks-thresholds",
        "Questions of known popularity: correlation of accuracy with it, what retrieval changes, "
        "and one threshold for all, held out; in per cent and points.",
        rows,
        [
            "task",
            "lm",
            "method",
            "questions",
            "not_known",
            "correlation",
            "tail",
            "head",
            "tail_less_head",
            "never",
            "always",
            "adaptive",
            "oracle",
            "gain",
            "retrieved",
            "threshold",
            "threshold_low",
            "threshold_high",
            "policy",
        ],
        {"not_known": "not known", "gain": "gain", "policy": "use"},
    )


def solved(tables: Tables) -> list[Row]:
    """Accuracy by benchmark, language model, method and category, of models that answered without
    retrieval.
    """
    return tables.rows("tasks", SOLVED)


def _leads(tables: Tables, rows: list[Row]) -> str:
    effect = _largest_effect(tables, rows)
    if effect is None:
        return "No ensemble answered a benchmark; the figure has the answers without retrieval."
    what = "accuracy"
    if effect["lm"] != tables.lm:
        what = f"the accuracy of {effect['lm']}"
    ends = "; no benchmark shows a clear effect"
    if effect["gain"].sign:
        ends = ", its largest effect on a benchmark"
    points = in_points(effect["gain"])
    return (
        f"On {label(effect['task'])}, {label(effect['method'])} changes {what} by {points} "
        f"points{ends}."
    )


def _largest_effect(tables: Tables, rows: list[Row]) -> Row | None:
    """The benchmark and the ensemble that change accuracy most, of the main language model if it
    has any.
    """
    effects = []
    for row in rows:
        is_ensemble = row["method"].startswith("replug")
        if row["category"] == "all" and is_ensemble and is_known(row["gain"]):
            effects.append(row)
    of_main = [row for row in effects if row["lm"] == tables.lm]
    if effects and not of_main:
        of_main = [row for row in effects if row["lm"] == effects[0]["lm"]]
    return max(of_main, key=lambda row: abs(row["gain"].value), default=None)


def _missing(tables: Tables, rows: list[Row]) -> str:
    solved_tasks = {row["task"] for row in rows}
    lacking = []
    for name in tables.settings.parts.benchmarks:
        if name not in solved_tasks:
            lacking.append(label(name))
    if not lacking:
        return ""
    return f"No language model answered questions of {' or '.join(lacking)}."
