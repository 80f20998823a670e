"""What the section on benchmarks shows by the popularity of what the questions ask about (PopQA,
sections 4 to 6, for natural questions).
"""

from collections.abc import Iterator

from pipelines.pages.section import Block, Figure, Table
from pipelines.pages.table_rows import figures_by, is_known, table_of
from pipelines.pages.thresholds import cut_and_bounds
from pipelines.pages.values import label, show
from pipelines.report.curves import ACCURACY, BANDS, VIEWS, with_views
from pipelines.report.effect_section import in_tail_and_head
from pipelines.report.run_tables import Tables

# Of each benchmark, the first language model that answered it.
FIRST_LM = """(task, lm) IN
    (SELECT (task, arg_min(lm, file_row_number)) FROM tasks_thresholds GROUP BY task)"""


def blocks(tables: Tables) -> list[Block]:
    """Figures, sentences and a table, which are empty where no benchmark's questions are linked to
    entities.
    """
    sentences = " ".join(_effects(tables))
    return [*_figures(tables), sentences, _table_of_thresholds(tables)]


def _figures(tables: Tables) -> list[Figure]:
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
            changes = in_tail_and_head(row["tail"], row["head"], "entities")
            yield f"On {name}, {method} {changes}."


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
        csv_only=["not_known", "tail", "head", "threshold_low", "threshold_high"],
    )
