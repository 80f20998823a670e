"""The section of the study `measures`: what predicts that a model knows a fact."""

from collections import Counter

from pipelines.pages.section import Axis, Block, Figure, Row, Section
from pipelines.pages.table_rows import figures_by, is_known, table_of
from pipelines.pages.values import label
from pipelines.report.run_tables import Tables
from pipelines.studies.measures import VIEWS, WORDS


def section(tables: Tables) -> Section:
    rows = _measures(tables)
    figure = Figure(
        name="popularity-measures",
        kind="ranges",
        rows=[row for row in rows if is_known(row["correlation"])],
        series="lm",
        x="name",
        y="correlation",
        y_axis=Axis("correlation with being right without retrieval"),
        caption=(
            "how well each measure tells questions that a model answers right without retrieval "
            "from others. Lines are 95 % intervals."
        ),
    )

    table = table_of(
        "popularity-measures",
        "Correlation of each measure's logarithm with being right without retrieval, and that less "
        "the correlation of page views, on questions of which all measures are known.",
        rows,
        ["dataset", "lm", "name", "known", "questions", "correlation", "over_views"],
        {"name": "measure", "over_views": "less page views"},
    )

    blocks: list[Block] = [*figures_by(figure, "dataset"), table]
    title = "What predicts that a model knows"
    return Section("measures", title, blocks, _leads(tables, rows))


def _measures(tables: Tables) -> list[Row]:
    """The measures of each language model and question set for which there are two at least."""
    rows = tables.rows("popularity_measures")
    known: Counter = Counter()
    for row in rows:
        known[row["dataset"], row["lm"]] += is_known(row["correlation"])

    measures = []
    for row in rows:
        if known[row["dataset"], row["lm"]] > 1:
            name = WORDS[row["measure"]]
            if row["text"]:
                name += f" ({label(row['text'])})"
            measures.append({**row, "name": name})

    return measures


def _leads(tables: Tables, rows: list[Row]) -> str:
    """Whether any other measure predicts better than page views."""
    signs = []
    for row in rows:
        is_of_main = (row["dataset"], row["lm"]) == (tables.dataset, tables.lm)
        if is_of_main and row["measure"] != VIEWS:
            signs.append(row["over_views"].sign)

    if not signs:
        return ""
    better = signs.count(1)
    tell = "tell" if better > 1 else "tells"
    return (
        f"{better or 'None'} of {len(signs)} other measures {tell} clearly better than page views "
        f"which questions {tables.lm} answers right without retrieval."
    )
