"""Write a release as a version, and what differs between two: a table of PopQA's questions, and CHANGELOG.md.

A release has the run's tables, with all that others need to load, judge and cite them; docs/releases.md lists the files
of release/<version>/. The same data, params, commit and previous release give the same bytes. A release that fails
leaves nothing behind.

The change is major where columns or tables are gone or have another type. It is minor where rows are added or gone, or
columns or tables are new. It is a patch where only values changed. Without a change there is no release.

Popularity depends on time (PopQA, limitations), so a release for a new month is compared with the one before. The same
triple (subject, relation, object) is the same question.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.language.relations import BY_NAME
from pipelines.pages.section import Table
from pipelines.pages.table_texts import to_lines
from pipelines.pages.values import named
from pipelines.params import params
from pipelines.questions import published
from pipelines.release import card, contents
from pipelines.sources.rejects import Rejects
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic, scratch_folder, sweep, write_json

FIRST = "1.0.0"
CHANGELOG, HEAD = "CHANGELOG.md", "# Changelog\n"
LEVELS = ("major", "minor", "patch")
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
FILES = (
    "popqa.parquet",
    "popqa.tsv",
    "popQA.tsv",
)  # the first of them that a release's folder has is read
KEY = "relation, s_uri, o_uri"
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
HEADS = (
    "relation",
    "old",
    "new",
    "added",
    "gone",
    "other answers",
    "reworded",
    "popularity moved",
    "median ratio",
)
CONCERNED = "change != 'kept' OR other_answers OR reworded OR moved"
MANIFEST = Path("raw/manifest.json")


def write_release(
    data: Path, out: Path, made_by: Mapping[str, Any], *, version: str | None, machine: Mapping[str, str],
    ingest: params.Ingest, threads: int,
) -> Path | None:  # fmt: skip
    """Write `out`/<version> from `data`, the folder of datasets; None where nothing changed since the last release.

    `made_by` has commit, commit_date (YYYY-MM-DD), params, dvc, the hashes of the stages' outputs, and citation, as
    `card.read_citation` gives it. `machine` names what must not be in a release, each with its pattern. Raises
    LongtailError, and leaves `out` as it was, where a check fails or `version` is lower than the changes call for.
    """
    if version:
        numbers(version)
    if not (data / MANIFEST).is_file():
        raise LongtailError(
            f"{data / MANIFEST}: no such file, expected the list of sources; `longtail run` makes it"
        )
    manifest = json.loads(
        (data / MANIFEST).read_text(encoding="utf-8")
    )  # the raw files that the data were made from
    spoken = language.read_language(made_by["params"].get("language", "en"))
    sweep()
    with scratch_folder() as holder:
        folder, previous = Path(holder) / "release", latest(out)
        folder.mkdir()
        if previous:
            contents.check_sums(previous)
        with database.connect(ingest.memory_gb, threads) as db:
            contents.write_tables(db, data, folder)
            contents.write_rules(data, folder)
            contents.check_tables(db, folder, spoken)
            changes = changes_since(db, previous, folder)
            if previous and not changes["level"]:
                return None
            folder = folder.rename(folder.with_name(next_version(changes, version)))
            write_json(folder / "changes.json", changes)
            moved = []
            if previous:
                limits = {"ingest": ingest, "threads": threads}
                moved = write_difference(previous, folder, folder / "difference", **limits)
            newest = write_changelog(folder, previous, made_by["commit_date"], changes, moved)
            made = {name: value for name, value in made_by.items() if name != "citation"}
            made |= {"params": contents.shown(made_by["params"]), "sources": manifest}
            made |= {"version": folder.name, "previous": changes["previous"]}
            write_json(folder / "provenance.json", made)
            card.write_texts(db, folder, changes, made_by, manifest, newest)
            card.write_harness_task(folder, made_by["params"])
        contents.check_no_secrets(folder, machine)
        sums = (f"{contents.sha256(folder / name)}  {name}\n" for name in contents.files(folder))
        (folder / contents.SUMS).write_text("".join(sums), encoding="utf-8")
        if (target := out / folder.name).exists():
            raise LongtailError(
                f"{target}: is there already, expected no such folder; releases are never written over"
            )
        with atomic(target) as whole:
            shutil.copytree(folder, whole)
        return target


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version: (1, 10, 0) for 1.10.0. Raises LongtailError for any other text."""
    if not VERSION.fullmatch(version):
        raise LongtailError(f"{version}: no version, expected three numbers as 1.0.0")
    return tuple(map(int, version.split(".")))


def latest(out: Path) -> Path | None:
    """The folder of the highest version below `out`, if there is any."""
    releases = [
        path
        for path in out.glob("*")
        if VERSION.fullmatch(path.name) and (path / contents.SUMS).is_file()
    ]
    return max(releases, key=lambda path: numbers(path.name), default=None)


def changes_since(db: duckdb.DuckDBPyConnection, old: Path | None, new: Path) -> dict[str, Any]:
    """What changed from the release `old`, or None for the first release, to the tables in `new`.

    "previous" is a version or None. "level" is one of LEVELS, or None without a change or a previous release. "tables"
    has for each table "rows", "columns_added", "columns_gone", "rows_added", "rows_gone", "rows_changed", and
    "values_changed" by column. All columns and rows of a table that only one release has are added or gone.
    """
    changed = {table.name: _table_changes(db, table, old, new) for table in contents.TABLES}
    changed = {name: entry for name, entry in changed.items() if entry}
    kinds = {kind for entry in changed.values() for kind, amount in entry.items() if amount}
    level = None
    if "columns_gone" in kinds:
        level = "major"
    elif kinds & {"columns_added", "rows_added", "rows_gone"}:
        level = "minor"
    elif "rows_changed" in kinds:
        level = "patch"
    return {"previous": old and old.name, "level": old and level, "tables": changed}


def next_version(changes: dict[str, Any], wanted: str | None) -> str:
    """The version that the changes call for, or `wanted`; LongtailError where that is below it."""
    if not changes["previous"]:
        return wanted or FIRST
    parts, place = list(numbers(changes["previous"])), LEVELS.index(changes["level"])
    derived = ".".join(
        map(str, [*parts[:place], parts[place] + 1, *(0 for _ in parts[place + 1 :])])
    )
    if wanted and numbers(wanted) < numbers(derived):
        too_low = f"too low a version for the {changes['level']} change since {changes['previous']}"
        raise LongtailError(f"{wanted}: {too_low}, expected {derived} or above")
    return wanted or derived


def write_changelog(
    folder: Path, previous: Path | None, date: str, changes: Mapping[str, Any], moved: Sequence[str]
) -> str:
    """Write CHANGELOG.md, newest version first, with the lines `moved` in a block; returns the newest one's part."""
    facts = {"version": folder.name, "date": date, "changes": changes, "moved": moved}
    newest = card.render("changelog.md.j2", facts).strip()
    kept = previous / CHANGELOG if previous else None
    earlier = kept.read_text(encoding="utf-8").removeprefix(HEAD) if kept and kept.is_file() else ""
    (folder / CHANGELOG).write_text(f"{HEAD}\n{newest}\n{earlier}", encoding="utf-8")
    return newest


def _table_changes(
    db: duckdb.DuckDBPyConnection, table: contents.Table, old: Path | None, new: Path
) -> dict[str, Any] | None:
    """The entry of one table in `changes`; None where neither release has the table."""
    files = [folder and folder / table.parquet for folder in (old, new)]
    files = [file if file and file.is_file() else None for file in files]
    described = (
        database.ask("DESCRIBE FROM rows", rows=file).fetchall() if file else [] for file in files
    )
    before, after = ({name: kind for name, kind, *_ in columns} for columns in described)
    if not before and not after:
        return None
    rows = [parquet.metadata(file).num_rows if file else 0 for file in files]
    entry = {
        "rows": rows[1],
        "columns_added": [name for name in after if name not in before],
        "columns_gone": [name for name in before if before[name] != after.get(name)],
        "rows_added": rows[1],
        "rows_gone": rows[0],
        "rows_changed": 0,
        "values_changed": {},
    }
    if before and after and set(table.key) <= before.keys() & after.keys():
        compared = [
            name for name in after if before.get(name) == after[name] and name not in table.key
        ]
        differs = [f"old.{name} IS DISTINCT FROM new.{name}" for name in compared] or ["false"]
        for name, file in zip(("old_rows", "new_rows"), files, strict=True):
            database.view(db, name, file, numbered=True)
        added, gone, changed, *values = db.sql(
            f"""SELECT count(*) FILTER (old.row IS NULL), count(*) FILTER (new.row IS NULL),
                count(*) FILTER (old.row + new.row IS NOT NULL AND ({" OR ".join(differs)})),
                {", ".join(f"count(*) FILTER (old.row + new.row IS NOT NULL AND {differing})" for differing in differs)}
            FROM (SELECT *, file_row_number AS row FROM old_rows) AS old
            FULL JOIN (SELECT *, file_row_number AS row FROM new_rows) AS new USING ({", ".join(table.key)})"""
        ).fetchall()[0]
        entry |= {"rows_added": added, "rows_gone": gone, "rows_changed": changed}
        entry["values_changed"] = {name: n for name, n in zip(compared, values, strict=False) if n}
    return entry


def write_difference(
    old: Path, new: Path, out: Path, *, ingest: params.Ingest, threads: int
) -> list[str]:
    """Write difference.parquet into the folder `out`; returns a summary's lines.

    `old` and `new` are popqa.parquet or files in the published format, or folders with such a file. Raises
    LongtailError where a file can't be read or has two questions on one triple.
    """
    with database.connect(ingest.memory_gb, threads) as db:
        heads = [_load(db, name, path, ingest) for name, path in (("old", old), ("new", new))]
        db.execute(f"CREATE TEMP TABLE compared AS {COMPARED}")
        with atomic(out / "difference.parquet") as table:
            database.write_query(
                db, f"SELECT * FROM compared WHERE {CONCERNED} ORDER BY {KEY}", table
            )
        return [f"old: {heads[0]}", f"new: {heads[1]}", *_summary(db)]


def _load(db: duckdb.DuckDBPyConnection, name: str, path: Path, ingest: params.Ingest) -> str:
    """Read a release's questions into the table `name`; returns a description of the release."""
    file = next((path / name for name in FILES if (path / name).is_file()), path)
    if not file.is_file():
        expected = "popqa.parquet, a file in the published format, or its folder"
        raise LongtailError(f"{path}: no release, expected {expected}")
    rejects = Rejects(ingest.max_reject_share)
    if file.suffix == ".parquet":
        names = parquet.schema_of(file, "get the release again").names
        if missing := [column for column in [*READ, "month"] if column not in names]:
            raise LongtailError(f"{file}: no column {', '.join(missing)}, expected a popqa.parquet")
        database.view(db, f"{name}_rows", file)
    else:
        rows = published.read_published(file, rejects)
        relations = pa.array([BY_NAME[prop] for prop in rows["prop"].to_pylist()], pa.string())
        rows = rows.append_column("relation", relations).append_column(
            "month", pa.nulls(len(rows), pa.string())
        )
        db.register(f"{name}_rows", rows)
    query = f"SELECT {', '.join(READ)}, month FROM {name}_rows"
    db.execute(f"CREATE TEMP TABLE {name} AS {query}")
    counted = f"SELECT count(*), count(DISTINCT ({KEY})), min(month), max(month) FROM {name}"
    questions, triples, first, last = database.row(db, counted)
    if triples < questions:
        raise LongtailError(
            f"{file}: {questions} questions on {triples} triples, expected one on each"
        )
    month = f" of {first}" * bool(first) + f" to {last}" * (first != last)
    rejected = f"; {rejects.bad.total()} rows could not be read" * bool(rejects.bad)
    return f"{questions:,} questions{month} ({file.parent.name}/{file.name}{rejected})"


def _summary(db: duckdb.DuckDBPyConnection) -> list[str]:
    """What the table `compared` holds: lines on all questions, then a table by relation, largest first."""
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
    said += ["popularity known to one release only: {unknown:,}"] * bool(everything["unknown"])
    if everything["median"] is not None:
        said.append(
            "popularity, new to old: median {median:.2f}, 90 % from {low:.2f} to {high:.2f}"
        )
    lines = [line.format(**everything) for line in said]
    names = ("old", "new", "added", "gone", "answers", "reworded", "moved", "median")
    rows = [[named(row["relation"]), *(row[name] for name in names)] for row in relations]
    return [*lines, *to_lines(Table("relations", "", HEADS, rows))] if rows else lines
