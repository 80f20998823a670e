"""What differs between two releases' PopQA: a table of questions, and a summary.

Popularity depends on time (PopQA, limitations), so a release for a new month is compared with the
one before. The same triple (subject, relation, object) is the same question.
"""

from pathlib import Path

import duckdb

from pipelines.check.table_difference import pair_rows
from pipelines.pages.section import Table
from pipelines.pages.table_texts import to_lines
from pipelines.pages.values import named
from pipelines.storage import database
from pipelines.storage.atomic import atomic

FILE = "popqa.parquet"  # of a release
KEY = ("relation", "s_uri", "o_uri")
COMPARED = """WITH compared AS (
    SELECT relation, s_uri, o_uri, change,
        coalesce(new_row.subj, old_row.subj) AS subj, coalesce(new_row.obj, old_row.obj) AS obj,
        old_row.question AS old_question, new_row.question AS new_question,
        list_sort(list_filter(list_distinct(new_row.possible_answers),
            lambda name: NOT coalesce(list_contains(old_row.possible_answers, name), false)
        )) AS answers_added,
        list_sort(list_filter(list_distinct(old_row.possible_answers),
            lambda name: NOT coalesce(list_contains(new_row.possible_answers, name), false)
        )) AS answers_gone,
        old_row.s_pop AS old_s_pop, new_row.s_pop AS new_s_pop,
        log2((new_row.s_pop + 1) / (old_row.s_pop + 1)) AS log2_ratio -- null if one of them is
    FROM pairs
)
SELECT *, change = 'kept' AND len(answers_added) + len(answers_gone) > 0 AS other_answers,
    change = 'kept' AND old_question != new_question AS reworded,
    change = 'kept' AND old_s_pop IS DISTINCT FROM new_s_pop AS moved
FROM compared"""
DIFFERS = "change != 'kept' OR other_answers OR reworded OR moved"
COUNTS = """SELECT relation,
    count(*) FILTER (change != 'added') AS old, count(*) FILTER (change != 'gone') AS new,
    count(*) FILTER (change = 'added') AS added, count(*) FILTER (change = 'gone') AS gone,
    count(*) FILTER (other_answers) AS answers, count(*) FILTER (reworded) AS reworded,
    count(*) FILTER (moved) AS moved,
    count(*) FILTER (moved AND log2_ratio IS NULL) AS unknown,
    pow(2, quantile_cont(log2_ratio, 0.05)) AS low,
    pow(2, quantile_cont(log2_ratio, 0.5)) AS median,
    pow(2, quantile_cont(log2_ratio, 0.95)) AS high
FROM compared GROUP BY GROUPING SETS ((), (relation))
ORDER BY relation IS NOT NULL, new DESC, relation"""
SUMMARY_COLUMNS = {  # of COUNTS -> what the summary calls them
    "relation": "relation",
    "old": "old",
    "new": "new",
    "added": "added",
    "gone": "gone",
    "answers": "other answers",
    "reworded": "reworded",
    "moved": "popularity moved",
    "median": "median ratio",
}


def write_difference(db: duckdb.DuckDBPyConnection, old: Path, new: Path, out: Path) -> list[str]:
    """Write difference.parquet into the folder `out`; returns a summary's lines.

    `old` and `new` are folders of releases.
    """
    lines = []
    for name, folder in (("old", old), ("new", new)):
        database.view(db, name, folder / FILE)
        lines.append(f"{name}: {_describe(db, name)} ({folder.name}/{FILE})")
    pair_rows(db, KEY)
    db.execute(f"CREATE TEMP TABLE compared AS {COMPARED}")
    with atomic(out / "difference.parquet") as table:
        rows = f"SELECT * FROM compared WHERE {DIFFERS} ORDER BY {', '.join(KEY)}"
        database.write_query(db, rows, table)
    return [*lines, *_summary(db)]


def _describe(db: duckdb.DuckDBPyConnection, name: str) -> str:
    """How many questions a release has, and of which months."""
    counted = f"SELECT count(*), min(month), max(month) FROM {name}"
    questions, first_month, last_month = database.row(db, counted)
    description = f"{questions:,} questions of {first_month}"
    if first_month != last_month:
        description += f" to {last_month}"
    return description


def _summary(db: duckdb.DuckDBPyConnection) -> list[str]:
    """What the table `compared` holds: lines on all questions, then a table by relation."""
    everything, *relations = database.read_rows(db, COUNTS).to_pylist()
    in_both = "in both: {answers:,} with other answers, {reworded:,} reworded, {moved:,} with"
    templates = ["{added:,} added, {gone:,} gone; " + in_both + " another popularity"]
    if everything["unknown"]:
        templates.append("popularity known to one release only: {unknown:,}")
    if everything["median"] is not None:
        templates.append(
            "popularity, new to old: median {median:.2f}, 90 % from {low:.2f} to {high:.2f}"
        )
    lines = [template.format(**everything) for template in templates]
    if not relations:
        return lines

    rows = []
    for counts in relations:
        counts["relation"] = named(counts["relation"])
        rows.append([counts[name] for name in SUMMARY_COLUMNS])
    heads = tuple(SUMMARY_COLUMNS.values())
    return [*lines, *to_lines(Table("relations", "", heads, rows))]
