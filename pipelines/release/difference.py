"""What differs between two releases' PopQA: a table of questions, and a summary.

Popularity depends on time (PopQA, limitations), so a release for a new month is compared with the
one before. The same triple (subject, relation, object) is the same question.
"""

from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.check.table_difference import pair_rows
from pipelines.errors import LongtailError
from pipelines.language.relations import BY_NAME
from pipelines.pages.section import Table
from pipelines.pages.table_texts import to_lines
from pipelines.pages.values import named
from pipelines.params import params
from pipelines.questions import published
from pipelines.sources.rejects import Rejects
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic

FILES = ("popqa.parquet", "popqa.tsv", "popQA.tsv")  # the first that a release's folder has is read
KEY = ("relation", "s_uri", "o_uri")
COLUMNS = (*KEY, "subj", "obj", "question", "s_pop", "possible_answers", "month")
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


def write_difference(
    old: Path, new: Path, out: Path, *, ingest: params.Ingest, threads: int
) -> list[str]:
    """Write difference.parquet into the folder `out`; returns a summary's lines.

    `old` and `new` are popqa.parquet or files in the published format, or folders with such a file.
    Raises LongtailError where a file can't be read or has two questions on one triple.
    """
    with database.connect(ingest.memory_gb, threads) as db:
        old_release = _load(db, "old", old, ingest)
        new_release = _load(db, "new", new, ingest)
        pair_rows(db, KEY)
        db.execute(f"CREATE TEMP TABLE compared AS {COMPARED}")
        with atomic(out / "difference.parquet") as table:
            rows = f"SELECT * FROM compared WHERE {DIFFERS} ORDER BY {', '.join(KEY)}"
            database.write_query(db, rows, table)
        return [f"old: {old_release}", f"new: {new_release}", *_summary(db)]


def _load(db: duckdb.DuckDBPyConnection, name: str, path: Path, ingest: params.Ingest) -> str:
    """Read a release's questions into the table `name`; returns a description of the release."""
    file = next((path / name for name in FILES if (path / name).is_file()), path)
    if not file.is_file():
        expected = "popqa.parquet, a file in the published format, or its folder"
        raise LongtailError(f"{path}: no release, expected {expected}")

    rejects = Rejects(ingest.max_reject_share)
    if file.suffix == ".parquet":
        _check_columns(file)
        database.view(db, f"{name}_rows", file)
    else:
        db.register(f"{name}_rows", _read_published(file, rejects))
    db.execute(f"CREATE TEMP TABLE {name} AS SELECT {', '.join(COLUMNS)} FROM {name}_rows")

    triples = f"count(DISTINCT ({', '.join(KEY)}))"
    counted = f"SELECT count(*), {triples}, min(month), max(month) FROM {name}"
    questions, triples, first_month, last_month = database.row(db, counted)
    if triples < questions:
        found = f"{questions} questions on {triples} triples"
        raise LongtailError(f"{file}: {found}, expected one on each")
    description = f"{questions:,} questions"
    if first_month:
        description += f" of {first_month}"
    if first_month != last_month:
        description += f" to {last_month}"
    source = f"{file.parent.name}/{file.name}"
    if rejects.bad:
        source += f"; {rejects.bad.total()} rows could not be read"
    return f"{description} ({source})"


def _check_columns(file: Path) -> None:
    names = parquet.schema_of(file, "get the release again").names
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        raise LongtailError(f"{file}: no column {', '.join(missing)}, expected a popqa.parquet")


def _read_published(file: Path, rejects: Rejects) -> pa.Table:
    """The questions of a file in the published format, which has no month."""
    rows = published.read_published(file, rejects)
    properties = rows["prop"].to_pylist()
    relations = pa.array([BY_NAME[name] for name in properties], pa.string())
    rows = rows.append_column("relation", relations)
    return rows.append_column("month", pa.nulls(len(rows), pa.string()))


def _summary(db: duckdb.DuckDBPyConnection) -> list[str]:
    """What the table `compared` holds: lines on all questions, then a table by relation."""
    everything, *relations = database.read_rows(db, COUNTS).to_pylist()
    in_both = "in both: {answers:,} with other answers, {reworded:,} reworded, {moved:,} with"
    templates = ["{added:,} added, {gone:,} gone; " + in_both + " another popularity"]
    if everything["unknown"]:
        templates.append("popularity known to one release only: {unknown:,}")
    if everything["median"] is not None:
        ratio = "median {median:.2f}, 90 % from {low:.2f} to {high:.2f}"
        templates.append(f"popularity, new to old: {ratio}")
    lines = [template.format(**everything) for template in templates]
    if not relations:
        return lines

    rows = []
    for counts in relations:
        counts["relation"] = named(counts["relation"])
        rows.append([counts[name] for name in SUMMARY_COLUMNS])
    heads = tuple(SUMMARY_COLUMNS.values())
    return [*lines, *to_lines(Table("relations", "", heads, rows))]
