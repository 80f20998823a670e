"""Looking into what a run left: searching a corpus, and asking a question the adaptive way (PopQA, section 6)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines import params
from pipelines.errors import LongtailError

ENCODERS = {"bm25": None, "dense": Path("data/models/retriever"), "lsr": Path("data/models/lsr")}


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
    """The `k` best documents for a text, best first. Raises LongtailError where the index is not there."""
    from pipelines.retrieval import documents
    from pipelines.retrieval.open import open_retriever

    chosen = params.load("retriever", "compute")
    index, docs = Path(f"data/index/{corpus}/{retriever}"), Path(f"data/corpus/{corpus}/docs.parquet")
    if not index.is_dir():
        raise LongtailError(f"{index}: no such index; `longtail run` makes it")
    found = open_retriever(index, docs, ENCODERS[retriever], chosen.retriever, chosen.compute)
    positions, scores = found.search([text], min(k, found.count))
    ids, titles, texts = documents.read(docs, positions[0])
    return [Hit(float(score), *rest) for score, *rest in zip(scores[0], ids, titles, texts, strict=True)]


def ask(question: str, retriever: str) -> Iterator[str]:
    """Answer a question by its relation's popularity threshold; yields lines that say why, the answer last."""
    from pipelines.adaptive.prompts import question_prompt
    from pipelines.lm.open import open_lm

    chosen = params.load("lm", "compute", "answer")
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
    lm = open_lm(Path("data/models/lm"), chosen.lm, chosen.compute)
    (made,) = lm.generate([question_prompt(question, passage, [])], chosen.answer.new_tokens)
    yield f"answer: {made.text.strip()}"


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
