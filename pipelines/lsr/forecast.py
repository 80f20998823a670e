"""What LSR and its indexes will take (REPLUG §4-5), before anything starts: pairs, tokens, hours, memory, disk, money.

Amounts follow from the params, and from the corpora where they are there, made by these params; what they take here
follows from rates (rates.py).
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from pipelines.lsr import rates
from pipelines.lsr.rates import CORPORA, MODELS
from pipelines.retrieval.index_plan import GIB, choose

SECTIONS = ("profile", "compute", "fetch", "world", "corpus", "chunk", "queries")
SECTIONS += ("lm", "lms", "retriever", "index", "lsr")
SHOWN = 10  # documents of a validation query
WIKIPEDIA = 21_000_000  # passages of 100 words in December 2018
DOCUMENT = 500  # bytes of a file, compressed as dumps are, that become one: 270 of The Pile to 760 of Wikipedia
QUESTION = 24  # tokens of a question and its answer
SCORE = 5  # bytes on disk of a token's log-probability and length, compressed


class Work(NamedTuple):
    documents: dict[str, int]  # by corpus
    queries: int
    refreshes: int
    pairs: int  # (query, document) or (query, none) that the language model reads, at most
    lm_tokens: int
    embedded: int  # tokens at each refresh
    trained: int  # tokens in all steps, at most
    indexed: int  # tokens of the indexes before and after
    at_once: int  # tokens embedded with gradient at once, at most
    held: int  # documents whose texts a round keeps, at most


def work(given: SimpleNamespace, documents: dict[str, int], lm_queries: int) -> Work:
    """`documents` by corpus; those of Pile and Wikipedia are embedded anew at each refresh, WikiText's are not."""
    lsr, length = given.lsr, given.chunk.tokens
    context, continuation = given.queries.context_tokens, given.queries.continuation_tokens
    of_lm = min(lsr.lm_queries, lm_queries) if lsr.queries != "qa" else 0
    of_qa = lsr.qa_queries if lsr.queries != "lm" else 0
    asked, refreshes = of_lm + of_qa, -(-lsr.steps // lsr.refresh_steps)
    rounds = [min(lsr.refresh_steps, lsr.steps - i * lsr.refresh_steps) for i in range(refreshes)]
    drawn = sum(min(steps * lsr.batch_size, asked) for steps in rounds)  # by no query twice in a round
    alone = min(lsr.steps * lsr.batch_size, asked)
    judged = (refreshes + 1) * lsr.validation_queries * SHOWN
    share = of_lm / max(1, asked)
    of_pair = share * (context + continuation) + (1 - share) * QUESTION
    kept = documents["pile"] + documents["wikipedia"]
    texts = lsr.batch_size * (lsr.top_k + 1)
    return Work(
        documents=documents,
        queries=asked,
        refreshes=refreshes,
        pairs=drawn * lsr.top_k + alone + judged,
        lm_tokens=round(drawn * lsr.top_k * (length + of_pair) + alone * of_pair)
        + judged * (length + context + continuation),
        embedded=kept * length,
        trained=lsr.steps * lsr.batch_size * round(lsr.top_k * length + share * context + (1 - share) * QUESTION),
        indexed=2 * sum(documents.values()) * length,
        at_once=min(texts, lsr.micro_batch or texts) * length,
        held=max(min(steps * lsr.batch_size, asked) for steps in rounds) * lsr.top_k,
    )


def forecast(given: SimpleNamespace) -> list[str]:
    """The plan for params with SECTIONS, as lines; some seconds.

    Raises LongtailError where an index does not fit `index.memory_gb`.
    """
    counts, sources = _documents(given)
    amounts = work(given, counts, _lm_queries(given))
    name = given.lms[0]
    lm, lm_known = rates.shape_of(MODELS / "lm" / name, given.lm[name], rates.GPT2_XL)
    encoder, encoder_known = rates.shape_of(MODELS / "retriever", given.retriever, rates.CONTRIEVER)
    embed, train = rates.encoder(given, encoder, encoder_known)
    http = given.lm[name].http if given.lm[name].source == "http" else None
    read = rates.server(http) if http else rates.language_model(given, lm, lm_known)
    lsr, device = given.lsr, rates.device(given.compute)
    passes = lsr.steps * lsr.batch_size / max(1, amounts.queries)
    rows = [
        ("indexes, before and after", amounts.indexed, embed, "both indexes of each corpus"),
        ("embedding anew", amounts.refreshes * amounts.embedded, embed, f"{amounts.refreshes} times"),
        (f"{name} reads", amounts.lm_tokens, read, f"{_number(amounts.pairs)} pairs at most; kept ones cost nothing"),
        ("training", amounts.trained, train, "forward and backward"),
    ]
    lines = [
        f"profile {given.profile}: {lsr.steps:,} steps of {lsr.batch_size} queries x {lsr.top_k} documents, "
        f"{amounts.queries:,} queries seen {passes:.1f} times, a refresh every {lsr.refresh_steps:,} steps",
        "documents: " + ", ".join(f"{corpus} {n:,} ({sources[corpus]})" for corpus, n in counts.items()),
        f"rates: of this machine's {'GPU' if device == 'cuda' else 'CPU'}"
        + f"; compute.device is {given.compute.device}, which it lacks" * (device != given.compute.device),
        "",
        f"{'':26} {'tokens':>9} {'tokens/s':>9} {'here':>10}",
    ]
    for label, tokens, rate, said in rows:
        shown = f"{label:26} {_number(tokens):>9} {_number(rate.tokens):>9} {_hours(tokens / rate.tokens):>10}"
        lines.append(f"{shown}  {said}; {rate.said}")
    seconds = [tokens / rate.tokens for _, tokens, rate, _ in rows]
    said = "searching and making lists not counted"
    lines.append(f"{'together':26} {'':9} {'':9} {_hours(sum(seconds)):>10}  {said}")
    if lsr.refresh == "async":
        beside = _side_by_side(*seconds, amounts.refreshes)
        said = "lsr.refresh is async: embedding anew and reading, a round ahead, on a free core or GPU"
        lines.append(f"{'together, side by side':26} {'':9} {'':9} {_hours(beside):>10}  {said}")
    lines.append("")
    lines += [f"memory: {one}" for one in _memory(given, amounts, encoder, None if http else lm)]
    lines.append(f"disk: {_disk(given, amounts, encoder)}")
    if http:
        cost = amounts.lm_tokens * http.prompt_price / 1000
        limit = "no limit" if lsr.max_cost is None else f"lsr.max_cost {lsr.max_cost:g}"
        lines.append(f"cost: {cost:,.2f} at most for the scores, at {http.prompt_price:g} for 1,000 tokens; {limit}")
    return lines


def _side_by_side(indexes: float, embedding: float, reading: float, training: float, rounds: int) -> float:
    """Seconds, with rounds of like length: nothing goes on beside the first one's reading and the final embedding.

    The first round trains beside reading alone, and the last one beside embedding alone.
    """
    embeds, reads, trains = (seconds / rounds for seconds in (embedding, reading, training))
    beside = (embeds * (number > 0) + reads * (number < rounds - 1) for number in range(rounds))
    return indexes + reads + sum(max(trains, one) for one in beside) + embeds


# ---------------------------------------------------------------------- what is there


def _documents(given: SimpleNamespace) -> tuple[dict[str, int], dict[str, str]]:
    from pipelines.retrieval import documents

    counts, sources = {}, {}
    for corpus in type(given.corpus).model_fields:
        docs = CORPORA / corpus / "docs.parquet"
        if docs.is_file() and rates.made_by_these(f"chunk@{corpus}"):
            counts[corpus], sources[corpus] = documents.count(docs), "counted"
        elif wanted := getattr(given.corpus, corpus).documents:
            counts[corpus], sources[corpus] = wanted, "as the params say"
        else:
            counts[corpus] = _guess(given, corpus)
            sources[corpus] = f"{'a guess' if counts[corpus] else 'unknown'}: no corpus is there yet"
    return counts, sources


def _guess(given: SimpleNamespace, corpus: str) -> int:
    """How many documents the sources may give; 0 where nothing says so."""
    if given.fetch.source == "wikimedia":
        return WIKIPEDIA if corpus == "wikipedia" else 0
    if given.fetch.source == "world":
        pages = {"wikipedia": 1, "pile": given.world.pile_documents}  # of an entity, mostly one document each
        return given.world.entities * pages.get(corpus, 0)
    globs = given.fetch.files.get(corpus, [])
    files = {file for glob in globs for file in Path(given.fetch.root or ".").glob(glob)}
    return sum(file.stat().st_size for file in files) // DOCUMENT


def _lm_queries(given: SimpleNamespace) -> int:
    path = CORPORA / "pile/queries.parquet"
    if not (path.is_file() and rates.made_by_these("chunk@pile")):
        return given.lsr.lm_queries
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    return pc.sum(pc.equal(pq.read_table(path, columns=["split"])["split"], "train")).as_py() or 0


# ---------------------------------------------------------------------- memory and disk


def _memory(given: SimpleNamespace, amounts: Work, encoder: rates.Shape, lm: rates.Shape | None) -> list[str]:
    shape, tokens = encoder, amounts.at_once
    kept = tokens * shape.layers * (68 * shape.hidden + 10 * 12 * given.chunk.tokens)  # fp32, after Korthikanti et al.
    kept = kept if given.lsr.dtype == "fp32" else kept // 2
    every = 20 * (shape.weights + shape.vocabulary * shape.hidden)  # weights, gradient, Adam's two; weights that search
    of_batch = f"{kept / GIB:.1f} GiB for {tokens // given.chunk.tokens:,} texts at once (lsr.micro_batch bounds them)"
    lines = [f"training {every / GIB:.1f} GiB of weights, gradients and Adam, {of_batch}"]
    if lm:
        name = given.lms[0]
        size = {"fp32": 4, "bf16": 2, "int8": 1}[given.lm[name].dtype] * (lm.weights + lm.vocabulary * lm.hidden)
        lines.append(f"{name} {size / GIB:.1f} GiB of weights")
    plans = [choose(n, shape.hidden, given.index) for n in amounts.documents.values() if n]
    size = amounts.held * given.chunk.tokens * 5  # bytes: some 4 of a token, and Python's own
    texts = f"texts of a round {size / GIB:.1f} GiB"
    largest = max(plans, key=lambda plan: plan.memory, default=None)
    lines.append(f"index {largest.memory / GIB:.1f} GiB ({largest.reason}), {texts}" if largest else texts)
    return lines


def _disk(given: SimpleNamespace, amounts: Work, encoder: rates.Shape) -> str:
    learnt = amounts.documents["pile"] + amounts.documents["wikipedia"]
    vectors = 2 * encoder.hidden
    scores = amounts.pairs * (given.queries.continuation_tokens * SCORE + 40)
    return (
        f"{2 * vectors * sum(amounts.documents.values()) / 1e9:,.1f} GB of embeddings before and after, "
        f"{vectors * learnt / 1e9:,.1f} while it trains, "
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
