"""The page on what changed between two releases of PopQA, made from the tables of difference.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from pipelines.report import figures
from pipelines.report.page import NONE, Figure, Section, Table, named
from pipelines.report.rendering import render

SHOWN = 30  # rows of a table of examples
NAMES = 8  # answers named in a cell
FOOTER = (
    "Made by Longtail. difference.parquet beside this page has a row for every question that is added, gone, has other "
    "answers or words, or another popularity."
)


def page_of(db: duckdb.DuckDBPyConnection, releases: Sequence[str], counts: pa.Table) -> str:
    """The whole page as HTML, from the table `compared` and `counts`; `releases` describe the old and the new one."""
    everything, *relations = counts.to_pylist()
    old, new = releases
    intro = f"Old: {old}. New: {new}. A question is known by its triple: subject, relation, object."
    sections = [
        Section("relations", "By relation", [_by_relation(everything, relations)]),
        _popularity(db, everything, relations),
        _examples(db, "answers", "Other answers", "other_answers", everything["answers"]),
        _examples(db, "added", "Added", "change = 'added'", everything["added"]),
        _examples(db, "gone", "Gone", "change = 'gone'", everything["gone"]),
        _examples(db, "reworded", "Reworded", "reworded", everything["reworded"]),
    ]
    return render("PopQA: what changed between two releases", intro, [], sections, FOOTER)


def _by_relation(everything: dict[str, Any], relations: list[dict[str, Any]]) -> Table:
    head = ["relation", "old", "new", "added", "gone", "other answers", "reworded", "popularity moved", "median ratio"]
    names = ("old", "new", "added", "gone", "answers", "reworded", "moved", "median")
    rows = [["all", *(everything[name] for name in names)]]
    rows += [[named(row["relation"]), *(row[name] for name in names)] for row in relations]
    caption = "Questions; the last four columns are of those in both releases. The ratio is of popularity, new to old."
    return Table("relations", caption, head, rows)


def _popularity(db: duckdb.DuckDBPyConnection, everything: dict[str, Any], relations: list[dict[str, Any]]) -> Section:
    title = "Popularity"
    if not everything["moved"]:
        return Section("popularity", title, [], "No question of both releases has another popularity.")
    text = (
        f"Of {everything['new'] - everything['added']:,} questions in both releases {everything['moved']:,} have "
        "another popularity."
    )
    if everything["unknown"]:
        text += f" That of {everything['unknown']:,} is known to one release only. They have no ratio."
    if everything["median"] is None:
        return Section("popularity", title, [text])
    text += (
        f" New to old, the median ratio is {everything['median']:.2f}, and nine in ten lie between "
        f"{everything['low']:.2f} and {everything['high']:.2f}. Ratios are of page views plus one."
    )
    return Section("popularity", title, [text, _distribution(db), _spread(relations), *_movers(db)])


def _distribution(db: duckdb.DuckDBPyConnection) -> Figure:
    counted = db.sql(
        """SELECT greatest(-6, least(6, round(log2_ratio * 4) / 4)) AS place, count(*) FROM compared
        WHERE log2_ratio IS NOT NULL GROUP BY 1"""
    ).fetchall()
    shares, places = dict(counted), np.arange(-24, 25) / 4
    values = np.array([shares.get(place, 0) for place in places.tolist()])
    return figures.curves(
        "ratio",
        [("share of the questions in both releases", places, {"share": values / values.sum()})],
        x="log2 of the ratio of popularity, new to old (1: twice the views, \N{MINUS SIGN}1: half)",
        caption="How popularity moved, in steps of a quarter; the two ends hold all that lies beyond.",
        alt="The distribution of the logarithm of the ratio of new to old popularity, over questions in both releases.",
    )


def _spread(relations: list[dict[str, Any]]) -> Figure:
    rows = [row for row in relations if row["median"] is not None]
    points = [(row["median"], row["low"], row["high"]) for row in rows]
    return figures.ranges(
        "ratio-by-relation",
        [named(row["relation"]) for row in rows],
        {"median, and the range of nine in ten questions": points},
        (min(0.2, *(low for _, low, _ in points)), max(5.0, *(high for _, _, high in points))),
        x="popularity, new to old",
        caption="How popularity moved in each relation.",
        alt="For each relation the median ratio of new to old popularity and the range of nine in ten questions.",
    )


def _movers(db: duckdb.DuckDBPyConnection) -> list[Table]:
    """Tables of the subjects whose popularity rose most and fell most, each subject once."""
    tables = []
    for name, sign, order in (("risen", ">", "DESC"), ("fallen", "<", "ASC")):
        rows = db.sql(
            f"""SELECT subj, s_uri, old_s_pop, new_s_pop, pow(2, log2_ratio) AS ratio FROM compared
            WHERE moved AND log2_ratio {sign} 0 GROUP BY ALL ORDER BY ratio {order}, s_uri LIMIT {SHOWN}"""
        ).fetchall()
        if rows:
            head = ["subject", "Wikidata", "old views", "new views", "ratio"]
            shown = [[subject, _id(uri), *numbers] for subject, uri, *numbers in rows]
            tables.append(Table(name, f"The subjects whose popularity has {name} most.", head, shown))
    return tables


def _examples(db: duckdb.DuckDBPyConnection, name: str, title: str, which: str, total: int) -> Section:
    """A table of questions with one kind of change, sorted by their subjects' views, most viewed first."""
    if not total:
        return Section(name, title, [], "None.")
    rows = db.sql(
        f"""SELECT relation, old_question, new_question, obj, answers_added, answers_gone,
            coalesce(new_s_pop, old_s_pop) AS views FROM compared
        WHERE {which} ORDER BY views DESC NULLS LAST, relation, s_uri, o_uri LIMIT {SHOWN}"""
    ).fetchall()
    if name == "answers":
        head = ["question", "relation", "answers added", "answers gone", "views"]
        shown = [[new, named(r), _names(more), _names(less), views] for r, _, new, _, more, less, views in rows]
    elif name == "reworded":
        head = ["new question", "old question", "relation", "views"]
        shown = [[new, old, named(r), views] for r, old, new, _, _, _, views in rows]
    else:
        head = ["question", "relation", "object", "views"]
        shown = [[new or old, named(r), obj, views] for r, old, new, obj, _, _, views in rows]
    count = f"All {total:,}" if total <= SHOWN else f"{SHOWN} of {total:,}, all of which difference.parquet has"
    return Section(name, title, [Table(name, f"{count}; most viewed subjects first.", head, shown)])


def _names(answers: list[str]) -> str:
    more = len(answers) - NAMES
    return ", ".join(answers[:NAMES]) + f" and {more} more" * (more > 0) or NONE


def _id(uri: str) -> str:
    return uri.rsplit("/", 1)[-1]
