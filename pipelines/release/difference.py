"""Compare two releases of PopQA: questions, answers and popularity that changed, as tables.

Popularity depends on time (PopQA, limitations), so a release for a new month is compared with the one before. The same
triple (subject, relation, object) is the same question.
"""

from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.relations import BY_NAME
from pipelines.params import params
from pipelines.questions import published
from pipelines.report.page import Table, named, to_lines
from pipelines.sources.rejects import Rejects
from pipelines.storage import database, parquet, shards

FILES = ("popqa.parquet", "popqa.tsv", "popQA.tsv")  # the first of them that a release's folder has is read
KEY = "relation, s_uri, o_uri"
VIEWS = "CASE WHEN s_pop > 0 THEN s_pop END AS s_pop"  # the first releases have 0 where page views are not known
READ = ["relation", "s_uri", "o_uri", "subj", "obj", "question", "s_pop", "possible_answers"]
COMPARED = """WITH compared AS (
    SELECT relation, s_uri, o_uri,
        CASE WHEN old.question IS NULL THEN 'added' WHEN new.question IS NULL THEN 'gone' ELSE 'kept' END AS change,
        coalesce(new.subj, old.subj) AS subj, coalesce(new.obj, old.obj) AS obj,
        old.question AS old_question, new.question AS new_question,
        list_sort(list_filter(list_distinct(new.possible_answers),
            lambda name: NOT coalesce(list_contains(old.possible_answers, name), false))) AS answers_added,
        list_sort(list_filter(list_distinct(old.possible_answers),
            lambda name: NOT coalesce(list_contains(new.possible_answers, name), false))) AS answers_gone,
        old.s_pop AS old_s_pop, new.s_pop AS new_s_pop,
        log2((new.s_pop + 1) / (old.s_pop + 1)) AS log2_ratio -- null if one of them is
    FROM old FULL JOIN new USING (relation, s_uri, o_uri)
)
SELECT *, change = 'kept' AND len(answers_added) + len(answers_gone) > 0 AS other_answers,
    change = 'kept' AND old_question != new_question AS reworded,
    change = 'kept' AND old_s_pop IS DISTINCT FROM new_s_pop AS moved
FROM compared"""
HEAD = ("relation", "old", "new", "added", "gone", "other answers", "reworded", "popularity moved", "median ratio")
CONCERNED = "change != 'kept' OR other_answers OR reworded OR moved"
# A subject's answers by relation, of however many questions: when its object changes, so does the triple.
CHANGED = """WITH {}
SELECT relation, s_uri, new.subj, new.question, old.answers AS old_answers, new.answers AS new_answers
FROM old_answers AS old JOIN new_answers AS new USING (relation, s_uri)
WHERE NOT list_has_any(old.answers, new.answers)""".format(
    ", ".join(
        f"""{name}_answers AS (
            SELECT relation, s_uri, min(subj) AS subj, min(question) AS question,
                list_sort(list_distinct(flatten(list(possible_answers)))) AS answers
            FROM {name} GROUP BY ALL)"""
        for name in ("old", "new")
    )
)


def write_difference(old: Path, new: Path, out: Path, *, ingest: params.Ingest, threads: int) -> list[str]:
    """Write difference.parquet and changed.parquet into the folder `out`; returns a summary's lines.

    changed.parquet has the subjects and relations that both ask about without an answer in common: what was right is
    wrong now.

    `old` and `new` are popqa.parquet or files in the published format, or folders with such a file. Raises
    LongtailError where a file can't be read or has two questions on one triple.
    """
    with database.connect(ingest.memory_gb, threads) as db:
        heads = [_load(db, name, path, ingest) for name, path in (("old", old), ("new", new))]
        db.execute(f"CREATE TEMP TABLE compared AS {COMPARED}")
        with shards.atomic(out / "difference.parquet") as table, shards.atomic(out / "changed.parquet") as changed:
            database.write_query(db, f"SELECT * FROM compared WHERE {CONCERNED} ORDER BY {KEY}", table)
            database.write_query(db, f"{CHANGED} ORDER BY relation, s_uri", changed)
            replaced = parquet.metadata(changed).num_rows
        return [f"old: {heads[0]}", f"new: {heads[1]}", *_summary(db, replaced)]


def _load(db: duckdb.DuckDBPyConnection, name: str, path: Path, ingest: params.Ingest) -> str:
    """Read a release's questions into the table `name`; returns a description of the release."""
    file = next((path / name for name in FILES if (path / name).is_file()), path)
    if not file.is_file():
        raise LongtailError(
            f"{path}: no release, expected popqa.parquet, a file in the published format, or its folder"
        )
    rejects = Rejects(ingest.max_reject_share)
    if file.suffix == ".parquet":
        names = parquet.schema_of(file, "get the release again").names
        if missing := [column for column in [*READ, "month"] if column not in names]:
            raise LongtailError(f"{file}: no column {', '.join(missing)}, expected a popqa.parquet")
        database.view(db, f"{name}_rows", file)
    else:
        rows = published.read_published(file, rejects)
        relations = pa.array([BY_NAME[prop] for prop in rows["prop"].to_pylist()], pa.string())
        rows = rows.append_column("relation", relations).append_column("month", pa.nulls(len(rows), pa.string()))
        db.register(f"{name}_rows", rows)
    query = f"SELECT {', '.join(READ)}, month FROM {name}_rows"
    db.execute(f"CREATE TEMP TABLE {name} AS SELECT * REPLACE ({VIEWS}) FROM ({query})")
    counted = f"SELECT count(*), count(DISTINCT ({KEY})), min(month), max(month) FROM {name}"
    questions, triples, first, last = database.row(db, counted)
    if triples < questions:
        raise LongtailError(f"{file}: {questions} questions on {triples} triples, expected one on each")
    month = f" of {first}" * bool(first) + f" to {last}" * (first != last)
    rejected = f"; {rejects.bad.total()} rows could not be read" * bool(rejects.bad)
    return f"{questions:,} questions{month} ({file.parent.name}/{file.name}{rejected})"


def _summary(db: duckdb.DuckDBPyConnection, replaced: int) -> list[str]:
    """What the table `compared` holds, in lines: for all questions, then a table by relation, largest first.

    The ratios of new to old popularity are over questions whose popularity both releases know.
    """
    counted = database.read_rows(
        db,
        """SELECT relation, count(*) FILTER (change != 'added') AS old, count(*) FILTER (change != 'gone') AS new,
            count(*) FILTER (change = 'added') AS added, count(*) FILTER (change = 'gone') AS gone,
            count(*) FILTER (other_answers) AS answers, count(*) FILTER (reworded) AS reworded,
            count(*) FILTER (moved) AS moved, count(*) FILTER (moved AND log2_ratio IS NULL) AS unknown,
            pow(2, quantile_cont(log2_ratio, 0.05)) AS low, pow(2, quantile_cont(log2_ratio, 0.5)) AS median,
            pow(2, quantile_cont(log2_ratio, 0.95)) AS high
        FROM compared GROUP BY GROUPING SETS ((), (relation)) ORDER BY relation IS NOT NULL, new DESC, relation""",
    )
    everything, *relations = counted.to_pylist()
    said = [
        "{added:,} added, {gone:,} gone; in both: {answers:,} with other answers, {reworded:,} reworded, "
        "{moved:,} with another popularity"
    ]
    said += ["no answer in common: {replaced:,} subjects and relations (changed.parquet)"] * bool(replaced)
    said += ["popularity known to one release only: {unknown:,}"] * bool(everything["unknown"])
    if everything["median"] is not None:
        said.append("popularity, new to old: median {median:.2f}, 90 % from {low:.2f} to {high:.2f}")
    lines = [line.format(**everything, replaced=replaced) for line in said]
    names = ("old", "new", "added", "gone", "answers", "reworded", "moved", "median")
    rows = [[named(row["relation"]), *(row[name] for name in names)] for row in relations]
    return [*lines, *to_lines(Table("relations", "", HEAD, rows))] if rows else lines
