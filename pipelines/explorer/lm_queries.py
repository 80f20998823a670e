"""Scored texts: what retrieved documents gain on each query and token, and what is the model's memory (REPLUG, 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.explorer.run import PAGE, RUN, Addressed, Run, lookup, one_of, page_of
from pipelines.replug import responsibility
from pipelines.scoring.logprobs import ScoredTexts
from pipelines.storage import database

LN2 = math.log(2)
ORDERS = {
    "gain": "saved / tokens DESC, query_id",
    "loss": "saved / tokens, query_id",
    "id": "query_id",
}

GAINS = """WITH gains AS (
    SELECT with_documents.query_id, with_documents.source, with_documents.tokens, none.nats / ln(2) AS bits,
        (none.nats - with_documents.nats) / ln(2) AS saved
    FROM bpb AS with_documents JOIN bpb AS none USING (lm, query_id)
    WHERE lm = $lm AND with_documents.retriever = $retriever AND with_documents.k = $k AND none.retriever = 'none'
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
    def of(cls, run: Run, asked: Mapping[str, str]) -> Texts:
        """The texts that some fields ask for; LongtailError for a value that a field does not have."""
        if not (there := corpora(run)):
            by = RUN if run.params.parts.scored else "this run scores none"
            raise LongtailError(f"{run.data}/language_modelling: no scored texts; {by}")
        corpus = one_of(asked, "corpus", there, there[0])
        settings = settings_of(run, corpus)
        lm = one_of(asked, "lm", settings, next(iter(settings)))
        best = next(
            (name for name in ("lsr", "dense", "bm25") if name in settings[lm]),
            next(iter(settings[lm]), ""),
        )
        retriever = one_of(asked, "retriever", settings[lm], best)
        ks = settings[lm][retriever]
        most = max((k for k in ks if k <= run.params.replug.top_k), default=ks[0])
        k = int(one_of(asked, "k", map(str, ks), str(most)))
        return cls(corpus, lm, retriever, k, one_of(asked, "order", ORDERS, "gain"), page_of(asked))


class Token(NamedTuple):
    text: str
    bits: float  # without documents
    saved: float  # by the ensemble
    memory: float  # share of its probability that the model gives without documents
    by_document: list[float]  # bits that each document saves alone


def table(run: Run, corpus: str) -> Path:
    return run.data / "language_modelling" / corpus / "bpb.parquet"


def corpora(run: Run) -> list[str]:
    return [name for name in run.params.parts.scored if table(run, name).is_file()]


def settings_of(run: Run, corpus: str) -> dict[str, dict[str, list[int]]]:
    """Language model -> retriever -> numbers of documents that a corpus was scored with."""
    query = "SELECT lm, retriever, list(DISTINCT k ORDER BY k) FROM bpb WHERE k > 0 GROUP BY ALL ORDER BY ALL"
    settings: dict[str, dict[str, list[int]]] = {}
    for lm, retriever, ks in database.ask(query, bpb=table(run, corpus)).fetchall():
        settings.setdefault(lm, {})[retriever] = ks
    return settings


def list_texts(run: Run, chosen: Texts) -> tuple[list[dict], int]:
    """The texts of one page, with the bits that documents save, and how many there are."""
    tables = {
        "bpb": table(run, chosen.corpus),
        "queries": run.data / "corpus" / chosen.corpus / "queries.parquet",
    }
    values = {"lm": chosen.lm, "retriever": chosen.retriever, "k": chosen.k}
    ((total,),) = database.ask(f"{GAINS} SELECT count(*) FROM gains", values, **tables).fetchall()
    query = f"""{GAINS} SELECT gains.*, coalesce(continuation, '') AS text
        FROM gains LEFT JOIN queries ON queries.id = query_id
        ORDER BY {ORDERS[chosen.order]} LIMIT $limit OFFSET $offset"""
    values |= {"limit": PAGE, "offset": PAGE * (chosen.page - 1)}
    return database.ask(query, values, **tables).to_arrow_table().to_pylist(), total


def read_scored_text(run: Run, chosen: Texts, query_id: str) -> dict[str, Any]:
    """A text: its row of queries.parquet, its `bits` without documents, those `saved` by the ensemble, and `tokens`;
    the share of `memory`, the mean over its tokens; and the `measure` that the documents' similarity is.

    `documents` have id, rank, similarity, title, text, weight (lambda), their `share` beside memory's, and the bits
    `saved` by each alone. Raises LongtailError if the text was not scored, or a file is missing.
    """
    corpus, scores = (
        run.data / "corpus" / chosen.corpus,
        run.data / "logprobs" / chosen.corpus / chosen.lm,
    )
    retrieved = lookup(scores / "retrieved.parquet", "query_id", [query_id])
    retrieved = [
        row for row in retrieved if row["retriever"] == chosen.retriever and row["rank"] <= chosen.k
    ]
    if not retrieved:
        text = f"text {query_id!r} of {chosen.corpus}"
        raise LongtailError(f"id: no {text} was scored with documents by {chosen.retriever}")
    retrieved.sort(key=lambda row: row["rank"])
    scored = {
        row["doc_id"]: row for row in lookup(scores / "logprobs.parquet", "query_id", [query_id])
    }
    (query,) = lookup(corpus / "queries.parquet", "id", [query_id])
    doc_ids = [row["doc_id"] for row in retrieved]
    docs = {
        row["id"]: row for row in lookup(corpus / "docs.parquet", "id", doc_ids, "title", "text")
    }
    alone, sizes = np.array(scored[""]["log_probs"], float), np.array(scored[""]["bytes"])
    log_probs = np.array([scored[doc_id]["log_probs"] for doc_id in doc_ids], float)  # (k, tokens)
    similarities = np.array([[row["similarity"] for row in retrieved]])
    text = ScoredTexts(
        np.array([query_id]), sizes[None], np.array([len(alone)]), alone[None], log_probs[None], similarities,
        np.array([doc_ids]),
    )  # fmt: skip
    of = responsibility.attribute_tokens(
        text, run.params.replug.temperature, run.params.replug.mixture
    )
    bits, saved, gains = -alone / LN2, (of.mixed[0] - alone) / LN2, (log_probs - alone) / LN2
    pieces = responsibility.token_texts(query["continuation"], sizes)
    tokens = zip(
        pieces, *(column.tolist() for column in (bits, saved, of.memory[0], gains.T)), strict=True
    )
    columns = (of.weights[0], of.documents[0].mean(axis=1), gains.sum(axis=1))
    documents = [
        row | docs[row["doc_id"]] | {"weight": weight, "share": share, "saved": of_document}
        for row, weight, share, of_document in zip(
            retrieved, *(one.tolist() for one in columns), strict=True
        )
        if row["doc_id"]
    ]
    measure = methods.measure(chosen.retriever, run.params)
    return query | {
        "bits": bits.sum(), "saved": saved.sum(), "memory": of.memory[0].mean(), "documents": documents,
        "tokens": [Token(*token) for token in tokens],
        "measure": "share of BM25's best score" if chosen.retriever == "bm25" else measure,
    }  # fmt: skip
