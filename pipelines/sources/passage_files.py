"""Questions with retrieved passages, in the files of DPR, FlashRAG, KILT, RAGAS and others.

TREC runs, which have ids alone, are joined with their questions and passages by run_files.py.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.sources.question_files import (
    ANSWERS,
    IDS,
    QUESTION,
    AnsweredRecord,
    answered_records,
    first_value,
    good_records,
    named_files,
    shown,
    values_at,
)
from pipelines.sources.rejects import Rejects
from pipelines.sources.run_files import TOPIC_ANSWERS, is_run, read_runs
from pipelines.sources.streams import visible_files

CORPUS = Path("data/raw/wikipedia")
# Where systems have a question, and the passages that were retrieved for it, the best first.
QUESTION_PLACES = (*QUESTION, "input", "user_input")
PASSAGES = (
    "ctxs",
    "context",
    "contexts",
    "top_contexts",
    "retrieval_result",
    "output.retrieval_result",
    "output.0.provenance",
    "retrieved_contexts",
    "docs",
    "passages",
)
# A list of as many numbers as there are passages, where these have no scores themselves.
SCORE_LISTS = ("doc_scores", "scores", "retrieval_scores")

# Fields of a passage, the likeliest name first.
TEXT_FIELDS = ("text", "contents", "content", "passage", "page_content", "retrieval text")
TITLE_FIELDS = ("title", "wikipedia_title")
ID_FIELDS = ("id", "_id", "docid", "doc_id", "pid", "passage_id")
SCORE_FIELDS = ("score", "similarity", "retrieval_score")

# A title in front of its text. FlashRAG and HippoRAG have it in the first line, in quotes or short.
TITLE_LINE = re.compile(r'"([^\n]+)"[ \t]*\n+|([^\n]{1,100}?(?<![.!?:;,\s]))[ \t]*\n+')
# ActiveRAG has it in brackets, and its last passage is the best.
NUMBERED_TITLE = re.compile(r"Document \d+ \(Title: ([^\n]*?)\):\s*")


class Passage(NamedTuple):
    title: str
    text: str
    id: str  # "" where it has none
    score: float | None


class QuestionWithPassages(NamedTuple):
    id: str  # "<file>/<line>"
    dataset: str  # the question's data set; "" if the line doesn't name it
    text: str
    answers: list[str]
    passages: list[Passage]  # without those that have no text
    record: dict[str, Any]  # all that the file says of it


def read_questions_with_passages(
    folder: Path, rejects: Rejects, *, answered: bool = True, corpus: Path = CORPUS
) -> Iterator[QuestionWithPassages]:
    """Yield the questions of every file below `folder`, as `read_passage_file` does.

    In a folder with TREC runs, all files belong to these: see `read_runs`, which takes passages
    from `corpus` where there are none. Raises LongtailError as `read_questions` and `read_runs` do.
    """
    run_folders = {file.parent for file in visible_files(folder) if is_run(file)}
    for name, path in named_files(folder, run_folders):
        yield from read_passage_file(path, name, rejects, answered=answered)

    for run_folder in sorted(run_folders):
        for run, records in read_runs(run_folder, corpus, rejects):
            name = run.relative_to(folder).with_suffix("").as_posix()
            own = Rejects(rejects.max_share)
            own.read = len(records)
            questions = good_records(
                run, records, own, QUESTION_PLACES, TOPIC_ANSWERS, answers_needed=answered
            )
            yield from _with_passages(run, name, questions, own)
            rejects.take(own)


def read_passage_file(
    path: Path, name: str, rejects: Rejects, *, answered: bool = True
) -> Iterator[QuestionWithPassages]:
    """Yield the questions of a file in any of the layouts of PASSAGES; `name` begins their ids.

    A record has a question (QUESTION_PLACES), answers and a list of passages, the best first:
    objects with fields, or texts. "data_source" names the question's data set. Bad records go to
    `rejects` as those of `read_questions` do, and those with "no passages". Without `answered`, a
    record needs no answers.
    """
    fields = [place.partition(".")[0] for place in (*PASSAGES, *SCORE_LISTS)]
    columns = (*IDS, "metadata", "data_source", *fields)
    records = answered_records(
        path, rejects, QUESTION_PLACES, ANSWERS, columns, answers_needed=answered
    )
    yield from _with_passages(path, name, records, rejects)


def _with_passages(
    path: Path, name: str, records: Iterable[AnsweredRecord], rejects: Rejects
) -> Iterator[QuestionWithPassages]:
    """Yield the records that have passages; `rejects` has the others."""
    for number, record, text, answers in records:
        passages = passages_of(record)
        if not passages:
            rejects.add(path, number, "no passages", shown(record))
            continue
        dataset = record.get("data_source")
        yield QuestionWithPassages(
            id=f"{name}/{number}",
            dataset=dataset if isinstance(dataset, str) else "",
            text=text,
            answers=answers,
            passages=passages,
            record=record,
        )


def passages_of(record: dict[str, Any]) -> list[Passage]:
    """The passages with a text in a record, the best first: ActiveRAG's are turned round."""
    lists = [value for value in values_at(record, PASSAGES) if isinstance(value, list) and value]
    items = lists[0] if lists else []
    score_lists = [value for value in values_at(record, SCORE_LISTS) if isinstance(value, list)]
    scores = score_lists[0] if score_lists else []
    if len(scores) != len(items):
        scores = [None] * len(items)

    passages = []
    for item, score in zip(items, scores, strict=True):
        passage = _passage(item, score)
        if passage.text.strip():
            passages.append(passage)

    worst_first = all(isinstance(item, str) and NUMBERED_TITLE.match(item) for item in items)
    return passages[::-1] if worst_first else passages


def _passage(item: Any, listed_score: Any) -> Passage:
    """A passage, of an object or a text; its text is "" where it has none.

    The text keeps its white space, as the language model is to read what the file has. A text may
    begin with its title, unless the object says what the title is, "" for none.
    """
    fields = item if isinstance(item, dict) else {"text": item}
    title = first_value(fields, TITLE_FIELDS)
    text = first_value(fields, TEXT_FIELDS)
    text = text if isinstance(text, str) else ""
    if not isinstance(title, str):
        title = ""
        match = TITLE_LINE.match(text) or NUMBERED_TITLE.match(text)
        if match:
            title = match[match.lastindex]
            text = text[match.end() :]

    own_id = first_value(fields, ID_FIELDS)
    own_score = first_value(fields, SCORE_FIELDS)
    try:
        score = float(listed_score if own_score is None else own_score)
    except (TypeError, ValueError):
        score = None
    return Passage(
        title=title,
        text=text,
        id=str(own_id) if isinstance(own_id, str | int) else "",
        score=score,
    )
