"""Tell which data set of the catalogue each file of a folder holds, by its name and first bytes."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flows.init import hub_caches
from flows.init.unusable_questions import why_unusable
from pipelines.errors import LongtailError
from pipelines.questions import published
from pipelines.questions.mmlu import CATEGORIES
from pipelines.sources import (
    corpus_layouts,
    mediawiki_tables,
    pageviews,
    run_files,
    source_documents,
    streams,
    wikipedia,
    wikitext,
)
from pipelines.sources.corpus_layouts import PLAIN, first_record
from pipelines.sources.passage_files import PASSAGES
from pipelines.sources.question_files import values_at

# A model's folder has one of these files, and weights, a tokenizer, or folders of
# sentence-transformers' modules.
MODEL_CONFIGS = ("config.json", "modules.json", "adapter_config.json")
MODEL_FILE = re.compile(
    r".*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|onnx|gguf|model)|.*\.index\.json"
    r"|tokenizer.*|vocab\..*|\d_[A-Z]\w+"
)
QUERIES = "queries or judgements of a test collection, which nothing here reads"
HUB_ROWS = "rows of the Hub's API; make JSON lines of them: jq -c '.rows[].row' FILE > FILE.jsonl"
RUN = "a TREC run; name it, its topics and its passages under fetch.files.retrieval/NAME"
HOURLY_VIEWS = re.compile(r"(pageviews|projectviews|pagecounts)-\d{8}-\d{6}")
# fields with the passages of a question
PASSAGE_FIELDS = {place.rpartition(".")[2] for place in PASSAGES}
TEMPLATES = "relation_query_templates.json"
SPLIT = re.compile(r"(?<![a-z])(dev|test|train|validation|valid|val)(?![a-z])")
NATURAL_QUESTIONS = re.compile(r"(?<![a-z])nq(?![a-z])|natural.?questions")
CREATE_TABLE = re.compile(rb"^CREATE TABLE `(\w+)`", re.MULTILINE)
LINES_READ = 40  # of a file's beginning
FIELDS_SHOWN = 30  # of a file that is not recognised


class Seen(NamedTuple):
    """The data set of a file, as under fetch.files (mmlu/dev); or "" and why it is not used."""

    data_set: str
    reason: str = ""


def folders_below(folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Each visible folder at or below a folder, with its files.

    Links are followed. A model's folder is given without the folders below it. Of a cache of the
    Hub, one revision is given.
    """
    visited: set[Path] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        path = Path(place)
        real = path.resolve()
        skipped = hub_caches.other_folders(path)
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in skipped
        )
        if real in visited or is_model(path):
            folders.clear()
        if real not in visited:
            yield path, [path / name for name in sorted(names) if not name.startswith(".")]
        visited.add(real)


def is_model(folder: Path) -> bool:
    """Whether a folder is a model's; a `config.json` alone may be anybody's, beside data."""
    names = os.listdir(folder)
    has_config = any(name in names for name in MODEL_CONFIGS)
    return has_config and any(MODEL_FILE.fullmatch(name) for name in names)


def recognise(file: Path) -> Seen:
    """The data set that a file holds. Reads at most HEAD bytes, or a Parquet file's columns."""
    try:
        if streams.is_parquet(file):
            return _by_columns(file)
        return _by_head(file)
    except LongtailError as error:
        return Seen("", str(error).removeprefix(f"{file}: "))


def _by_head(file: Path) -> Seen:
    """What a file is by its first bytes."""
    head = streams.read_head(file)
    lines = head.split(b"\n", LINES_READ)
    start = lines[0].rstrip(b"\r").decode("utf-8", "replace")
    if start.split("\t") == published.COLUMNS:
        return Seen("popqa")
    if wikipedia.INDEX in file.name:
        return Seen("", "the index of a dump, which nothing needs")
    table = CREATE_TABLE.search(head)
    if table:
        return _by_table(table[1].decode())
    if HOURLY_VIEWS.match(file.name):
        return Seen("", "hourly page views; those of a month or a day are read, *-user.bz2")
    if re.match(pageviews.LINE, start):
        return Seen("pageviews")
    if run_files.is_run(file):
        return Seen("", RUN)
    if any(wikitext.TITLE.fullmatch(line) for line in lines[:5]):
        return Seen("wikitext")
    if file.suffix == ".csv":
        return _by_csv_header(file, start)
    if corpus_layouts.is_json(head):
        return _by_record(file, first_record(head.decode("utf-8", "ignore")))

    return _by_columns_between_tabs(file, head)


def _by_table(name: str) -> Seen:
    """What a dump of MediaWiki's table is by the table's name."""
    if name in mediawiki_tables.TABLES:
        return Seen("redirects")
    needed = " and ".join(mediawiki_tables.TABLES)
    return Seen("", f"the table {name}; of MediaWiki's tables, {needed} are read")


def _by_columns_between_tabs(file: Path, head: bytes) -> Seen:
    """What a table is by its first line."""
    layout = corpus_layouts.by_head(head)
    if layout:
        if corpus_layouts.is_query_file(file, layout):
            return Seen("", QUERIES)
        return Seen("wikipedia")
    header = corpus_layouts.header_of(head)
    if header:
        columns = ", ".join(header[:FIELDS_SHOWN])
        return Seen("", f"a table of {columns}; for passages, name the columns id, title and text")
    return Seen("", "its beginning is in no layout that is read")


def _by_csv_header(file: Path, header: str) -> Seen:
    subject, _, split = file.stem.rpartition("_")
    if subject in CATEGORIES:
        return _mmlu(split)
    columns = header.split(",")
    if columns == published.COLUMNS or corpus_layouts.by_fields(columns):
        return Seen("", "PopQA and passages are read from columns between tabs (.tsv)")
    return Seen("", f"a table of {', '.join(columns[:FIELDS_SHOWN])}, the layout of no data set")


def _by_record(file: Path, record: dict[str, Any]) -> Seen:
    """What a JSON file is by its first record.

    KILT has its fields in the first `output`, the Hub's API in the first of its rows.
    """
    fields = [*record]
    for part in values_at(record, ["output.0", "output", "rows.0.row"]):
        if isinstance(part, dict):
            fields += part
            break
    return _by_fields(file, fields, isinstance(record.get("answer"), dict))


def _by_columns(file: Path) -> Seen:
    """What a Parquet file is by its columns."""
    import pyarrow as pa

    from pipelines.storage import parquet

    try:
        schema = parquet.schema_of(file)
    except (LongtailError, OSError):
        return Seen("", "not a Parquet file")
    has_aliases = "answer" in schema.names and pa.types.is_struct(schema.field("answer").type)
    seen = _by_fields(file, schema.names, has_aliases)
    if seen.data_set in ("wikipedia", "wikitext", "c4", "pile"):
        layout = PLAIN
        if seen.data_set == "wikipedia":
            layout = corpus_layouts.by_fields(schema.names) or PLAIN
        source_documents.used_columns(file, layout, schema)  # a LongtailError if one can't be read
    return seen


def _by_fields(file: Path, names: list[str], has_aliases: bool) -> Seen:
    """What a file of records is by their fields.

    `has_aliases` says that `answer` is an object, as TriviaQA has it.
    """
    fields = set(names)
    if file.name == TEMPLATES:
        return Seen("entityquestions")
    if fields >= set(published.COLUMNS):
        return Seen("popqa")
    if {"features", "rows"} <= fields:
        return Seen("", HUB_ROWS.replace("FILE", shlex.quote(file.name)))
    if {"id", "type", "labels"} <= fields:
        return Seen("wikidata")
    if {"question", "subject", "choices", "answer"} <= fields:
        return _if_usable(file, _mmlu(_split(file)))
    if fields & {"question", "input"} and fields & PASSAGE_FIELDS:
        return _if_usable(file, Seen("retrieval"), answered=False)
    if {"question", "answers"} <= fields and re.match(r"P\d+\.", file.name):
        if file.name.endswith(".test.json"):
            return Seen("entityquestions")
        return Seen("", "of EntityQuestions, only P*.test.json is read")
    if "question" in fields and fields & {"answer", "golden_answers"}:
        return _open_questions(file, has_aliases)
    return _texts(file, names)


def _if_usable(file: Path, seen: Seen, *, answered: bool = True) -> Seen:
    """What a file of questions is, or why they can't be asked."""
    reason = ""
    if seen.data_set:
        reason = why_unusable(file, seen.data_set, answered=answered)
    return Seen("", reason) if reason else seen


def _open_questions(file: Path, has_aliases: bool) -> Seen:
    """Which question set a file of questions and answers is of, by its name and its folder's."""
    if _split(file) == "train":
        return Seen("", "a train split, and test questions are asked")
    path = _lower_path(file)
    if has_aliases or "trivia" in path:
        return _if_usable(file, Seen("triviaqa"))
    if NATURAL_QUESTIONS.search(path):
        return _if_usable(file, Seen("nq"))
    return Seen(
        "", "questions and answers; name the file or its folder nq or triviaqa to have them asked"
    )


def _texts(file: Path, names: list[str]) -> Seen:
    """Which corpus a file of records is."""
    fields = set(names)
    if fields == {"text"} and file.suffix == ".parquet" and "wikitext" in str(file).lower():
        return Seen("wikitext")  # a line in each row, as the Hub has it
    layout = corpus_layouts.by_fields(fields)
    if corpus_layouts.is_query_file(file, layout):
        return Seen("", QUERIES)
    # an article or a passage; an address alone makes a text one of C4
    if layout and (layout != PLAIN or not fields & {"meta", "subset"}):
        return Seen("wikipedia")
    if "text" in fields:
        is_c4 = "url" in fields and ".json" in file.suffixes  # a compression's may follow
        return Seen("c4" if is_c4 else "pile")
    shown = ", ".join(sorted(names)[:FIELDS_SHOWN]) or "nothing"
    return Seen("", f"records with {shown}, which is the layout of no data set")


def _lower_path(file: Path) -> str:
    """The names that may tell what a file is: its own, its folder's, and its cache's on the Hub."""
    return f"{hub_caches.cache_name(file)}/{file.parent.name}/{file.name}".lower()


def _split(file: Path) -> str:
    """The split that a file's name says, or else its folder's; "" if neither does."""
    for part in reversed(_lower_path(file).split("/")):
        splits = SPLIT.findall(part)
        if splits:
            return splits[-1]
    return ""


def _mmlu(split: str) -> Seen:
    if split in ("dev", "test"):
        return Seen(f"mmlu/{split}")
    return Seen("", "of MMLU, only dev and test are read")
