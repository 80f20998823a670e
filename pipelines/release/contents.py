"""What a release holds: tables of tables.yaml as Parquet and TSV, checked; the rules; all files' checksums; no secrets.

PopQA's TSV has the published 17 columns in the published format, its Parquet file five more. Of EntityQuestions a
release has the ids of the questions, not their text. A table that the last run did not make, or that has no row, is
left out. SHA256SUMS is in the format of `sha256sum -c`. Secrets and paths of the machine are left out of params, and
looked for in every text.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb
import pyarrow as pa
import yaml

from pipelines.adaptive import rule
from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.language.relations import read_relations
from pipelines.questions import published
from pipelines.storage import database, parquet
from pipelines.storage.atomic import write_json

BATCH = 100_000  # rows
SUMS = "SHA256SUMS"
RULES = "rules"  # <question set>/<language model>/<method>.json
# The same in every release, for ever: whoever filters a training text by it must find all of them.
CANARY = "longtail:canary:81c27560-b743-427d-b2a7-8413bf9d8cd7"
NAMED = 5  # faults that an error names; it counts the others
TEXTS = {".json", ".md", ".tsv", ".html", ".cff", ".yaml", ".py"}
LEFT_OUT = ("contact", "compute.dask")  # params that say who computes where
SHAPES = {  # patterns by which a secret is known
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "an address with a password": r"\w+://[^\s/:@\"']+:[^\s/:@\"']+@",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a GitHub token": r"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{22,})",
    "an AWS key": r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
}
PATHS = {  # in tables such a text may be an answer, so there they are not looked for
    "a path of a machine": r"(?<![\w/.:<])/(home|Users|root|mnt|tmp|var|srv|opt|work|media|data|scratch)/[\w.-]",
}
ESCAPE = re.compile(r"\\(.)")  # JSON's
SECRET = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)", re.IGNORECASE
)
SHORTEST = 8  # characters of a secret: a shorter value of a variable called TOKEN is a setting


@dataclass(frozen=True)
class Table:
    """An entry of tables.yaml, which says what each field is."""

    name: str
    title: str
    source: str
    key: list[str]
    split: str
    columns: dict[str, tuple[str, str]]
    nullable: list[str]
    bad: dict[str, dict[str, str]]
    agreeing: list[tuple[str, str, str]] = field(default_factory=list)
    unique: list[str] = field(default_factory=list)

    @property
    def parquet(self) -> str:
        return f"{self.name}.parquet"

    @property
    def tsv(self) -> str:
        return f"{self.name}.tsv"


_ENTRIES = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
TABLES = POPQA, LINKS, THRESHOLDS = tuple(Table(name, **entry) for name, entry in _ENTRIES.items())


def present(folder: Path) -> list[Table]:
    return [table for table in TABLES if (folder / table.parquet).is_file()]


def write_tables(db: duckdb.DuckDBPyConnection, data: Path, folder: Path) -> None:
    """Copy each table from the datasets in `data` to `folder`; LongtailError where PopQA has no question."""
    for table in TABLES:
        source = data / table.source
        if not source.is_file() or not parquet.metadata(source).num_rows:
            continue
        database.view(db, "source", source, numbered=True)
        rows = f"SELECT {', '.join(table.columns)} FROM source ORDER BY file_row_number"
        database.write_query(db, rows, folder / table.parquet)
        if table is POPQA:
            published.write_tsv(parquet.batches(folder / table.parquet, BATCH), folder / table.tsv)
        else:
            db.execute(
                f"COPY ({rows}) TO ? (FORMAT csv, DELIMITER '\t', HEADER)",
                [str(folder / table.tsv)],
            )
    if not (folder / POPQA.parquet).is_file():
        raise LongtailError(
            f"{data / POPQA.source}: no question in it, expected PopQA; `longtail run` makes it"
        )


def check_tables(db: duckdb.DuckDBPyConnection, folder: Path, spoken: Language = ENGLISH) -> None:
    """Check the tables of a release's folder by tables.yaml; they stay in `db`, each with a column `row`.

    Questions are in the language `spoken`. Raises LongtailError that names the first bad rows, each with its place in
    the file and its key, and counts all.
    """
    relations = [
        (pid, relation.name, relation.template)
        for pid, relation in read_relations(language=spoken).items()
    ]
    columns = pa.schema([(name, pa.string()) for name in ("pid", "name", "template")])
    db.register("relations", pa.table(list(zip(*relations, strict=True)), schema=columns))
    db.execute("CREATE TEMP TABLE faults (file VARCHAR, row BIGINT, key VARCHAR, why VARCHAR)")
    for table in present(folder):
        database.view(db, "rows", folder / table.parquet, numbered=True)
        renumbered = "SELECT * EXCLUDE file_row_number, file_row_number + 1 AS row FROM rows"
        db.execute(f"CREATE TEMP TABLE {table.name} AS {renumbered}")
        _check_rows(db, table)
    (count,) = database.row(db, "SELECT count(*) FROM faults")
    if count:
        first = db.sql(f"FROM faults ORDER BY ALL LIMIT {NAMED}").fetchall()
        named = "; ".join(f"{file} row {row} ({key}): {why}" for file, row, key, why in first)
        more = f"; and {count - NAMED:,} more" * (count > NAMED)
        raise LongtailError(f"not fit for a release, {count:,} faults: {named}{more}")


def _check_rows(db: duckdb.DuckDBPyConnection, table: Table) -> None:
    name = table.name
    key = (
        "question_id"
        if "question_id" in table.columns
        else f"concat_ws(' ', {', '.join(table.key)})"
    )

    def insert(why: str, rows: str) -> None:
        db.execute(
            f"INSERT INTO faults SELECT $file, row, {key}, {why} FROM {rows}",
            {"file": table.parquet},
        )

    for column in table.columns.keys() - table.nullable:
        insert(f"'it has no {column}'", f"{name} WHERE {column} IS NULL")
    for column, conditions in table.bad.items():
        value = (
            f"array_to_string({column}, '|')" if table.columns[column][0] == "VARCHAR[]" else column
        )
        for condition, expected in conditions.items():
            bad, quoted = condition.replace("{column}", column), expected.replace("'", "''")
            rows = f"{name} LEFT JOIN relations ON pid = relation WHERE ({bad}) AND {column} IS NOT NULL"
            insert(f"'its {column} is ' || {value} || ', expected {quoted}'", rows)
    for columns in [*table.unique, ", ".join(table.key)]:
        numbered = f"(SELECT *, min(row) OVER (PARTITION BY {columns}) AS first FROM {name})"
        insert(f"'its {columns} is that of row ' || first", f"{numbered} WHERE row > first")
    for columns, same, what in table.agreeing:
        compared = f"""(SELECT *, {same} AS value, first_value({same}) OVER other AS expected,
                min(row) OVER other AS first
            FROM {name} WHERE s_uri IS NOT NULL WINDOW other AS (PARTITION BY {columns} ORDER BY row))"""
        insert(
            f"'its {what} is not that of row ' || first",
            f"{compared} WHERE value IS DISTINCT FROM expected",
        )


def write_rules(data: Path, folder: Path) -> None:
    """Write each rule in use below the release's `folder`, and their JSON schema, if the release has thresholds."""
    if not (folder / THRESHOLDS.parquet).is_file():
        return
    source = data / THRESHOLDS.source.replace(".parquet", ".json")
    for name, entry in rule.named(json.loads(source.read_text(encoding="utf-8"))).items():
        write_json(folder / RULES / f"{name}.json", entry)
    shutil.copyfile(rule.JSON_SCHEMA, folder / rule.JSON_SCHEMA.name)


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_sums(folder: Path) -> int:
    """Compare all files with SHA256SUMS, and return their number; LongtailError names those that differ."""
    if not (folder / SUMS).is_file():
        raise LongtailError(f"{folder}: no {SUMS} in it, expected a release's folder")
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    there = set(files(folder))
    faults = [f"{name} is missing" for name in listed if name not in there]
    faults += [
        f"{name} is changed"
        for name in listed
        if name in there and sha256(folder / name) != listed[name]
    ]
    faults += [f"{name} is not listed" for name in sorted(there - listed.keys())]
    if faults:
        raise LongtailError(f"{folder}: not as it was released: {', '.join(faults)}; get it again")
    return len(listed)


def files(folder: Path) -> list[str]:
    """The files below a release's folder but SHA256SUMS, sorted by path."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path != folder / SUMS]
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def rules(folder: Path) -> dict[str, str]:
    """The files of a release's rules, by name: popqa/opt-13b/bm25 is in rules/popqa/opt-13b/bm25.json."""
    return {
        name[len(RULES) + 1 : -len(".json")]: name
        for name in files(folder)
        if name.startswith(f"{RULES}/")
    }


def of_machine(environment: Mapping[str, str], folders: Iterable[Path]) -> dict[str, str]:
    """Patterns of what only this machine has, by name: values of secret environment variables, and folders."""
    known = {
        name: value
        for name, value in environment.items()
        if SECRET.search(name) and len(value) >= SHORTEST
    }
    secrets = {f"${name}": re.escape(value) for name, value in known.items()}
    paths = {
        path: rf"(?<![\w.]){re.escape(str(path))}(?![\w-])" for path in folders if path != Path("/")
    }
    return secrets | {f"the folder {path.name}": pattern for path, pattern in paths.items()}


def shown(value: Any, prefix: str = "") -> Any:
    """Params as a release shows them: without LEFT_OUT, and with only the last name of a path outside the project."""
    if isinstance(value, Mapping):
        names = [name for name in value if f"{prefix}{name}" not in LEFT_OUT]
        return {name: shown(value[name], f"{prefix}{name}.") for name in names}
    if isinstance(value, list):
        return [shown(item, prefix) for item in value]
    if isinstance(value, str):
        path = PurePosixPath(value)
        if path.is_absolute() or value.startswith("~") or ".." in path.parts:
            return f"(outside the project)/{path.name}"
    return value


def check_no_secrets(folder: Path, machine: Mapping[str, str]) -> None:
    """Raise LongtailError, which shows no secret, where a text below `folder` has one, or a path of the machine."""
    for file in sorted(path for path in folder.rglob("*") if path.suffix in TEXTS):
        name = file.relative_to(folder).as_posix()
        shapes = SHAPES | (PATHS if file.suffix not in {".tsv", ".html"} else {}) | dict(machine)
        text = ESCAPE.sub(
            lambda escape: " " if escape[1] in "nrt" else escape[1],
            file.read_text(encoding="utf-8"),
        )
        for what, shape in shapes.items():
            if hit := re.search(shape, text):
                line = text.count("\n", 0, hit.start()) + 1
                raise LongtailError(
                    f"{name}: {what} in line {line}, expected nothing of the machine; take it out"
                )
