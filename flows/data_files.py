"""Tell which data set of the catalogue each file of a folder holds, by its name and its first bytes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipelines.catalogue import DATASETS
from pipelines.errors import LongtailError
from pipelines.evaluation.mmlu import CATEGORIES
from pipelines.questions import published
from pipelines.sources import pageviews, source_documents, wikipedia
from pipelines.sources.question_files import SUFFIXES
from pipelines.sources.source_documents import is_psgs
from pipelines.sources.streams import DECOMPRESSORS, open_blocks

HEAD = 1 << 16  # bytes, decompressed, that are read of a file
TEMPLATES = "relation_query_templates.json"
READABLE = {"mmlu": (".csv", *SUFFIXES), "nq": SUFFIXES, "triviaqa": SUFFIXES, "retrieval": (".jsonl",)}
SPLIT = re.compile(r"(?<![a-z])(dev|test|train|validation|valid|val)(?![a-z])")


class Seen(NamedTuple):
    """What a file is: the data set as under fetch.files, such as mmlu/dev; or "", and why the file is not used."""

    data_set: str
    reason: str = ""


def folders_below(folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Each visible folder at or below a folder, but none below a model's, with its files; links are followed."""
    visited: set[Path] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = Path(place).resolve()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if real in visited or "config.json" in names:
            folders.clear()
        if real not in visited:
            yield Path(place), [Path(place, name) for name in sorted(names) if not name.startswith(".")]
        visited.add(real)


def recognise(file: Path) -> Seen:
    """The data set that a file holds. Reads at most HEAD bytes, or a Parquet file's columns."""
    try:
        seen = _by_columns(file) if file.suffix == ".parquet" else _by_head(file)
    except LongtailError as error:
        return Seen("", str(error).removeprefix(f"{file}: "))
    name = seen.data_set.partition("/")[0]
    if file.suffix not in READABLE.get(name, (file.suffix,)):
        return Seen("", f"{DATASETS[name].label} is read from {', '.join(READABLE[name])} only")
    return seen


def together(data_set: str, files: list[Path]) -> tuple[list[Path], list[tuple[Path, Path]]]:
    """The files of a data set that a run can use together; and each other file, with the one used in its place.

    Of PopQA one file is used. Of Wikipedia, passages come before dumps, and dumps before JSON lines and Parquet.
    """
    if data_set == "popqa":
        first = min(files, key=lambda file: (file.name != "popQA.tsv", file))
        return [first], [(file, first) for file in files if file != first]
    kinds = dict.fromkeys(files, 0)
    if data_set == "wikipedia":
        kinds = {file: 0 if is_psgs(file) else 2 if source_documents.is_documents(file) else 1 for file in files}
    used: dict[str, Path] = {}
    others = []
    best = min(files, key=lambda file: (kinds[file], file))
    for file in files:
        if kinds[file] != kinds[best]:
            others.append((file, best))
        elif used.setdefault(file.name, file) != file:
            others.append((file, used[file.name]))
    return list(used.values()), others


def _by_head(file: Path) -> Seen:
    name, head = file.name, b""
    for block in open_blocks(file):
        head += block[: HEAD - len(head)]
        if len(head) >= HEAD:
            break
    first, *lines = head.split(b"\n", 40)
    columns = first.rstrip(b"\r").decode("utf-8", "replace").split("\t")
    if columns == published.COLUMNS:
        return Seen("popqa")
    if columns == source_documents.HEADER:
        fault = "" if is_psgs(file) else "DPR's passages are read from .tsv or .tsv.gz only"
        return Seen("" if fault else "wikipedia", fault)
    if wikipedia.INDEX in name:
        return Seen("", "the index of a dump, which nothing needs")
    if b"<mediawiki" in head[:1000]:
        return Seen("wikipedia")
    if b"`redirect`" in head and ".sql" in name:
        return Seen("redirects")
    if re.match(pageviews.LINE, first.decode("utf-8", "replace")):
        return Seen("pageviews")
    if any(source_documents.TITLE.fullmatch(line) for line in (first, *lines[:4])):
        return Seen("wikitext")
    if Path(name).suffix == ".csv":
        subject, _, split = file.stem.rpartition("_")
        return _mmlu(split) if subject in CATEGORIES else Seen("", "a table of no data set")
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        record = _first_record(head.decode("utf-8", "ignore"))
        return _by_names(file, [*record], isinstance(record.get("answer"), dict))
    return Seen("", "its beginning is in no layout that is read")


def _first_record(text: str) -> dict:
    """The first object of JSON lines or of a list; where it is longer than the text, the keys that are there."""
    try:
        record = json.JSONDecoder().raw_decode(text, max(text.find("{"), 0))[0]
    except (ValueError, RecursionError):
        return dict.fromkeys(re.findall(r'"(\w+)"\s*:', text))
    return record if isinstance(record, dict) else {}


def _by_columns(file: Path) -> Seen:
    import pyarrow as pa

    from pipelines.storage import parquet

    try:
        schema = parquet.schema_of(file)
    except (LongtailError, OSError):
        return Seen("", "not a Parquet file")
    return _by_names(file, schema.names, "answer" in schema.names and pa.types.is_struct(schema.field("answer").type))


def _by_names(file: Path, names: list[str], aliases: bool) -> Seen:
    """What a file of records is by their fields; `aliases` says that `answer` is an object, as TriviaQA has it."""
    keys, words = set(names), f"{file.parent.name}/{file.name}".lower()
    split = next((found[-1] for part in reversed(words.split("/")) if (found := SPLIT.findall(part))), "")
    if file.name == TEMPLATES:
        return Seen("entityquestions")
    if {"id", "type", "labels"} <= keys:
        return Seen("wikidata")
    if {"question", "subject", "choices", "answer"} <= keys:
        return _mmlu(split)
    if "question" in keys and keys & {"ctxs", "context"}:
        return Seen("retrieval")
    if {"question", "answers"} <= keys and re.match(r"P\d+\.", file.name):
        test = file.name.endswith(".test.json")
        return Seen("entityquestions") if test else Seen("", "of EntityQuestions, only P*.test.json is read")
    if "question" in keys and keys & {"answer", "golden_answers"}:
        if split == "train":
            return Seen("", "a train split, and benchmarks are made of test questions")
        if aliases or "trivia" in words:
            return Seen("triviaqa")
        if re.search(r"(?<![a-z])nq(?![a-z])|natural.?questions", words):
            return Seen("nq")
        return Seen("", "questions and answers; name the file or its folder nq or triviaqa to have them asked")
    if keys == {"text"} and file.suffix == ".parquet" and "wikitext" in str(file).lower():
        return Seen("wikitext")  # a line in each row, as the Hub has it
    if "text" in keys:  # a title makes it an article or a passage of Wikipedia, an address a text of C4
        if "title" in keys and not keys & {"meta", "subset"}:
            return Seen("wikipedia")
        plain = Path(file.name.removesuffix(file.suffix) if file.suffix in DECOMPRESSORS else file.name).suffix
        return Seen("c4" if "url" in keys and plain == ".json" else "pile")
    return Seen("", f"records with {', '.join(sorted(names)[:6]) or 'nothing'}, which is the layout of no data set")


def _mmlu(split: str) -> Seen:
    return Seen(f"mmlu/{split}") if split in ("dev", "test") else Seen("", "of MMLU, only dev and test are read")
