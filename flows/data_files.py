"""Tell which data set of the catalogue each file of a folder holds, by its name and its first bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from filecmp import cmp
from pathlib import Path
from typing import NamedTuple

from pipelines import catalogue
from pipelines.errors import LongtailError
from pipelines.evaluation.task_items import CATEGORIES
from pipelines.questions import published
from pipelines.sources import (
    corpus_layouts,
    pageviews,
    source_documents,
    streams,
    wikipedia,
    wikitext,
)
from pipelines.sources.corpus_layouts import ARTICLES, DUMP, first_record
from pipelines.sources.decompression import DECOMPRESSORS
from pipelines.sources.passage_files import PASSAGES
from pipelines.sources.question_files import values_at

# A model's folder has one of these files, and weights, a tokenizer, or folders of sentence-transformers' modules.
MODELS = ("config.json", "modules.json", "adapter_config.json")
BESIDE = re.compile(
    r".*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|onnx|gguf|model)|.*\.index\.json|tokenizer.*|vocab\..*|\d_[A-Z]\w+"
)
QUERIES = "queries or judgements of a test collection, which nothing here reads"
GIVEN = {
    place.rpartition(".")[2] for place in PASSAGES
}  # fields with the passages of a question
TEMPLATES = "relation_query_templates.json"
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
        if real in visited or is_model(Path(place)):
            folders.clear()
        if real not in visited:
            yield (
                Path(place),
                [Path(place, name) for name in sorted(names) if not name.startswith(".")],
            )
        visited.add(real)


def is_model(folder: Path) -> bool:
    """Whether a folder is a model's; a `config.json` alone may be anybody's, beside data."""
    names = os.listdir(folder)
    return any(name in names for name in MODELS) and any(map(BESIDE.fullmatch, names))


def recognise(file: Path) -> Seen:
    """The data set that a file holds. Reads at most HEAD bytes, or a Parquet file's columns."""
    try:
        return _by_columns(file) if streams.is_parquet(file) else _by_head(file)
    except LongtailError as error:
        return Seen("", str(error).removeprefix(f"{file}: "))


def together(data_set: str, files: list[Path]) -> tuple[list[Path], list[tuple[Path, Path]]]:
    """The files of a data set that a run can use together; and each other file, with the one used in its place.

    Of PopQA one file is used. Of Wikipedia, files of one layout are used: passages come before dumps, and dumps before
    other articles. A copy of another file is left out.
    """
    if data_set == "popqa":
        first = min(files, key=lambda file: (file.name != "popQA.tsv", file))
        return [first], [(file, first) for file in files if file != first]
    layouts = {
        file: corpus_layouts.require_layout(file) if data_set == "wikipedia" else ARTICLES
        for file in files
    }
    best = min(files, key=lambda file: (not layouts[file].passages, layouts[file] != DUMP, file))
    many = catalogue.has_many_files(data_set.partition("/")[0])
    used: dict[tuple[str, int], list[Path]] = {}
    others = []
    for file in files:
        alike = used.setdefault((file.name, file.stat().st_size if many else 0), [])
        if layouts[file] != layouts[best]:
            others.append((file, best))
        elif other := next(
            (other for other in alike if not many or cmp(other, file, shallow=False)), None
        ):
            others.append((file, other))
        else:
            alike.append(file)
    left_out = {file for file, _ in others}
    return [file for file in files if file not in left_out], others


def _by_head(file: Path) -> Seen:
    name, head = file.name, streams.read_head(file)
    first, *lines = head.split(b"\n", 40)
    start = first.rstrip(b"\r").decode("utf-8", "replace")
    if start.split("\t") == published.COLUMNS:
        return Seen("popqa")
    if wikipedia.INDEX in name:
        return Seen("", "the index of a dump, which nothing needs")
    if b"`redirect`" in head and ".sql" in name:
        return Seen("redirects")
    if re.match(pageviews.LINE, start):
        return Seen("pageviews")
    if any(wikitext.TITLE.fullmatch(line) for line in (first, *lines[:4])):
        return Seen("wikitext")
    if Path(name).suffix == ".csv":
        subject, _, split = file.stem.rpartition("_")
        if subject in CATEGORIES:
            return _mmlu(split)
        passages = corpus_layouts.by_fields(start.split(","))
        return Seen(
            "",
            "passages are read from columns between tabs (.tsv)"
            if passages
            else "a table of no data set",
        )
    if corpus_layouts.is_json(head):
        record = first_record(head.decode("utf-8", "ignore"))
        output = next(
            (
                of
                for of in (record.get("output"), *values_at(record, ["output.0"]))
                if isinstance(of, dict)
            ),
            {},
        )
        return _by_names(file, [*record, *output], isinstance(record.get("answer"), dict))
    if layout := corpus_layouts.by_head(head):
        return (
            Seen("", QUERIES) if corpus_layouts.is_query_file(file, layout) else Seen("wikipedia")
        )
    if header := corpus_layouts.header_of(head):
        return Seen(
            "",
            f"a table of {', '.join(header[:6])}; for passages, name the columns id, title and text",
        )
    return Seen("", "its beginning is in no layout that is read")


def _by_columns(file: Path) -> Seen:
    import pyarrow as pa

    from pipelines.storage import parquet

    try:
        schema = parquet.schema_of(file)
    except (LongtailError, OSError):
        return Seen("", "not a Parquet file")
    aliases = "answer" in schema.names and pa.types.is_struct(schema.field("answer").type)
    seen = _by_names(file, schema.names, aliases)
    if seen.data_set in ("wikipedia", "wikitext", "c4", "pile"):
        layout = (
            corpus_layouts.by_fields(schema.names) if seen.data_set == "wikipedia" else ARTICLES
        )
        source_documents.used_columns(file, layout or ARTICLES, schema)
    return seen


def _by_names(file: Path, names: list[str], aliases: bool) -> Seen:
    """What a file of records is by their fields; `aliases` says that `answer` is an object, as TriviaQA has it."""
    keys, words = set(names), f"{file.parent.name}/{file.name}".lower()
    split = next(
        (found[-1] for part in reversed(words.split("/")) if (found := SPLIT.findall(part))), ""
    )
    if file.name == TEMPLATES:
        return Seen("entityquestions")
    if {"id", "type", "labels"} <= keys:
        return Seen("wikidata")
    if {"question", "subject", "choices", "answer"} <= keys:
        return _mmlu(split)
    if keys & {"question", "input"} and keys & GIVEN:
        return Seen("retrieval")
    if {"question", "answers"} <= keys and re.match(r"P\d+\.", file.name):
        test = file.name.endswith(".test.json")
        return (
            Seen("entityquestions")
            if test
            else Seen("", "of EntityQuestions, only P*.test.json is read")
        )
    if "question" in keys and keys & {"answer", "golden_answers"}:
        if split == "train":
            return Seen("", "a train split, and benchmarks are made of test questions")
        if aliases or "trivia" in words:
            return Seen("triviaqa")
        if re.search(r"(?<![a-z])nq(?![a-z])|natural.?questions", words):
            return Seen("nq")
        return Seen(
            "",
            "questions and answers; name the file or its folder nq or triviaqa to have them asked",
        )
    if keys == {"text"} and file.suffix == ".parquet" and "wikitext" in str(file).lower():
        return Seen("wikitext")  # a line in each row, as the Hub has it
    layout = corpus_layouts.by_fields(keys)
    if corpus_layouts.is_query_file(file, layout):
        return Seen("", QUERIES)
    if layout and (layout != ARTICLES or not keys & {"meta", "subset"}):
        return Seen("wikipedia")  # an article or a passage; an address alone makes a text one of C4
    if "text" in keys:
        plain = Path(
            file.name.removesuffix(file.suffix) if file.suffix in DECOMPRESSORS else file.name
        ).suffix
        return Seen("c4" if "url" in keys and plain == ".json" else "pile")
    return Seen(
        "",
        f"records with {', '.join(sorted(names)[:6]) or 'nothing'}, which is the layout of no data set",
    )


def _mmlu(split: str) -> Seen:
    return (
        Seen(f"mmlu/{split}")
        if split in ("dev", "test")
        else Seen("", "of MMLU, only dev and test are read")
    )
