"""What a release holds: the tables of tables.yaml as Parquet and TSV, the rules, and the checksums of all files.

PopQA's TSV has the published 17 columns in the published format, its Parquet file five more. Of EntityQuestions a
release has the ids of the questions, not their text. A table that the last run did not make, or that has no row, is
left out. SHA256SUMS is in the format of `sha256sum -c`.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import yaml

from pipelines.adaptive import rule
from pipelines.errors import LongtailError
from pipelines.questions import published
from pipelines.storage import database, parquet, shards

BATCH = 100_000  # rows
SUMS = "SHA256SUMS"
RULES = "rules"  # <question set>/<language model>/<method>.json
# The same in every release, for ever: whoever filters a training text by it must find all of them.
CANARY = "longtail:canary:81c27560-b743-427d-b2a7-8413bf9d8cd7"


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
    """The tables that a release's folder has."""
    return [table for table in TABLES if (folder / table.parquet).is_file()]


def column_types(file: Path) -> dict[str, str]:
    """DuckDB's type of each column of a Parquet file, in the file's order."""
    described = database.ask("DESCRIBE FROM rows", rows=file).fetchall()
    return {name: kind for name, kind, *_ in described}


def write_tables(db: duckdb.DuckDBPyConnection, data: Path, folder: Path) -> None:
    """Copy each table from `data`, the folder of datasets, to the release's `folder`, with its rows in their order.

    Raises LongtailError where PopQA has no question, or a table lacks a column or has it with another type.
    """
    for table in TABLES:
        source = data / table.source
        if not source.is_file() or not parquet.metadata(source).num_rows:
            continue
        types = column_types(source)
        for name, (kind, _) in table.columns.items():
            if types.get(name) != kind:
                raise LongtailError(f"{source}: column {name} is {types.get(name, 'missing')}, expected {kind}")
        database.view(db, "source", source, numbered=True)
        rows = f"SELECT {', '.join(table.columns)} FROM source ORDER BY file_row_number"
        database.write_query(db, rows, folder / table.parquet)
        if table is POPQA:
            published.write_tsv(parquet.batches(folder / table.parquet, BATCH), folder / table.tsv)
        else:
            db.execute(f"COPY ({rows}) TO ? (FORMAT csv, DELIMITER '\t', HEADER)", [str(folder / table.tsv)])
    if not (folder / POPQA.parquet).is_file():
        raise LongtailError(f"{data / POPQA.source}: no question in it, expected PopQA; `longtail run` makes it")


def write_rules(data: Path, folder: Path) -> None:
    """Write each rule in use below the release's `folder`, and their JSON schema, if the release has thresholds."""
    source = data / THRESHOLDS.source.replace(".parquet", ".json")
    if not (folder / THRESHOLDS.parquet).is_file():
        return
    if not source.is_file():
        raise LongtailError(
            f"{source}: no such file, expected the rules of thresholds.parquet; `longtail run` makes it"
        )
    for name, entry in rule.named(json.loads(source.read_text(encoding="utf-8"))).items():
        shards.write_json(folder / RULES / f"{name}.json", entry)
    shutil.copyfile(rule.JSON_SCHEMA, folder / rule.JSON_SCHEMA.name)


def sha256(file: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS, with a line for each other file below `folder`, sorted by path."""
    lines = [f"{sha256(folder / name)}  {name}\n" for name in files(folder)]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path) -> int:
    """Compare all files with SHA256SUMS; returns their number.

    Raises LongtailError that names the files that are changed, missing or not listed.
    """
    if not (folder / SUMS).is_file():
        raise LongtailError(f"{folder}: no {SUMS} in it, expected a release's folder")
    listed = {}
    for number, line in enumerate((folder / SUMS).read_text(encoding="utf-8").splitlines(), start=1):
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name:
            raise LongtailError(f"{folder / SUMS}: line {number} is {line[:80]!r}, expected a sum and a file")
        listed[name] = digest
    there = set(files(folder))
    faults = [f"{name} is missing" for name in listed if name not in there]
    faults += [f"{name} is changed" for name in listed if name in there and sha256(folder / name) != listed[name]]
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
    return {name[len(RULES) + 1 : -len(".json")]: name for name in files(folder) if name.startswith(f"{RULES}/")}
