"""Scored texts: what retrieved documents save on each query and token, and the share of memory.

A language model has scored the continuation of each query, alone and with documents (REPLUG, 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.explorer.addresses import (
    ROWS_OF_PAGE,
    Addressed,
    page_number,
    value_of,
)
from pipelines.explorer.run import RUN_MAKES_IT, Run, lookup
from pipelines.replug import responsibility
from pipelines.scoring.logprob_files import ScoredTexts
from pipelines.storage import database

LN2 = math.log(2)
ORDERS = {
    "gain": "saved / tokens DESC, query_id",
    "loss": "saved / tokens, query_id",
    "id": "query_id",
}
LIKELY_RETRIEVERS = ("lsr", "dense", "bm25")  # the first that a corpus was scored with is shown

GAINS = """WITH gains AS (
    SELECT with_documents.query_id, with_documents.source, with_documents.tokens,
        none.nats / ln(2) AS bits, (none.nats - with_documents.nats) / ln(2) AS saved
    FROM bpb AS with_documents JOIN bpb AS none USING (lm, query_id)
    WHERE lm = $lm AND with_documents.retriever = $retriever AND with_documents.k = $k
        AND none.retriever = 'none'
) """


@dataclass(frozen=True)
class Texts(Addressed):
    """Which scored texts are looked at."""

    PATH = "/texts"
    corpus: str
    lm: str
    retriever: str
    k: int  # documents of an ensemble
    order: str = "gain"
    page: int = 1

    @classmethod
    def parse(cls, run: Run, parameters: Mapping[str, str]) -> Texts:
        """The texts that an address asks for.

        Raises LongtailError for a value that there is not.
        """
        scored = corpora(run)
        if not scored:
            reason = RUN_MAKES_IT if run.params.parts.scored else "this run scores none"
            raise LongtailError(f"{run.data}/language_modelling: no scored texts; {reason}")
        corpus = value_of(parameters, "corpus", scored, scored[0])
        settings = settings_of(run, corpus)
        lm = value_of(parameters, "lm", settings, next(iter(settings)))

        retrievers = settings[lm]
        likely = [name for name in LIKELY_RETRIEVERS if name in retrievers]
        default = next(iter([*likely, *retrievers]), "")
        retriever = value_of(parameters, "retriever", retrievers, default)

        numbers = retrievers[retriever]
        up_to_top_k = [k for k in numbers if k <= run.params.replug.top_k]
        default_k = max(up_to_top_k, default=numbers[0])
        k = value_of(parameters, "k", map(str, numbers), str(default_k))
        return cls(
            corpus=corpus,
            lm=lm,
            retriever=retriever,
            k=int(k),
            order=value_of(parameters, "order", ORDERS, "gain"),
            page=page_number(parameters),
        )


class Token(NamedTuple):
    text: str
    bits: float  # without documents
    saved: float  # bits that the ensemble saves
    memory: float  # share of its probability that the model gives without documents
    by_document: list[float]  # bits that each document saves alone


def table(run: Run, corpus: str) -> Path:
    """The bits of each query of a corpus, by language model, retriever and number of documents."""
    return run.data / "language_modelling" / corpus / "bpb.parquet"


def corpora(run: Run) -> list[str]:
    """The corpora whose texts are scored."""
    return [name for name in run.params.parts.scored if table(run, name).is_file()]


def settings_of(run: Run, corpus: str) -> dict[str, dict[str, list[int]]]:
    """Language model -> retriever -> numbers of documents that a corpus was scored with."""
    query = """SELECT lm, retriever, list(DISTINCT k ORDER BY k) FROM bpb
        WHERE k > 0 GROUP BY ALL ORDER BY ALL"""
    settings: dict[str, dict[str, list[int]]] = {}
    for lm, retriever, numbers in database.ask(query, bpb=table(run, corpus)).fetchall():
        settings.setdefault(lm, {})[retriever] = numbers
    return settings


def list_texts(run: Run, texts: Texts) -> tuple[list[dict], int]:
    """The texts of one page, with the bits that documents save, and how many there are."""
    bits = table(run, texts.corpus)
    queries = run.data / "corpus" / texts.corpus / "queries.parquet"
    values = {"lm": texts.lm, "retriever": texts.retriever, "k": texts.k}
    counted = database.ask(f"{GAINS} SELECT count(*) FROM gains", values, bpb=bits)
    ((total,),) = counted.fetchall()

    values |= {"limit": ROWS_OF_PAGE, "offset": ROWS_OF_PAGE * (texts.page - 1)}
    query = f"""{GAINS} SELECT gains.*, coalesce(continuation, '') AS text
        FROM gains LEFT JOIN queries ON queries.id = query_id
        ORDER BY {ORDERS[texts.order]} LIMIT $limit OFFSET $offset"""
    page = database.ask(query, values, bpb=bits, queries=queries)
    return page.to_arrow_table().to_pylist(), total


def read_scored_text(run: Run, texts: Texts, query_id: str) -> dict[str, Any]:
    """A text with its tokens and documents.

    It has the columns of queries.parquet; its `bits` without documents; those `saved` by the
    ensemble; the share of `memory`, the mean over its tokens; its `tokens`; and the `measure` that
    the documents' similarity is. `documents` have id, rank, similarity, title, text, weight
    (lambda), their `share` beside memory's, and the bits `saved` by each alone. Raises
    LongtailError if the text was not scored, or a file is missing.
    """
    retrieved = _retrieved(run, texts, query_id)
    if not retrieved:
        raise LongtailError(
            f"id: no text {query_id!r} of {texts.corpus} was scored with documents by "
            f"{texts.retriever}"
        )

    corpus = run.data / "corpus" / texts.corpus
    (query,) = lookup(corpus / "queries.parquet", "id", [query_id])
    scored = _scored(run, texts, query_id, retrieved)
    replug = run.params.replug
    attributed = responsibility.attribute_tokens(scored, replug.temperature, replug.mixture)

    alone = scored.log_probs_alone[0]  # (tokens,) nats
    bits = -alone / LN2
    saved = (attributed.mixed[0] - alone) / LN2
    saved_by_document = (scored.log_probs[0] - alone) / LN2  # (k, tokens)
    memory = attributed.memory[0]
    pieces = responsibility.token_texts(query["continuation"], scored.bytes[0])
    tokens = []
    for i, piece in enumerate(pieces):
        by_document = saved_by_document[:, i].tolist()
        token = Token(piece, float(bits[i]), float(saved[i]), float(memory[i]), by_document)
        tokens.append(token)

    weights = attributed.weights[0].tolist()
    shares = attributed.documents[0].mean(axis=1).tolist()
    gains = saved_by_document.sum(axis=1).tolist()
    documents = _documents(corpus, retrieved)
    for document, weight, share, gain in zip(documents, weights, shares, gains, strict=True):
        document |= {"weight": weight, "share": share, "saved": gain}

    params = run.params
    measure = methods.measure(texts.retriever, params.retrievers, params.retriever)
    if texts.retriever == "bm25":
        measure = "share of BM25's best score"
    shown_documents = [document for document in documents if document["doc_id"]]
    return query | {
        "bits": bits.sum(),
        "saved": saved.sum(),
        "memory": memory.mean(),
        "documents": shown_documents,
        "tokens": tokens,
        "measure": measure,
    }


def _retrieved(run: Run, texts: Texts, query_id: str) -> list[dict]:
    """The documents of a query by the retriever that is looked at, best first."""
    file = _scores(run, texts) / "retrieved.parquet"
    rows = []
    for row in lookup(file, "query_id", [query_id]):
        if row["retriever"] == texts.retriever and row["rank"] <= texts.k:
            rows.append(row)
    return sorted(rows, key=lambda row: row["rank"])


def _scored(run: Run, texts: Texts, query_id: str, retrieved: list[dict]) -> ScoredTexts:
    """The scores of one text, alone and with each of its documents."""
    rows = lookup(_scores(run, texts) / "logprobs.parquet", "query_id", [query_id])
    by_document = {row["doc_id"]: row for row in rows}
    alone = np.array([by_document[""]["log_probs"]], float)
    sizes = np.array([by_document[""]["bytes"]])
    doc_ids = [row["doc_id"] for row in retrieved]
    with_documents = [by_document[doc_id]["log_probs"] for doc_id in doc_ids]
    log_probs = np.array([with_documents], float)
    similarities = [row["similarity"] for row in retrieved]
    return ScoredTexts(
        ids=np.array([query_id]),
        bytes=sizes,
        lengths=np.array([sizes.size]),
        log_probs_alone=alone,
        log_probs=log_probs,
        similarities=np.array([similarities]),
        doc_ids=np.array([doc_ids]),
    )


def _documents(corpus: Path, retrieved: list[dict]) -> list[dict]:
    """The retrieved documents with their titles and texts, in the same order."""
    doc_ids = [row["doc_id"] for row in retrieved]
    rows = lookup(corpus / "docs.parquet", "id", doc_ids, "id", "title", "text")
    documents = {row["id"]: row for row in rows}
    return [row | documents.get(row["doc_id"], {}) for row in retrieved]


def _scores(run: Run, texts: Texts) -> Path:
    return run.data / "logprobs" / texts.corpus / texts.lm
