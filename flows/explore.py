"""Looking into what a run left: searching a corpus, and asking a question the adaptive way (PopQA, section 6)."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines import params_file
from pipelines.errors import LongtailError

ENCODERS = {"bm25": None, "dense": Path("data/models/retriever"), "lsr": Path("data/models/lsr")}
LINES = 4  # of a document's text, on the terminal


@dataclass(frozen=True)
class Hit:
    score: float
    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Subject:
    qid: str
    label: str
    popularity: int  # monthly page views
    namesakes: int  # other entities of that name, all less popular


def search(text: str, corpus: str, retriever: str, k: int) -> list[Hit]:
    """The `k` best documents for a text, best first; by BM25 only those with one of its words.

    Raises LongtailError for an empty text, where nothing is found, and where the index is not there.
    """
    from pipelines.retrieval import documents
    from pipelines.retrieval.open import open_retriever

    chosen = params_file.load("retriever", "compute")
    index, docs = Path(f"data/index/{corpus}/{retriever}"), Path(f"data/corpus/{corpus}/docs.parquet")
    if not text.strip():
        raise LongtailError("the text is empty, expected some words to look for")
    if not index.is_dir():
        there = ", ".join(sorted(f"{one.parent.name} by {one.name}" for one in Path("data/index").glob("*/*")))
        raise LongtailError(f"{index}: no such index; `longtail run` makes it" + (f"; there are {there}" * bool(there)))
    found = open_retriever(index, docs, ENCODERS[retriever], chosen.retriever, chosen.compute)
    positions, scores = (row[0] for row in found.search([text], k))
    if retriever == "bm25":
        positions, scores = positions[scores > 0], scores[scores > 0]
    if not len(positions):
        raise LongtailError(f"no document of {corpus} has a word of {text!r}; try others, or --retriever dense")
    return [Hit(float(score), *rest) for score, *rest in zip(scores, *documents.read(docs, positions), strict=True)]


def shown(hits: list[Hit], width: int) -> Iterator[str]:
    """Lines of at most `width` characters: rank, score, title and id of each hit, and the beginning of its text."""
    for rank, hit in enumerate(hits, 1):
        head = f"{rank:3}  {hit.score:8.4f}  "
        title = hit.title or "(no title)"
        yield from textwrap.wrap(f"{title}  [{hit.id}]", width, initial_indent=head, subsequent_indent=" " * len(head))
        yield from textwrap.wrap(
            hit.text, width, initial_indent=" " * 5, subsequent_indent=" " * 5, max_lines=LINES, placeholder=" …"
        )


def ask(question: str, retriever: str) -> Iterator[str]:
    """Answer a question by its relation's popularity threshold; yields lines that say why, the answer last."""
    from pipelines.adaptive.prompts import question_prompt
    from pipelines.lm.open import main_lm, open_lm

    chosen = params_file.load("lm", "lms", "compute", "answer")
    relation, name = recognise(question)
    subject = find_subject(name)
    thresholds = Path("data/adaptive/thresholds.json")
    if not thresholds.is_file():
        raise LongtailError(f"{thresholds}: no such file; `longtail run` writes it")
    cuts = json.loads(thresholds.read_text(encoding="utf-8"))["thresholds"]["popqa"][retriever]
    cut = cuts.get(relation.pid)  # none: retrieving was always worth it, or nothing was learned of the relation
    namesakes = f", {subject.namesakes} less popular of the same name" if subject.namesakes else ""
    yield f"relation: {relation.name} ({relation.pid}); subject: {subject.label} ({subject.qid}{namesakes})"
    passage = None
    if cut is None or subject.popularity < cut:
        why = "has no threshold to reach" if cut is None else f"is below the threshold of {cut:,.0f}"
        yield f"popularity: {subject.popularity:,} views a month {why}: retrieve"
        (hit,) = search(question, "wikipedia", retriever, 1)
        passage = hit.text
        yield f"passage: {hit.title} ({hit.id}, similarity {hit.score:.3f}): {hit.text}"
    else:
        yield f"popularity: {subject.popularity:,} views a month reach the threshold of {cut:,.0f}: no retrieval"
    lm = open_lm(*main_lm(chosen), chosen.compute)
    (made,) = lm.generate([question_prompt(question, passage, [])], chosen.answer.new_tokens)
    yield f"answer: {made.text.strip()}"


def attribute(query_id: str, retriever: str, page: Path) -> Iterator[str]:
    """What a scored text owes to memory and to each document; yields lines, and writes the text's page."""
    from pipelines import shards
    from pipelines.release import attribution_page

    text = attribution_page.one_text(Path("data"), retriever, query_id, "The text")
    yield text["summary"]
    yield f"{'without':>10} {'with':>10} {'bits':>6} {'memory':>8}  token"
    for token in text["tokens"]:
        memory = token["shares"][0][1]
        yield f"{token['none']:>10} {token['mixed']:>10} {token['gain']:>6} {memory:>8}  {token['text']!r}"
    yield f"memory: {text['memory']}"
    for document in text["documents"]:
        yield f"{document['share']:>8}  document {document['rank']}, {document['id']}: {document['beginning']}"
    with shards.atomic(page) as file:
        file.write_text(attribution_page.render([text], text["summary"]), encoding="utf-8")
    yield f"the page: {page}"


def recognise(question: str):
    """The relation whose template a question follows, and the subject's name in it."""
    from pipelines.popqa.relations import RELATIONS

    for relation in RELATIONS.values():
        before, after = map(re.escape, relation.template.split("{}"))
        if match := re.fullmatch(f"{before}(.+){after}", question.strip(), re.IGNORECASE):
            return relation, match[1]
    examples = "; ".join(relation.question("…") for relation in RELATIONS.values())
    raise LongtailError(f"no relation recognised in {question!r}; questions it knows: {examples}")


def find_subject(name: str, entities: Path = Path("data/triples/entities.parquet")) -> Subject:
    """The most popular entity of that label or alias. Raises LongtailError if there is none."""
    import duckdb

    if not entities.is_file():
        raise LongtailError(f"{entities}: no such file; `longtail run` writes it")
    rows = duckdb.execute(
        """SELECT qid, label, popularity FROM read_parquet($file)
           WHERE lower(label) = lower($name) OR list_contains(aliases, $name)
           ORDER BY popularity DESC NULLS LAST, qid""",
        {"file": str(entities), "name": name},
    ).fetchall()
    if not rows:
        raise LongtailError(f"{entities}: no entity is called {name!r}")
    qid, label, popularity = rows[0]
    return Subject(qid, label, popularity or 0, len(rows) - 1)
