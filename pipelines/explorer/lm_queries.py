"""Scored texts: what retrieved documents gain on each query and token, and each document alone (REPLUG, section 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.explorer.looked_at import PAGE, RUN, WORDS, Addressed, Run, csv_of, lookup, one_of, page_of
from pipelines.replug import ensemble, responsibility
from pipelines.report import attribution_page
from pipelines.storage import database

LN2 = math.log(2)
ORDERS = {"gain": "saved / tokens DESC, query_id", "loss": "saved / tokens, query_id", "id": "query_id"}

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
    source: str = ""  # The Pile's subset; "": all
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
        best = next((name for name in attribution_page.SHOWN if name in settings[lm]), next(iter(settings[lm]), ""))
        retriever = one_of(asked, "retriever", settings[lm], best)
        ks = settings[lm][retriever]
        most = max((k for k in ks if k <= run.params.replug.top_k), default=ks[0])
        k, source = one_of(asked, "k", map(str, ks), str(most)), asked.get("source", "")[:WORDS]
        return cls(corpus, lm, retriever, int(k), source, one_of(asked, "order", ORDERS, "gain"), page_of(asked))


class Token(NamedTuple):
    text: str
    bits: float  # without documents
    saved: float  # by the ensemble
    by_document: list[float]  # bits that each document saves alone


def table(run: Run, corpus: str) -> Path:
    return run.data / "language_modelling" / corpus / "bpb.parquet"


def corpora(run: Run) -> list[str]:
    """The corpora that have scored texts."""
    return [name for name in run.params.parts.scored if table(run, name).is_file()]


def settings_of(run: Run, corpus: str) -> dict[str, dict[str, list[int]]]:
    """Language model -> retriever -> numbers of documents that a corpus was scored with."""
    query = "SELECT lm, retriever, list(DISTINCT k ORDER BY k) FROM bpb WHERE k > 0 GROUP BY ALL ORDER BY ALL"
    settings: dict[str, dict[str, list[int]]] = {}
    for lm, retriever, ks in database.ask(query, bpb=table(run, corpus)).fetchall():
        settings.setdefault(lm, {})[retriever] = ks
    return settings


def list_texts(run: Run, chosen: Texts) -> tuple[list[dict], dict[str, int]]:
    """The texts of one page, with the bits that documents save, and how many there are of each source."""
    file, values = table(run, chosen.corpus), {"lm": chosen.lm, "retriever": chosen.retriever, "k": chosen.k}
    sources = database.ask(f"{GAINS} SELECT source, count(*) FROM gains GROUP BY ALL ORDER BY ALL", values, bpb=file)
    query, values = _in_order(chosen, "*")
    values |= {"limit": PAGE, "offset": PAGE * (chosen.page - 1)}
    rows = database.ask(f"{query} LIMIT $limit OFFSET $offset", values, bpb=file).to_arrow_table().to_pylist()
    asked = [row["query_id"] for row in rows]
    found = lookup(_queries(run, chosen), "id", asked, "continuation") if asked else []
    texts = {row["id"]: row["continuation"] for row in found}
    return [row | {"text": texts.get(row["query_id"], "")} for row in rows], dict(sources.fetchall())


def to_csv(run: Run, chosen: Texts) -> Iterator[bytes]:
    """All texts of the list as CSV, in its order, some thousands at a time."""
    columns = "query_id, gains.source, gains.tokens, bits, saved, saved / gains.tokens AS saved_per_token, continuation"
    query, values = _in_order(chosen, columns, "LEFT JOIN queries ON queries.id = query_id")
    return csv_of(database.ask(query, values, bpb=table(run, chosen.corpus), queries=_queries(run, chosen)))


def _in_order(chosen: Texts, columns: str, joined: str = "") -> tuple[str, dict[str, str | int]]:
    """The query for some columns of the chosen texts, in their order, and its values."""
    where = "gains.source = $source" if chosen.source else "true"
    values = {"lm": chosen.lm, "retriever": chosen.retriever, "k": chosen.k}
    query = f"{GAINS} SELECT {columns} FROM gains {joined} WHERE {where} ORDER BY {ORDERS[chosen.order]}"
    return query, values | ({"source": chosen.source} if chosen.source else {})


def _queries(run: Run, chosen: Texts) -> Path:
    return run.data / "corpus" / chosen.corpus / "queries.parquet"


def read_scored_text(run: Run, chosen: Texts, query_id: str) -> dict[str, Any]:
    """A text: its row of queries.parquet, its `bits` without documents, those `saved` by the ensemble, and `tokens`;
    and the `measure` that the documents' similarity is.

    `documents` have id, rank, similarity, title, text, weight (lambda) and the bits `saved` by each alone; `attributed`
    is whether a page attributes each token to memory and documents. Raises LongtailError if the text was not scored, or
    a file is missing.
    """
    corpus, scores = run.data / "corpus" / chosen.corpus, run.data / "logprobs" / chosen.corpus / chosen.lm
    retrieved = lookup(scores / "retrieved.parquet", "query_id", [query_id])
    retrieved = [row for row in retrieved if row["retriever"] == chosen.retriever and row["rank"] <= chosen.k]
    if not retrieved:
        raise LongtailError(
            f"id: no text {query_id!r} of {chosen.corpus} was scored with documents by {chosen.retriever}"
        )
    retrieved.sort(key=lambda row: row["rank"])
    scored = {row["doc_id"]: row for row in lookup(scores / "logprobs.parquet", "query_id", [query_id])}
    (query,) = lookup(corpus / "queries.parquet", "id", [query_id])
    docs = lookup(corpus / "docs.parquet", "id", [row["doc_id"] for row in retrieved], "title", "text")
    known = {document["id"]: document for document in docs}
    alone = np.array(scored[""]["log_probs"], float)
    log_probs = np.array([scored[row["doc_id"]]["log_probs"] for row in retrieved], float)  # (k, tokens)
    settings = run.params.replug
    weights = ensemble.log_weights(np.array([[row["similarity"] for row in retrieved]]), settings.temperature)
    saved = (ensemble.MIXTURES[settings.mixture](log_probs[None], weights)[0] - alone) / LN2
    gains, bits = (log_probs - alone) / LN2, -alone / LN2
    pieces = responsibility.token_texts(query["continuation"], np.array(scored[""]["bytes"]))
    tokens = zip(pieces, bits.tolist(), saved.tolist(), gains.T.tolist(), strict=True)
    found = zip(retrieved, np.exp(weights[0]).tolist(), gains.sum(axis=1).tolist(), strict=True)
    documents = [
        row | known[row["doc_id"]] | {"weight": weight, "saved": of_document}
        for row, weight, of_document in found
        if row["doc_id"]
    ]
    attributed, file = [], run.data / "attribution" / chosen.corpus / "texts.parquet"
    if file.is_file():
        asked = "SELECT 1 FROM texts WHERE lm = ? AND retriever = ? AND query_id = ?"
        attributed = database.ask(asked, [chosen.lm, chosen.retriever, query_id], texts=file).fetchall()
    text = query | {"bits": bits.sum(), "saved": saved.sum(), "tokens": [Token(*token) for token in tokens]}
    measure = methods.measure(chosen.retriever, run.params)
    text["measure"] = "share of BM25's best score" if chosen.retriever == "bm25" else measure
    return text | {"documents": documents, "attributed": bool(attributed)}
