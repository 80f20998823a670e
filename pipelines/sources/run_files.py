"""Questions with passages from TREC run files, such as Pyserini's, which have ids alone.

A run lies in a folder with the topics and the passages that its ids mean:

run.trec       qid Q0 docid rank score tag
topics.tsv     qid and question; DPR's question and ['answer', …], counted from 0; or a question set
psgs_w100.tsv  passages with ids, in a layout of corpus_layouts.py; else the corpus `wikipedia` has
               them
"""

import re
from ast import literal_eval
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources import delimited
from pipelines.sources.corpus_layouts import (
    columns_of,
    first_record,
    header_of,
    is_json,
    is_query_file,
    layout_of,
    require_layout,
)
from pipelines.sources.question_files import ANSWERS, IDS, QUESTION, first_value, read_records
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_texts
from pipelines.sources.streams import is_parquet, open_text, read_head, visible_files
from pipelines.storage import parquet

DEEPEST_RANK = 100  # of a question's passages that are kept, as many as DPR's own files have
NAME = re.compile(r"\.(trec|run)(\.|$)")
LINE = re.compile(
    r"\s*(?P<question>\S+)\s+(Q0|q0|0)\s+(?P<passage>\S+)\s+(?P<rank>\d+)\s+"
    r"(?P<score>[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)\s+\S+\s*"
)
TOPIC_TEXTS = (*QUESTION, "text")  # BEIR's queries have a text
TOPIC_ANSWERS = (*ANSWERS, "answer")

Record = dict[str, Any]
Records = dict[str, Record]  # by their ids


class Hit(NamedTuple):
    """A line of a run."""

    number: int  # of the line, from 1
    passage: str  # its id
    score: float


def is_run(file: Path) -> bool:
    """Whether a file is a TREC run, by its name or its first line."""
    if is_parquet(file):
        return False
    first_line, _, _ = read_head(file).partition(b"\n")
    is_line = LINE.fullmatch(first_line.decode("utf-8", "replace"))
    return bool(NAME.search(file.name) or is_line)


def read_runs(
    folder: Path, corpus: Path, rejects: Rejects
) -> Iterator[tuple[Path, list[tuple[int, Record]]]]:
    """Yield each run of a folder with its questions: the line of its first passage, and a record
    with a question and `ctxs`, the best passage first.

    The passages are those beside the run, or the files of the folder `corpus`. Bad lines go to
    `rejects`: "wrong columns", "no topic", "rank twice", "unknown passage". Raises LongtailError
    where a run has no topics or no passages, and for passages without ids.
    """
    runs = []
    topics: Records = {}
    passage_files = []
    for file in sorted(folder.iterdir()):
        if not file.is_file() or file.name.startswith("."):
            continue
        if is_run(file):
            runs.append(file)
            continue
        topics_of_file = _read_topics(file)
        topics |= topics_of_file
        if not topics_of_file:
            passage_files.append(file)

    if not topics:
        raise LongtailError(
            f"{runs[0]}: a TREC run, which has no questions; expected its topics beside it: a "
            "table of ids and questions, or a question set"
        )
    if not passage_files:
        passage_files = visible_files(corpus)
    if not passage_files:
        raise LongtailError(
            f"{runs[0]}: a TREC run, which has no texts; expected its passages beside it, or under "
            "fetch.files.wikipedia"
        )

    for run in runs:
        yield run, _read_run(run, topics, passage_files, rejects)


def _read_run(
    run: Path, topics: Mapping[str, Record], passage_files: Iterable[Path], rejects: Rejects
) -> list[tuple[int, Record]]:
    """The questions of a run that have passages; bad lines go to `rejects`."""
    hits_of_question = _read_hits(run, topics, rejects)
    ids = set()
    for hits in hits_of_question.values():
        ids.update(hit.passage for hit in hits.values())
    passages = _read_passages(passage_files, ids)

    records = []
    for question, hits in hits_of_question.items():
        ctxs = []
        for rank in sorted(hits):
            hit = hits[rank]
            if hit.passage in passages:
                ctxs.append(passages[hit.passage] | {"score": hit.score})
            else:
                rejects.add(run, hit.number, "unknown passage", hit.passage)
        if ctxs:
            first_line = min(hit.number for hit in hits.values())
            records.append((first_line, topics[question] | {"ctxs": ctxs}))
    return records


def _read_hits(
    run: Path, topics: Mapping[str, Record], rejects: Rejects
) -> dict[str, dict[int, Hit]]:
    """The lines of a run by question and rank."""
    hits: defaultdict[str, dict[int, Hit]] = defaultdict(dict)
    for number, text in enumerate(open_text(run), start=1):
        if not text.strip():
            continue
        rejects.read += 1
        line = LINE.fullmatch(text)
        if not line:
            rejects.add(
                run, number, "wrong columns", f"{text}; expected qid Q0 docid rank score tag"
            )
            continue

        question = line["question"]
        rank = int(line["rank"])
        if question not in topics:
            rejects.add(run, number, "no topic", question)
        elif rank in hits[question]:
            rejects.add(run, number, "rank twice", f"{question}: {rank}")
        elif rank > DEEPEST_RANK:
            rejects.skip("deep_rank")
        else:
            hits[question][rank] = Hit(number, line["passage"], float(line["score"]))
    return hits


def _read_topics(file: Path) -> Records:
    """A file's questions by their ids; none for a file of passages."""
    if is_parquet(file):
        return _topics_of_records(file, parquet.schema_of(file).names)
    head = read_head(file)
    if is_json(head):
        return _topics_of_records(file, first_record(head.decode("utf-8", "ignore")))

    header = header_of(head)
    if _are_of_topics(header):
        return _topics_of_table(file, header)
    if columns_of(head):
        return {}
    first_line, _, _ = head.decode("utf-8", "replace").partition("\n")
    cells = delimited.one_row([first_line.rstrip("\r")], "\t") or []
    if len(cells) == 2 and isinstance(_value(cells[1]), list):
        return _topics_of_lines(file)
    return _topics_of_pairs(file)


def _are_of_topics(names: Collection[str]) -> bool:
    """Whether records with these fields have an id and a question."""
    return not set(IDS).isdisjoint(names) and not set(QUESTION).isdisjoint(names)


def _topics_of_records(file: Path, names: Collection[str]) -> Records:
    """The questions of JSON or Parquet, whose records have fields of these names."""
    if not _are_of_topics(names) and not is_query_file(file, layout_of(file)):
        return {}
    topics = {}
    columns = (*IDS, *TOPIC_TEXTS, *TOPIC_ANSWERS)
    for _, record in read_records(file, columns, Rejects(1.0)):
        question = first_value(record, TOPIC_TEXTS)
        topics[str(first_value(record, IDS))] = record | {"question": question}
    return topics


def _topics_of_table(file: Path, header: list[str]) -> Records:
    """The questions of a table with a header, such as PopQA's."""
    topics = {}
    for _, cells, _ in delimited.table_rows(file, "\t", len(header)):
        if cells is None or cells == header or len(cells) != len(header):
            continue
        record = dict(zip(header, map(_value, cells), strict=True))
        topics[str(first_value(record, IDS))] = record
    return topics


def _topics_of_lines(file: Path) -> Records:
    """DPR's questions and answers, which Pyserini counts from 0."""
    topics = {}
    for number, (_, cells, _) in enumerate(delimited.table_rows(file, "\t", 2)):
        if cells is not None and len(cells) == 2:
            question, answers = cells
            topics[str(number)] = {"question": question, "answers": _value(answers)}
    return topics


def _topics_of_pairs(file: Path) -> Records:
    """Lines of an id, a tab and a question."""
    topics = {}
    for text in open_text(file):
        id_, tab, question = text.partition("\t")
        if tab:
            topics[id_.strip()] = {"qid": id_.strip(), "question": question.strip()}
    return topics


def _value(cell: str) -> Any:
    """A cell's list, as ['a', "b"]; any other cell is a text."""
    if cell.startswith("[") and cell.endswith("]"):
        try:
            return literal_eval(cell)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return cell
    return cell


def _read_passages(files: Iterable[Path], ids: Collection[str]) -> Records:
    """The passages with some of `ids`, by their ids; each file is read once, as a stream."""
    passages = {}
    for file in files:
        layout = require_layout(file)
        if not layout.id or layout.part:
            raise LongtailError(
                f"{file}: texts without ids of their own; expected passages with ids, as the TREC "
                "run names them"
            )
        for _, text, row in read_texts(file, Rejects(1.0), layout):
            id_ = str(row.id)
            if id_ in ids:
                passages[id_] = {"id": id_, "title": row.title or None, "text": text}
    return passages
