"""The section on benchmarks: MMLU and open-domain questions (REPLUG, section 6; Tables 2 and 3)."""

from pipelines.intervals import interval
from pipelines.pages.section import Block, Figure, Row, Section
from pipelines.pages.table_rows import figures_by, is_known, table_of
from pipelines.pages.values import in_points, label, show
from pipelines.report import tasks_by_popularity
from pipelines.report.curves import ACCURACY
from pipelines.report.run_tables import Tables

SOLVED = """method IN ('closed_book', 'dense', 'replug', 'replug_lsr') AND (task, lm) IN
    (SELECT (task, lm) FROM tasks WHERE method = 'closed_book')"""


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

    blocks: list[Block] = [*figures_by(figure, "lm"), text, *_training_shares(tables), table]
    blocks += tasks_by_popularity.blocks(tables)
    return Section("tasks", "Benchmarks", blocks, _leads(tables, rows), _missing(tables, rows))


def _training_shares(tables: Tables) -> list[str]:
    """What share of each benchmark's questions occurs in its training files; [] without such
    files."""
    shares = {}
    for benchmark, by_lm in tables.metrics.get("tasks", {}).items():
        for figures in by_lm.values():
            if "in_training" in figures:
                shares[benchmark] = interval(figures["in_training"])

    sentences = []
    for benchmark, share in shares.items():
        in_percent = show(share.times(100), digits=1)
        sentences.append(
            f"{in_percent} % of the questions of {label(benchmark)} occur in its training files, "
            "whatever their case, punctuation and articles."
        )
    if sentences:
        sentences.append(
            "The REPLUG paper names 32.5 % for Natural Questions, of a count with near-duplicates."
        )
    return sentences


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
