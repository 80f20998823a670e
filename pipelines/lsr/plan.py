"""`longtail plan`: what LSR and its indexes will take (REPLUG §4-5), in tokens, hours, memory, disk and money.

Amounts are computed from the params, and from the corpora if these params made them. Hours are amounts divided by the
speeds of this machine (speed.py).
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from pipelines.lsr import speed
from pipelines.lsr.speed import MODELS
from pipelines.params import Parts
from pipelines.retrieval.index_plan import GIB, choose

SECTIONS = ("profile", "compute", "fetch", "world", "corpus", "chunk", "queries")
SECTIONS += ("lm", "lms", "parts", "retriever", "index", "lsr")
SHOWN = 10  # documents of a validation query
WIKIPEDIA = 21_000_000  # passages of 100 words in December 2018
DOCUMENT = 500  # bytes of a compressed source file per document: 270 for The Pile, 760 for Wikipedia
QUESTION = 24  # tokens of a question and its answer
SCORE = 5  # bytes on disk of a token's log-probability and length, compressed


class Amounts(NamedTuple):
    documents: dict[str, int]  # by corpus
    queries: int  # learnt from
    refreshes: int
    pairs: int  # (query, document) or (query, none) that the language model reads, at most
    lm_tokens: int
    embedded: int  # tokens at each refresh
    trained: int  # tokens in all steps, at most
    indexed: int  # tokens of the indexes before and after
    at_once: int  # tokens embedded with gradient at once, at most
    held: int  # documents whose texts a round keeps in memory, at most


def amounts(params: SimpleNamespace, documents: dict[str, int], lm_queries: int) -> Amounts:
    """All amounts, from the number of documents by corpus and of language-modelling queries.

    A refresh embeds the corpora that training searches: the first scored one, and the datastore of the questions.
    """
    lsr, length = params.lsr, params.chunk.tokens
    context, continuation = params.queries.context_tokens, params.queries.continuation_tokens
    n_lm = min(lsr.lm_queries, lm_queries) if lsr.queries != "qa" else 0
    n_qa = lsr.qa_queries if lsr.queries != "lm" else 0
    queries, refreshes = n_lm + n_qa, -(-lsr.steps // lsr.refresh_steps)
    rounds = [min(lsr.refresh_steps, lsr.steps - i * lsr.refresh_steps) for i in range(refreshes)]
    drawn = [min(steps * lsr.batch_size, queries) for steps in rounds]  # a round searches each query once
    alone = min(lsr.steps * lsr.batch_size, queries)
    validation = (refreshes + 1) * lsr.validation_queries * SHOWN
    lm_share = n_lm / max(1, queries)
    query_tokens = lm_share * (context + continuation) + (1 - lm_share) * QUESTION
    texts_of_step = lsr.batch_size * (lsr.top_k + 1)
    return Amounts(
        documents=documents,
        queries=queries,
        refreshes=refreshes,
        pairs=sum(drawn) * lsr.top_k + alone + validation,
        lm_tokens=round(sum(drawn) * lsr.top_k * (length + query_tokens) + alone * query_tokens)
        + validation * (length + context + continuation),
        embedded=sum(documents[corpus] for corpus in _refreshed(params.parts)) * length,
        trained=lsr.steps * lsr.batch_size * round(lsr.top_k * length + lm_share * context + (1 - lm_share) * QUESTION),
        indexed=2 * sum(documents.values()) * length,
        at_once=min(texts_of_step, lsr.micro_batch or texts_of_step) * length,
        held=max(drawn) * lsr.top_k,
    )


def forecast(params: SimpleNamespace) -> list[str]:
    """The plan for params with SECTIONS, as lines; LongtailError if an index does not fit into `index.memory_gb`."""
    lsr, name = params.lsr, params.lms[0]
    counts, sources = _documents(params)
    needed = amounts(params, counts, _lm_queries(params))
    lm, lm_taken_for = speed.shape_of(MODELS / "lm" / name, params.lm[name], speed.GPT2_XL)
    encoder, encoder_taken_for = speed.shape_of(MODELS / "retriever", params.retriever, speed.CONTRIEVER)
    embed, train = speed.of_encoder(params, encoder, encoder_taken_for)
    http = params.lm[name].http if params.lm[name].source == "http" else None
    read = speed.of_server(http) if http else speed.of_language_model(params, lm, lm_taken_for)
    rows = [
        ("indexes, before and after", needed.indexed, embed, "both indexes of each corpus"),
        ("embedding anew", needed.refreshes * needed.embedded, embed, f"{needed.refreshes} times"),
        (f"{name} reads", needed.lm_tokens, read, f"{_number(needed.pairs)} pairs at most; kept ones cost nothing"),
        ("training", needed.trained, train, "forward and backward"),
    ]
    seconds = [tokens / rate.tokens for _, tokens, rate, _ in rows]
    device, passes = speed.device(params.compute), lsr.steps * lsr.batch_size / max(1, needed.queries)
    lines = [
        f"profile {params.profile}: {lsr.steps:,} steps of {lsr.batch_size} queries x {lsr.top_k} documents, "
        f"{needed.queries:,} queries seen {passes:.1f} times, a refresh every {lsr.refresh_steps:,} steps",
        "documents: " + ", ".join(f"{corpus} {n:,} ({sources[corpus]})" for corpus, n in counts.items()),
        f"rates: of this machine's {'GPU' if device == 'cuda' else 'CPU'}"
        + f"; compute.device is {params.compute.device}, which it lacks" * (device != params.compute.device),
        "",
        f"{'':26} {'tokens':>9} {'tokens/s':>9} {'here':>10}",
    ]
    for (label, tokens, rate, note), took in zip(rows, seconds, strict=True):
        figures = f"{label:26} {_number(tokens):>9} {_number(rate.tokens):>9} {_hours(took):>10}"
        lines.append(f"{figures}  {note}; {rate.basis}")
    totals = [("together", sum(seconds), "without searching and building lists")]
    if lsr.refresh == "async":
        note = "lsr.refresh is async: embedding anew and reading, a round ahead, on a free core or GPU"
        totals.append(("together, side by side", _side_by_side(*seconds, needed.refreshes), note))
    lines += [f"{label:26} {'':9} {'':9} {_hours(took):>10}  {note}" for label, took, note in totals]
    lines.append("")
    lines += [f"memory: {line}" for line in _memory(params, needed, encoder, None if http else lm)]
    lines.append(f"disk: {_disk(params, needed, encoder)}")
    if http:
        cost = needed.lm_tokens * http.prompt_price / 1000
        limit = "no limit" if lsr.max_cost is None else f"lsr.max_cost {lsr.max_cost:g}"
        lines.append(f"cost: {cost:,.2f} at most for the scores, at {http.prompt_price:g} for 1,000 tokens; {limit}")
    return lines


def _side_by_side(indexes: float, embedding: float, reading: float, training: float, rounds: int) -> float:
    """Seconds with a second process, if all rounds take equally long.

    Nothing runs beside the first round's reading and the last embedding. The first round trains beside reading only,
    and the last one beside embedding only.
    """
    embeds, reads, trains = (seconds / rounds for seconds in (embedding, reading, training))
    second_process = (embeds * (number > 0) + reads * (number < rounds - 1) for number in range(rounds))
    return indexes + reads + sum(max(trains, seconds) for seconds in second_process) + embeds


def _refreshed(parts: Parts) -> set[str]:
    """The corpora that a refresh embeds."""
    return {*parts.scored[:1], *([parts.datastore] if parts.answered else [])}


def _documents(params: SimpleNamespace) -> tuple[dict[str, int], dict[str, str]]:
    """Documents by corpus, and how each number was found: counted, set by the params, or guessed."""
    from pipelines.retrieval import documents

    counts, sources = {}, {}
    for corpus in params.parts.corpora:
        if docs := speed.made_file(corpus, "docs.parquet"):
            counts[corpus], sources[corpus] = documents.count(docs), "counted"
        elif wanted := params.corpus[corpus].documents:
            counts[corpus], sources[corpus] = wanted, "as the params say"
        else:
            counts[corpus] = _guess(params, corpus)
            sources[corpus] = f"{'a guess' if counts[corpus] else 'unknown'}: no corpus is there yet"
    return counts, sources


def _guess(params: SimpleNamespace, corpus: str) -> int:
    """How many documents the sources may give; 0 if nothing says so."""
    if params.fetch.source == "wikimedia":
        return WIKIPEDIA if corpus == "wikipedia" else 0
    if params.fetch.source == "world":
        documents_of_entity = {"wikipedia": 1, "pile": params.world.pile_documents}
        return params.world.entities * documents_of_entity.get(corpus, 0)
    globs = params.fetch.files.get(corpus, [])
    files = {file for glob in globs for file in Path(params.fetch.root or ".").glob(glob)}
    return sum(file.stat().st_size for file in files) // DOCUMENT


def _lm_queries(params: SimpleNamespace) -> int:
    """Language-modelling queries to learn from: counted if they are there, otherwise as many as the params ask for."""
    if not params.parts.scored:
        return 0
    if not (path := speed.made_file(params.parts.scored[0], "queries.parquet")):
        return params.lsr.lm_queries
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    return pc.sum(pc.equal(pq.read_table(path, columns=["split"])["split"], "train")).as_py() or 0


def _memory(params: SimpleNamespace, needed: Amounts, encoder: speed.Shape, lm: speed.Shape | None) -> list[str]:
    tokens = needed.at_once
    fp32 = tokens * encoder.layers * (68 * encoder.hidden + 10 * 12 * params.chunk.tokens)  # after Korthikanti et al.
    activations = fp32 if params.lsr.dtype == "fp32" else fp32 // 2
    # 20 bytes a weight: fp32 weight, gradient and Adam's two moments, and the weight of the encoder that searches
    weights = 20 * (encoder.weights + encoder.vocabulary * encoder.hidden)
    at_once = f"{tokens // params.chunk.tokens:,} texts at once (lsr.micro_batch bounds them)"
    lines = [
        f"training {weights / GIB:.1f} GiB of weights, gradients and Adam, {activations / GIB:.1f} GiB for {at_once}"
    ]
    if lm:
        name = params.lms[0]
        size = {"fp32": 4, "bf16": 2, "int8": 1}[params.lm[name].dtype] * (lm.weights + lm.vocabulary * lm.hidden)
        lines.append(f"{name} {size / GIB:.1f} GiB of weights")
    plans = [choose(n, encoder.hidden, params.index) for n in needed.documents.values() if n]
    size = needed.held * params.chunk.tokens * 5  # bytes: 4 of a token, and Python's own
    texts = f"texts of a round {size / GIB:.1f} GiB"
    largest = max(plans, key=lambda plan: plan.memory, default=None)
    lines.append(f"index {largest.memory / GIB:.1f} GiB ({largest.reason}), {texts}" if largest else texts)
    return lines


def _disk(params: SimpleNamespace, needed: Amounts, encoder: speed.Shape) -> str:
    refreshed = sum(needed.documents[corpus] for corpus in _refreshed(params.parts))
    vector = 2 * encoder.hidden  # bytes
    scores = needed.pairs * (params.queries.continuation_tokens * SCORE + 40)
    return (
        f"{2 * vector * sum(needed.documents.values()) / 1e9:,.1f} GB of embeddings before and after, "
        f"{vector * refreshed / 1e9:,.1f} while it trains, "
        f"{scores / 1e9:,.1f} of kept scores at most"
    )


def _number(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def _hours(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
