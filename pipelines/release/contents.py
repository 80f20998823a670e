"""What a release holds: its tables and their columns, as Parquet and TSV, their schema, and the checksums of all files.

PopQA's TSV has the published 17 columns in the published format, its Parquet file five more. Of EntityQuestions a
release has the ids of the questions, not their text. A table that the last run did not make, or that has no row, is
left out. SHA256SUMS is in the format of `sha256sum -c`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import duckdb

from pipelines.adaptive import rule
from pipelines.errors import LongtailError
from pipelines.language.language import Language
from pipelines.language.relations import read_relations
from pipelines.questions import published
from pipelines.storage import database, parquet, shards

INTEGER, FLOAT, BOOLEAN, TEXT, TEXTS = "BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR", "VARCHAR[]"  # DuckDB's names
BATCH = 100_000  # rows
SUMS = "SHA256SUMS"
SCHEMA = "schema.json"
RULES = "rules"  # <question set>/<language model>/<method>.json
# The same in every release, for ever: whoever filters a training text by it must find all of them.
CANARY = "longtail:canary:81c27560-b743-427d-b2a7-8413bf9d8cd7"


@dataclass(frozen=True)
class Table:
    """A table of a release, in the files <name>.parquet and <name>.tsv."""

    name: str
    title: str
    source: str  # below the folder of datasets
    key: tuple[str, ...]  # unique
    columns: dict[str, tuple[str, str]]  # name -> (DuckDB's type, meaning), in order
    nullable: frozenset[str]
    split: str  # what Hugging Face's loader calls its rows

    @property
    def parquet(self) -> str:
        return f"{self.name}.parquet"

    @property
    def tsv(self) -> str:
        return f"{self.name}.tsv"


POPQA = Table(
    name="popqa",
    title="PopQA: questions on Wikidata's knowledge triples, with the popularity of their subjects",
    source="questions/popqa/popqa.parquet",
    key=("relation", "s_uri", "o_uri"),
    columns={
        "id": (INTEGER, "number; as published, or above all published ones"),
        "subj": (TEXT, "label of the subject"),
        "prop": (TEXT, "name of the relation"),
        "obj": (TEXT, "label of the object that the question was made from"),
        "subj_id": (INTEGER, "number of the subject's Wikidata id; in published rows of that set's database"),
        "prop_id": (INTEGER, "the same of the relation"),
        "obj_id": (INTEGER, "the same of the object"),
        "s_aliases": (TEXTS, "other names of the subject"),
        "o_aliases": (TEXTS, "other names of the object"),
        "s_uri": (TEXT, "Wikidata address of the subject"),
        "o_uri": (TEXT, "Wikidata address of the object"),
        "s_wiki_title": (TEXT, "title of the subject's Wikipedia article"),
        "o_wiki_title": (TEXT, "title of the object's, where there is one"),
        "s_pop": (INTEGER, "views of the subject's article in `month`; null: not known"),
        "o_pop": (INTEGER, "views of the object's article; null: not known; -2: not known to the published set"),
        "question": (TEXT, "the relation's template about the subject"),
        "possible_answers": (TEXTS, "names of every right object: any of them is a right answer"),
        "question_id": (TEXT, "unique, the same in every release"),
        "relation": (TEXT, "Wikidata property"),
        "split": (TEXT, "train: the retriever may have been tuned on questions about the subject; test: all others"),
        "month": (TEXT, "of the page views"),
        "origin": (TEXT, "wikidata: built from it; published: a row of the published set"),
    },
    nullable=frozenset({"s_wiki_title", "o_wiki_title", "s_pop", "o_pop"}),
    split="test",
)
LINKS = Table(
    name="entityquestions_links",
    title="EntityQuestions: which Wikidata entity each question is about, by the question's id",
    source="questions/entityquestions/entityquestions.parquet",
    key=("question_id",),
    columns={
        "question_id": (TEXT, "relation and place in its test file, from 1: P17-2"),
        "relation": (TEXT, "Wikidata property"),
        "split": (TEXT, "as in PopQA; test if not linked"),
        "s_uri": (TEXT, "Wikidata address of the subject, where it is linked"),
        "s_pop": (INTEGER, "monthly views of its English Wikipedia article; null: not linked, or not known"),
        "link": (TEXT, "label, alias: how it is linked; ambiguous, another_type, without_article, not_found: why not"),
    },
    nullable=frozenset({"s_uri", "s_pop"}),
    split="test",
)
THRESHOLDS = Table(
    name="thresholds",
    title="Adaptive retrieval: the popularity from which each relation's questions need no retrieval",
    source="adaptive/popularity/thresholds.parquet",
    key=("dataset", "lm", "method", "search", "relation"),
    columns={
        "dataset": (TEXT, "popqa or entityquestions"),
        "lm": (TEXT, "language model that answered"),
        "method": (TEXT, "how the retrieval-augmented answers were made"),
        "search": (TEXT, "how the threshold was searched for"),
        "relation": (TEXT, "Wikidata property"),
        "questions": (INTEGER, "questions of the relation with a known popularity"),
        "pooled": (BOOLEAN, "too few of them: the threshold of all relations together"),
        "threshold": (FLOAT, "monthly page views below which to retrieve; 0: never, inf: always"),
        "threshold_low": (FLOAT, "2.5 % of the thresholds that other questions would give (bootstrap over subjects)"),
        "threshold_high": (FLOAT, "97.5 % of them"),
        "policy": (TEXT, "what to use: thresholds; or always or never, where thresholds lose accuracy held out"),
        "deployed": (FLOAT, "the threshold by that policy"),
        "popularity_most": (FLOAT, "largest popularity that was tuned on; beyond it nothing is known"),
        "closed_book": (FLOAT, "accuracy without retrieval"),
        "augmented": (FLOAT, "accuracy with it always"),
        "adaptive": (FLOAT, "accuracy by thresholds on questions held out from them, mean over splits"),
        "adaptive_low": (FLOAT, "its 95 % interval (bootstrap over subjects): from"),
        "adaptive_high": (FLOAT, "to"),
        "retrieved": (FLOAT, "share of the questions that retrieve, held out likewise"),
    },
    nullable=frozenset({"threshold_low", "threshold_high", "adaptive", "adaptive_low", "adaptive_high", "retrieved"}),
    split="train",
)
TABLES = (POPQA, LINKS, THRESHOLDS)


def present(folder: Path) -> list[Table]:
    """The tables that a release's folder has."""
    return [table for table in TABLES if (folder / table.parquet).is_file()]


def column_types(file: Path) -> dict[str, str]:
    """DuckDB's type of each column of a Parquet file, in the file's order."""
    described = database.ask("DESCRIBE FROM rows", rows=file).fetchall()
    return {name: kind for name, kind, *_ in described}


def write_tables(db: duckdb.DuckDBPyConnection, data: Path, folder: Path) -> None:
    """Copy each table from `data`, the folder of datasets, to the release's `folder`, with its rows in their order.

    Raises LongtailError where PopQA has no question, or a table lacks a column.
    """
    for table in TABLES:
        source = data / table.source
        if not source.is_file() or not parquet.metadata(source).num_rows:
            continue
        if missing := [name for name in table.columns if name not in parquet.schema_of(source).names]:
            raise LongtailError(f"{source}: no column {', '.join(missing)}, expected {', '.join(table.columns)}")
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


def write_schema(folder: Path, spoken: Language) -> None:
    """Write schema.json: tables, columns and relations as they are now; questions are in the language `spoken`."""
    tables = {
        table.name: {
            "key": table.key,
            "columns": [
                {"name": name, "type": kind, "nullable": name in table.nullable}
                for name, (kind, _) in table.columns.items()
            ],
        }
        for table in TABLES
    }
    relations = read_relations(language=spoken).items()
    named = {pid: {"name": relation.name, "template": relation.template} for pid, relation in relations}
    shards.write_json(folder / SCHEMA, {"tables": tables, "relations": named})


def check_schema(folder: Path) -> None:
    """Raise LongtailError where a table's columns have other names or types than those of the release's schema.json."""
    for name, table in json.loads((folder / SCHEMA).read_text(encoding="utf-8"))["tables"].items():
        if (file := folder / f"{name}.parquet").is_file():
            columns = [f"{column} {kind}" for column, kind in column_types(file).items()]
            expected = [f"{column['name']} {column['type']}" for column in table["columns"]]
            for column, wanted in zip_longest(columns, expected, fillvalue="nothing"):
                if column != wanted:
                    raise LongtailError(f"{file.name}: its columns have {column} where {wanted} is expected")


def rules(folder: Path) -> dict[str, Path]:
    """The files of a release's rules, by name, as popqa/opt-13b/bm25."""
    files = {path.relative_to(folder / RULES): path for path in sorted((folder / RULES).rglob("*.json"))}
    return {name.as_posix().removesuffix(".json"): path for name, path in files.items()}


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
