"""Questions of any table with the entity that each asks about, and its popularity (PopQA, Figure
3).

A question that follows a template of a relation has the subject in the template's place
(`adaptive/subjects.py`). The subject of any other question is found by the dictionary's names
(`questions/linking.py`).
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.adaptive import subjects
from pipelines.adaptive.subjects import Template
from pipelines.errors import LongtailError
from pipelines.foreign.answer_lists import read_lists
from pipelines.foreign.cell_values import as_text, read_numbers
from pipelines.foreign.question_tables import MONTH, Questions
from pipelines.foreign.record_file import Cells, listed
from pipelines.foreign.records import read_records, to_columns
from pipelines.knowledge import redirects
from pipelines.questions import linking
from pipelines.questions.published import ENTITY
from pipelines.sources.streams import is_parquet
from pipelines.storage import database
from pipelines.storage.atomic import atomic

DICTIONARY = pa.schema(
    {
        "qid": pa.string(),
        "label": pa.string(),
        "aliases": pa.list_(pa.string()),
        "wiki_title": pa.string(),
        "popularity": pa.int64(),
    }
)
COLUMNS = DICTIONARY.names  # of a table of entities


@dataclass(frozen=True)
class Dictionary:
    """The entities that questions may ask about."""

    entities: Path  # a table with COLUMNS
    month: str | None = None  # of their page views; None if it is not known
    claims: Path | None = None  # Wikidata's claims, which tell namesakes apart
    redirects: Sequence[Path] = ()  # dumps of Wikipedia's tables of redirects and pages


@dataclass(frozen=True)
class Link:
    """The entity that a question asks about; without one, only the relation may be known."""

    qid: str | None = None
    title: str | None = None
    popularity: int | None = None  # monthly page views
    mention: str = ""  # the words that name the entity
    relation: str | None = None  # of the template that the question follows
    by_template: bool = False  # the entity stands in the template's place


@dataclass
class LinkedCounts:
    """How many questions have what."""

    questions: int = 0
    linked: int = 0
    linked_by_template: int = 0
    without_popularity: int = 0  # of those that are linked
    left_aside: Sequence[str] = ()  # columns that the questions have already


def open_dictionary(db: duckdb.DuckDBPyConnection, dictionary: Dictionary) -> int:
    """Create the views and tables that questions are linked by; return the number of entities.

    Raises LongtailError for a table without one of COLUMNS.
    """
    file = dictionary.entities
    if is_parquet(file):
        database.view(db, "entities", file)
        _check_columns(file, db.view("entities").columns)
    else:
        db.from_arrow(_read_entities(file)).create_view("entities")
    if dictionary.claims:
        database.view(db, "claims", dictionary.claims)
    redirects.load(db, list(dictionary.redirects))
    (entities,) = database.row(db, "SELECT count(*) FROM entities WHERE wiki_title IS NOT NULL")
    return entities


def _read_entities(file: Path) -> pa.Table:
    """The entities of a table that is a text; aliases are a list in JSON."""
    records = read_records(file, COLUMNS, f"columns {', '.join(COLUMNS)}")
    _check_columns(file, records.columns)
    cells = to_columns(file, records.records, records.notes)
    alias_lists = read_lists(cells["aliases"], f"{file}: aliases")
    numbers = read_numbers(cells["popularity"], f"{file}: popularity")
    columns: Cells = {}
    for name in ("qid", "label", "wiki_title"):
        columns[name] = [as_text(cell) or None for cell in cells[name]]
    columns["aliases"] = [aliases or [] for aliases in alias_lists]
    columns["popularity"] = [None if math.isnan(views) else int(views) for views in numbers]
    return pa.table(columns, schema=DICTIONARY)


def _check_columns(file: Path, columns: Iterable[str]) -> None:
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise LongtailError(
            f"{file}: no column {missing[0]!r}, expected a table of entities with the columns "
            f"{', '.join(COLUMNS)}; its columns are {listed(columns)}"
        )


def link_questions(
    db: duckdb.DuckDBPyConnection,
    questions: Sequence[str],
    templates: list[Template],
    running_text: Iterable[str],
) -> list[Link]:
    """The entity that each question asks about, by the dictionary that `open_dictionary` opened.

    A template's relation is said even if the dictionary does not have what is in the subject's
    place. `running_text` tells names from words, see `linking.mark_common_words`.
    """
    readings = subjects.read_questions(db, questions, templates)
    numbers = [str(number) for number in range(len(questions))]
    linking.link(db, pa.table({"question_id": numbers, "text": list(questions)}), running_text)
    rows = db.execute(linking.SUBJECTS).fetchall()
    named = {int(number): (mention, *entity) for number, mention, *entity in rows}

    links = []
    for number, reading in enumerate(readings):
        relation = reading.template.relation if reading else None
        if reading and reading.subject:
            subject = reading.subject
            link = Link(
                qid=subject.qid,
                title=subject.title,
                popularity=subject.popularity,
                mention=reading.name,
                relation=relation,
                by_template=True,
            )
        elif number in named:
            mention, qid, title, popularity = named[number]
            link = Link(qid, title, popularity, mention, relation)
        else:
            link = Link(relation=relation)
        links.append(link)
    return links


def write_linked(
    file: Path, table: Path, questions: Questions, links: Sequence[Link], month: str | None
) -> LinkedCounts:
    """Write the questions of the file `table` with their links, as JSON lines; return counts.

    A column that the questions have already stays as it is. If they have a popularity already, the
    month is left out, which would be taken for that of their popularity.
    """
    if "signal" in questions.columns:
        month = None
    column = questions.columns["question"]
    records = read_records(table, {column}, f"a column {column}")
    left_aside = sorted(_added_fields(Link(), month).keys() & records.columns)
    counts = LinkedCounts(questions=len(links), left_aside=left_aside)
    with atomic(file) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for record, link in zip(records.records, links, strict=True):
            fields = _added_fields(link, month) | record
            stream.write(f"{json.dumps(fields, default=str)}\n")
            if link.qid:
                counts.linked += 1
                counts.linked_by_template += link.by_template
                counts.without_popularity += link.popularity is None
    return counts


def _added_fields(link: Link, month: str | None) -> dict[str, Any]:
    """The fields that `thresholds`, `decide` and `compare` know a question's popularity and
    relation by.
    """
    fields: dict[str, Any] = {
        "s_uri": f"{ENTITY}{link.qid}" if link.qid else None,
        "title": link.title,
        "popularity": link.popularity,
        "mention": link.mention,
        "relation": link.relation,
    }
    if month:
        fields[MONTH] = month
    return fields
