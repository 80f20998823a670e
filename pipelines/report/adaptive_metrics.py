"""What thresholds are worth held out, by search: the rows of data/metrics/adaptive.json (PopQA,
section 6).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines import methods
from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.searches import SEARCHES
from pipelines.pages.section import Row, grouped
from pipelines.pages.values import label
from pipelines.report.run_tables import Tables, read_figures

UNCERTAINTY = "uncertainty"  # a search by the answer's probability instead of popularity


def rows_of(tables: Tables, searches: Sequence[str]) -> list[Row]:
    """The figures of these searches by question set, language model and method, the main model
    first.
    """
    rows = []
    for dataset in tables.settings.parts.answered:
        for lm, by_method in _by_lm(tables, dataset).items():
            for method in _methods(by_method):
                for search in searches:
                    if search in by_method[method]:
                        key = {"dataset": dataset, "lm": lm, "method": method, "search": search}
                        rows.append(key | read_figures(by_method[method][search]))
    return rows


def figures_of_set(tables: Tables, dataset: str) -> Mapping[str, Any]:
    """Language model -> what `tune_thresholds` counted and measured on a question set."""
    if not tables.settings.parts.rules:
        return {}
    return tables.metrics.get("adaptive", {}).get(dataset, {})


def _by_lm(tables: Tables, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The figures of each language model, those of the run first, others by their names."""
    by_lm = figures_of_set(tables, dataset)
    own = [lm for lm in tables.settings.lms if lm in by_lm]
    others = sorted(lm for lm in by_lm if lm not in own)
    return {lm: by_lm[lm] for lm in [*own, *others]}


def _methods(by_method: Mapping[str, Any]) -> list[str]:
    """The methods that have thresholds; the other keys are counts of questions."""
    names = []
    for name, figures in by_method.items():
        if isinstance(figures, dict) and SEARCHES[0] in figures:
            names.append(name)
    return methods.ordered(names)


def in_use(tables: Tables) -> list[Row]:
    """The figures of the search that is put to use."""
    return rows_of(tables, [tables.settings.thresholds.search])


def of_main_models(rows: Sequence[Row]) -> list[Row]:
    """The rows of each question set's first language model, which is the main one."""
    main = {dataset: of_set[0]["lm"] for dataset, of_set in grouped(rows, "dataset").items()}
    return [row for row in rows if row["lm"] == main[row["dataset"]]]


def main_policies(tables: Tables) -> list[Row]:
    """The main language model's figures on the first question set, by method, without pairs of
    them.
    """
    rows = [row for row in of_main_models(in_use(tables)) if BELOW not in row["method"]]
    return [row for row in rows if row["dataset"] == rows[0]["dataset"]]


def best_policy(tables: Tables) -> Row | None:
    """Of these, the method with the highest adaptive accuracy."""
    return max(main_policies(tables), key=lambda row: row["adaptive"].value, default=None)


def too_few(dataset: str, figures: Mapping[str, Any], least: int) -> str:
    """Why a question set has no thresholds; `figures` are a language model's in
    metrics/adaptive.json.
    """
    name = label(dataset)
    if "questions" not in figures:
        return f"No two kinds of answers to the questions of {name} are there to choose from."
    if not figures["questions"]:
        return f"There are no thresholds: no question of {name} has a known popularity."
    return (
        f"There are no thresholds: {figures['questions']:,} questions of {name} were answered and "
        f"have a known popularity, but no relation has {least:,} of them "
        "(thresholds.min_questions). If one relation has, those with fewer use the pooled "
        "threshold. Set answer.max_questions higher."
    )
