"""What a release holds: checked tables as Parquet and TSV, the rules, and all files' checksums.

tables.yaml says what tables there are and how their rows are checked. PopQA's TSV has the published
17 columns in the published format, its Parquet file five more. Of EntityQuestions a release has the
ids of the questions, not their text. A table that the last run did not make, or that has no row, is
left out. SHA256SUMS is in the format of `sha256sum -c`. Secrets and paths of the machine are left
out of params, and every text is searched for them.
"""

import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb
import pyarrow as pa

from pipelines import redaction, yaml_files
from pipelines.adaptive import rule
from pipelines.check.table_rules import TableRules, find_faults
from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.language.relations import read_relations
from pipelines.questions import published
from pipelines.storage import database, parquet
from pipelines.storage.atomic import read_json, write_json
from pipelines.tables.every_table import table_of
from pipelines.tables.table import Column, Table

ROWS_OF_TSV = 100_000  # rows that are written at once
SUMS = "SHA256SUMS"
CARD = "README.md"
RETRIEVERS = "retriever"  # <name>/, a folder that sentence-transformers opens
RULES = "rules"  # <question set>/<language model>/<method>.json
# The same in every release, for ever: whoever filters a training text by it must find all of them.
CANARY = "longtail:canary:81c27560-b743-427d-b2a7-8413bf9d8cd7"
TEXT_SUFFIXES = {".json", ".md", ".tsv", ".html", ".cff", ".yaml", ".py"}
TUNED = "models/lsr"  # <name>/, below the folder of datasets
# The outputs of a run that have the tables and retrievers of a release.
COMPARED = ("data/questions", "data/adaptive", f"data/{TUNED}")
PRIVATE_PARAMS = ("contact", "compute.dask")  # they say who computes where
SECRET_PATTERNS = {
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "an address with a password": r"\w+://[^\s/:@\"']+:[^\s/:@\"']+@",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a GitHub token": r"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{22,})",
    "an AWS key": r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
}
# In tables such a text may be an answer, so tables are not searched for them.
PATH_PATTERNS = {
    "a path of a machine": (
        r"(?<![\w/.:<])/(home|Users|root|mnt|tmp|var|srv|opt|work|media|data|scratch)/[\w.-]"
    ),
}
JSON_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True)
class ReleaseTable:
    """An entry of tables.yaml, which says what each field is."""

    name: str
    title: str
    source: str
    key: list[str]
    split: str
    nullable: list[str]
    bad: dict[str, dict[str, str]]
    agreeing: list[tuple[list[str], str, str]] = field(default_factory=list)
    unique: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)

    @property
    def declared(self) -> Table:
        """The table that this is a copy of."""
        table = table_of(self.source)
        assert table
        return table

    @property
    def names(self) -> list[str]:
        """The names of its columns, in order."""
        return self.columns or self.declared.schema.names

    @property
    def described(self) -> list[Column]:
        """Its columns with their types and meanings."""
        return self.declared.columns_of(self.names)

    @property
    def parquet(self) -> str:
        return f"{self.name}.parquet"

    @property
    def tsv(self) -> str:
        return f"{self.name}.tsv"

    @property
    def rules(self) -> TableRules:
        """What every row has to be."""
        required = [column for column in self.names if column not in self.nullable]
        unique = [[column] for column in self.unique]
        unique.append(self.key)
        named_by = self.key
        if "question_id" in self.names:
            named_by = ["question_id"]
        return TableRules(
            required=required,
            unique=unique,
            bad=self.bad,
            agreeing=self.agreeing,
            named_by=named_by,
        )


ENTRIES = yaml_files.read(Path(__file__).with_name("tables.yaml"))
TABLES = [ReleaseTable(name, **entry) for name, entry in ENTRIES.items()]
POPQA, LINKS, THRESHOLDS = TABLES


def link_outputs(data: Path, stages: Mapping[str, Iterable[str]], folder: Path) -> Path:
    """Link the outputs of each of a run's stages below `folder`; returns the folder of the links.

    What else lies in `data` is of other runs and gets into no release.
    """
    for outs in stages.values():
        for name in outs:
            link = folder / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to((data.parent / name).absolute())
    return folder / data.name


def present(folder: Path) -> list[ReleaseTable]:
    """The tables that a release's folder has."""
    return [table for table in TABLES if (folder / table.parquet).is_file()]


def write_tables(db: duckdb.DuckDBPyConnection, data: Path, folder: Path) -> None:
    """Copy each table from the datasets in `data` to `folder`.

    Raises LongtailError where PopQA has no question.
    """
    for table in TABLES:
        source = data / table.source
        if source.is_file() and parquet.metadata(source).num_rows:
            _write_table(db, table, source, folder)
    if not (folder / POPQA.parquet).is_file():
        expected = "expected PopQA; `longtail run` makes it"
        raise LongtailError(f"data/{POPQA.source}: no question in it, {expected}")


def _write_table(
    db: duckdb.DuckDBPyConnection, table: ReleaseTable, source: Path, folder: Path
) -> None:
    """Write a table's columns as Parquet and TSV, its rows in the order of `source`.

    A run of the past may have other columns.
    """
    database.view(db, "source", source, numbered=True)
    present_names = parquet.schema_of(source).names
    names = [name for name in table.columns or present_names if name in present_names]
    rows = f"SELECT {', '.join(names)} FROM source ORDER BY file_row_number"
    database.write_query(db, rows, folder / table.parquet)
    tsv = folder / table.tsv
    if table is POPQA:
        published.write_tsv(parquet.batches(folder / table.parquet, ROWS_OF_TSV), tsv)
    else:
        db.execute(f"COPY ({rows}) TO ? (FORMAT csv, DELIMITER '\t', HEADER)", [str(tsv)])


def check_tables(db: duckdb.DuckDBPyConnection, folder: Path, language: Language = ENGLISH) -> None:
    """Check the tables of a release's folder; they stay in `db`, numbered as by `database.view`.

    Questions are in `language`. Raises LongtailError that counts the faults of each table, and
    names the first bad rows, each with its place in the file and its key.
    """
    relations = []
    for pid, relation in read_relations(language=language).items():
        relations.append({"pid": pid, "name": relation.name, "template": relation.template})
    db.register("relations", pa.Table.from_pylist(relations))

    bad_tables = []
    for table in present(folder):
        database.view(db, "source", folder / table.parquet, numbered=True)
        db.execute(f"CREATE TEMP TABLE {table.name} AS FROM source")
        rows = f"FROM {table.name} LEFT JOIN relations ON pid = relation"
        db.execute(f"CREATE OR REPLACE TEMP VIEW rows AS {rows}")
        count, first = find_faults(db, table.rules)
        if count:
            bad_tables.append(f"{table.parquet} has {count:,} faults: {'; '.join(first)}")
    if bad_tables:
        raise LongtailError(f"not fit for a release: {'; '.join(bad_tables)}")


def write_rules(data: Path, folder: Path) -> None:
    """Write each rule in use below the release's folder, and their JSON schema.

    A release without thresholds has no rules.
    """
    if not (folder / THRESHOLDS.parquet).is_file():
        return
    source = data / THRESHOLDS.source.replace(".parquet", ".json")
    rules_in_use = rule.named(read_json(source))
    for name, entry in rules_in_use.items():
        write_json(folder / RULES / f"{name}.json", entry)
    shutil.copyfile(rule.JSON_SCHEMA, folder / rule.JSON_SCHEMA.name)


def copy_retrievers(data: Path, folder: Path) -> None:
    """Copy the encoders that the run tuned into a release's folder, without their cards."""
    for encoder in (data / TUNED).glob("*"):
        shutil.copytree(
            encoder,
            folder / RETRIEVERS / encoder.name,
            ignore=shutil.ignore_patterns(CARD),
            copy_function=shutil.copyfile,  # readable by all
        )


def retrievers(folder: Path) -> dict[str, dict[str, str]]:
    """The retrievers of a release: name -> file -> SHA-256, without cards and checksums."""
    sums = {}
    for encoder in sorted((folder / RETRIEVERS).glob("*")):
        names = [name for name in files(encoder) if name != CARD]
        sums[encoder.name] = {name: sha256(encoder / name) for name in names}
    return sums


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS of all files below a folder."""
    lines = []
    for name in files(folder):
        lines.append(f"{sha256(folder / name)}  {name}\n")
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path) -> None:
    """Raise LongtailError that names the files of a release that are not as in its SHA256SUMS."""
    if not (folder / SUMS).is_file():
        raise LongtailError(f"{folder}: no {SUMS} in it, expected a release's folder")
    listed = {}
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest

    present_files = set(files(folder))
    faults = []
    for name, digest in listed.items():
        if name not in present_files:
            faults.append(f"{name} is missing")
        elif sha256(folder / name) != digest:
            faults.append(f"{name} is changed")
    faults += [f"{name} is not listed" for name in sorted(present_files - listed.keys())]
    if faults:
        raise LongtailError(f"{folder}: not as it was released: {', '.join(faults)}; get it again")


def files(folder: Path) -> list[str]:
    """The files below a release's folder but SHA256SUMS, sorted by path."""
    names = []
    for path in folder.rglob("*"):
        if path.is_file() and path != folder / SUMS:
            names.append(path.relative_to(folder).as_posix())
    return sorted(names)


def rules(folder: Path) -> dict[str, str]:
    """The files of a release's rules by name, such as popqa/opt-13b/bm25."""
    prefix = f"{RULES}/"
    names = [file for file in files(folder) if file.startswith(prefix)]
    return {file.removeprefix(prefix).removesuffix(".json"): file for file in names}


def machine_patterns(environment: Mapping[str, str], folders: Iterable[Path]) -> dict[str, str]:
    """Patterns of what only this machine has, by name: its secrets and folders."""
    patterns = {}
    for name, spellings in redaction.secrets_of(environment).items():
        patterns[f"${name}"] = "|".join(map(re.escape, spellings))
    for folder in folders:
        if folder != Path("/"):
            escaped = re.escape(str(folder))
            patterns[f"the folder {folder.name}"] = rf"(?<![\w.]){escaped}(?![\w-])"
    return patterns


def public_params(value: Any, prefix: str = "") -> Any:
    """Params as a release shows them, without PRIVATE_PARAMS.

    Of a path outside the project only the last name is shown.
    """
    if isinstance(value, Mapping):
        names = [name for name in value if f"{prefix}{name}" not in PRIVATE_PARAMS]
        return {name: public_params(value[name], f"{prefix}{name}.") for name in names}
    if isinstance(value, list):
        return [public_params(item, prefix) for item in value]
    if isinstance(value, str):
        path = PurePosixPath(value)
        if path.is_absolute() or value.startswith("~") or ".." in path.parts:
            return f"(outside the project)/{path.name}"
    return value


def check_no_secrets(folder: Path, machine: Mapping[str, str]) -> None:
    """Raise LongtailError where a text below `folder` has a secret, or a path of the machine.

    `machine` are `machine_patterns`. The error shows no secret.
    """
    for file in sorted(folder.rglob("*")):
        if file.suffix not in TEXT_SUFFIXES:
            continue
        patterns = dict(SECRET_PATTERNS)
        if file.suffix not in {".tsv", ".html"}:
            patterns |= PATH_PATTERNS
        patterns |= machine

        text = JSON_ESCAPE.sub(_unescape, file.read_text(encoding="utf-8"))
        for description, pattern in patterns.items():
            hit = re.search(pattern, text)
            if hit:
                line = text.count("\n", 0, hit.start()) + 1
                place = f"{file.relative_to(folder).as_posix()}: {description} in line {line}"
                raise LongtailError(f"{place}, expected nothing of the machine; take it out")


def _unescape(escape: re.Match) -> str:
    """The character of an escape of JSON; a blank for white space."""
    return " " if escape[1] in "nrt" else escape[1]
