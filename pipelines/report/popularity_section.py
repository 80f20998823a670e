"""The section on how popular the questions' subjects are (PopQA, section 3 and Figure 3)."""

from collections.abc import Sequence

from pipelines.pages.section import Axis, Block, Figure, Row, Section
from pipelines.pages.table_rows import table_of
from pipelines.pages.values import label, show
from pipelines.report.run_tables import Tables
from pipelines.storage import database

COUNTS = """SELECT count(s_pop) AS known, count(*) - count(s_pop) AS unknown,
    quantile_cont(s_pop, 0.1) AS "10 %", quantile_cont(s_pop, 0.5) AS "median",
    quantile_cont(s_pop, 0.9) AS "90 %" FROM questions"""
LINKED = ("nq", "triviaqa")  # their questions' entities are found by names


def section(tables: Tables) -> Section:
    sets = _sets(tables)
    figure = Figure(
        name="popularity",
        kind="lines",
        rows=curves(tables, sets),
        series="dataset",
        x="below",
        y="share",
        x_axis=Axis("monthly page views of the article (log scale)", log=True),
        y_axis=Axis("share of the questions with fewer, %"),
        caption=(
            "How popular the questions' subjects are, where it is known. A question without a "
            "subject counts as its least viewed entity."
        ),
    )

    table = table_of(
        "popularity",
        "Monthly page views: the median, and the bounds of the least and of the most viewed tenth.",
        sets,
        ["dataset", "known", "unknown", "10 %", "median", "90 %"],
        {"known": "popularity known", "unknown": "not known"},
    )

    blocks: list[Block] = [figure, _without_c4(tables, sets), table]
    if sets:
        blocks.append(
            "A popularity is not known if the month's data have no view of the article, or if the "
            "question's subject has no article or could not be linked to one. Unknown is not low: "
            "all figures by popularity leave these questions out."
        )

        blocks.append(_without_redirects(tables))

    title = "How popular the questions' subjects are"
    return Section("popularity", title, blocks, _leads(tables, sets))


def _leads(tables: Tables, sets: Sequence[Row]) -> str:
    for row in sets:
        if row["dataset"] == tables.dataset:
            median = show(float(f"{row['median']:.2g}"))
            tenth = show(float(f"{row['90 %']:.2g}"))
            return (
                f"Half of the questions of {label(row['dataset'])} are about subjects with fewer "
                f"than {median} page views a month, a tenth about subjects with more than "
                f"{tenth}."
            )
    return ""


def _sets(tables: Tables) -> list[Row]:
    """How many popularities of each question set are known, and their quantiles; sets with some."""
    sets = []
    for dataset in tables.settings.parts.question_sets:
        path = tables.data / f"questions/{dataset}/{dataset}.parquet"
        counts = database.ask(COUNTS, questions=path).to_arrow_table()
        sets.append({"dataset": dataset} | counts.to_pylist()[0])
    return [row for row in sets if row["known"]]


def curves(tables: Tables, sets: Sequence[Row]) -> list[Row]:
    """By question set, the share of questions with fewer views than the bounds of the bins.

    All curves go on to the last bound of all question sets.
    """
    bins = tables.rows("popularity")
    curves = []
    for of_set in sets:
        questions_below: dict[float, int] = {}  # bound -> questions of the bin below it
        for row in bins:
            if row["dataset"] == of_set["dataset"]:
                questions_below.setdefault(round(row["least"], 3), 0)
                questions_below[round(row["below"], 3)] = row["questions"]

        questions_below.setdefault(round(max(row["below"] for row in bins), 3), 0)

        fewer = 0
        for bound, questions in questions_below.items():
            fewer += questions
            share = fewer / of_set["known"]
            curves.append({"dataset": of_set["dataset"], "below": bound, "share": share})

    return curves


def _without_c4(tables: Tables, sets: Sequence[Row]) -> str:
    has_c4 = any(row["dataset"] == "c4" for row in tables.manifest)
    linked = [label(row["dataset"]) for row in sets if row["dataset"] in LINKED]
    if has_c4 or not linked:
        return ""
    return (
        "This run has no C4 (fetch.files.c4), which tells names from everyday words. So every word "
        "that is also a name counts as one, such as “was”, which is a novel, and the popularity of "
        f"{' and '.join(linked)} is too low."
    )


def _without_redirects(tables: Tables) -> str:
    if not tables.settings.parts.knowledge:
        return ""
    counts = tables.metrics.get("popularity", {})
    if not counts.get("files.pageviews") or counts["files.redirects"]:
        return ""
    return (
        "Views of redirects are not counted for the articles that they lead to, and an article "
        "that was moved after the month may be unknown: this run has no tables of redirects and "
        "pages (fetch.files.redirects)."
    )
