"""`longtail plan`: what a run's models will take, in downloads, tokens, hours, memory, disk and money.

LSR (REPLUG §4-5) and the indexes are counted here, and what language models are asked besides in workload.py.

Amounts are computed from the params, and from the corpora if these params made them. Hours are amounts divided by the
speeds of this machine (speed.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from pipelines import methods, params_file, parquet
from pipelines.lsr import speed, workload
from pipelines.lsr.speed import MODELS
from pipelines.lsr.workload import QUESTION
from pipelines.params import Index, Parts
from pipelines.retrieval.index_plan import GIB, choose

SECTIONS = ("profile", "compute", "fetch", "world", "corpus", "chunk", "queries")
SECTIONS += ("lm", "lms", "retriever", "retrievers", "parts", "index", "lsr", "logprobs", "replug", "answer")
SECTIONS += ("tasks", "thresholds", "reranker", "ways")
SHOWN = 10  # documents of a validation query
WIKIPEDIA = 21_000_000  # passages of 100 words in December 2018
SCORE = 5  # bytes on disk of a token's log-probability and length, compressed


BYTES = {"fp32": 4, "bf16": 2, "int8": 1}  # of a weight


class Row(NamedTuple):
    """A line of the plan's table."""

    label: str
    tokens: int
    rate: speed.Speed | None
    note: str
    most: int | None = None  # workers that can share it; None: any number


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


def read(values: dict, file: str = "params.yaml") -> SimpleNamespace:
    """The params with SECTIONS, checked, and as `made` the stages that ran with them; `values` are all of them.

    `gpu` may be set to a speed.Device: then speeds are those of this GPU in place of this machine's."""
    params = params_file.parse(values, file)
    return SimpleNamespace(**{name: getattr(params, name) for name in SECTIONS}, made=speed.made_by(values), gpu=None)


def forecast(params: SimpleNamespace) -> list[str]:
    """The plan for params as from `read`, as lines; LongtailError if an index does not fit into `index.memory_gb`."""
    counts, sources = documents_by_corpus(params)
    where = speed.device(params.compute)
    lines = [
        _title(params, counts),
        "documents: " + (", ".join(f"{corpus} {n:,} ({sources[corpus]})" for corpus, n in counts.items()) or "none"),
        f"rates: of this machine's {'GPU' if where == 'cuda' else 'CPU'}"
        + f"; compute.device is {params.compute.device}, which it lacks" * (where != params.compute.device),
        "",
        f"{'':26} {'tokens':>9} {'tokens/s':>9} {'here':>10}",
    ]
    sizes = workload.sizes(params)
    by_retriever, resources = {}, []
    if params.ways.reranked:
        resources.append(f"reranker: {_number(workload.reranked(params))} pairs of a question and a document, at most")
    for name in params.retrievers:
        of_retriever, tuned = methods.with_retriever(params, name), name in params.parts.tuned
        rows, needed = (tuned_rows if tuned else untuned_rows)(of_retriever, counts)
        several = len(params.retrievers) > 1
        by_retriever[name] = [row._replace(label=f"{name}, {row.label}" if several else row.label) for row in rows]
        resources += [f"{name}, {line}" if several else line for line in needed]
    tuning, reading = [row for rows in by_retriever.values() for row in rows], lm_rows(params, sizes)
    for label, tokens, rate, note, _ in tuning + reading:
        took, per_second = (_hours(tokens / rate.tokens), _number(rate.tokens)) if rate else ("unknown", "unknown")
        basis = f"; {rate.basis}" if rate else ""
        lines.append(f"{label:26} {_number(tokens):>9} {per_second:>9} {took:>10}  {note}{basis}")
    of_tuning, of_reading = (
        [tokens / rate.tokens for _, tokens, rate, *_ in rows if rate] for rows in (tuning, reading)
    )
    unknown = " and what is unknown" * any(rate is None for _, _, rate, *_ in reading)
    totals = [("together", sum(of_tuning + of_reading), f"without searching and building lists{unknown}")]
    lines += [f"{label:26} {'':9} {'':9} {_hours(took):>10}  {note}" for label, took, note in totals]
    return [*lines, "", *_weights(params, sizes), *resources, *workload.thresholds(params)]


def _title(params: SimpleNamespace, counts: dict[str, int]) -> str:
    if not params.parts.tuned:
        return f"profile {params.profile}: no retriever is tuned"
    lsr, queries = params.lsr, amounts(params, counts, queries_to_learn_from(params)).queries
    passes = lsr.steps * lsr.batch_size / max(1, queries)
    return (
        f"profile {params.profile}: {lsr.steps:,} steps of {lsr.batch_size} queries x {lsr.top_k} documents, "
        f"{queries:,} queries seen {passes:.1f} times, a refresh every {lsr.refresh_steps:,} steps"
    )


def tuned_rows(params: SimpleNamespace, counts: dict[str, int]) -> tuple[list[Row], list[str]]:
    """The rows of a retriever's indexes and of LSR's training, and lines on memory, disk and cost."""
    lsr, name = params.lsr, params.lsr.lm
    needed = amounts(params, counts, queries_to_learn_from(params))
    lm, lm_taken_for = speed.shape_of(MODELS / "lm" / name, params.lm[name], speed.GPT2_XL, params.made)
    folder = MODELS / "retriever" / params.retrieves
    encoder, encoder_taken_for = speed.shape_of(folder, params.retriever, speed.CONTRIEVER, params.made)
    embed, train = speed.of_encoder(params, encoder, encoder_taken_for, params.gpu)
    http = params.lm[name].http if params.lm[name].source == "http" else None
    read = speed.of_server(http) if http else speed.of_language_model(params, lm, lm_taken_for, params.gpu)
    rows = [
        Row("indexes, before and after", needed.indexed, embed, "both indexes of each corpus"),
        Row("embedding anew", needed.refreshes * needed.embedded, embed, f"{needed.refreshes} times"),
        Row(
            f"{name} reads",
            needed.lm_tokens,
            read,
            f"{_number(needed.pairs)} pairs at most; kept ones cost nothing",
            1 if http else None,
        ),
        Row("training", needed.trained, train, "forward and backward", lsr.batch_size),
    ]
    lines = [f"memory: {line}" for line in _memory(params, needed, encoder, None if http else lm)]
    lines.append(f"disk: {_disk(params, needed, encoder)}")
    if http:
        cost = needed.lm_tokens * http.prompt_price / 1000
        limit = "no limit" if lsr.max_cost is None else f"lsr.max_cost {lsr.max_cost:g}"
        lines.append(f"cost: {cost:,.2f} at most for the scores, at {http.prompt_price:g} for 1,000 tokens; {limit}")
    return rows, lines


def untuned_rows(params: SimpleNamespace, counts: dict[str, int]) -> tuple[list[Row], list[str]]:
    """The row of an untuned retriever's indexes, and lines on memory and disk."""
    folder = MODELS / "retriever" / params.retrieves
    encoder, taken_for = speed.shape_of(folder, params.retriever, speed.CONTRIEVER, params.made)
    embed, _ = speed.of_encoder(params, encoder, taken_for, params.gpu)
    rows = [Row("indexes", sum(counts.values()) * params.chunk.tokens, embed, "of each corpus")]
    disk = f"disk: {2 * encoder.hidden * sum(counts.values()) / 1e9:,.1f} GB of embeddings"
    return rows, [*(f"memory: {line}" for line in _index_memory(counts, encoder, params.index)), disk]


def lm_rows(params: SimpleNamespace, sizes: dict[str, workload.Size]) -> list[Row]:
    """A row for everything that a language model is asked outside of LSR; the speed is None if its size is unknown.

    Local models of the same kind of work run side by side, so that their rows add up to the time on the clock.
    """
    rows = []
    readings = workload.readings(params) if params.lms else []
    rates = {
        name: speed.of_parameters(params.compute, size.parameters, params.lm[name].dtype, params.gpu)
        for name, size in sizes.items()
        if name in params.lms and size.parameters
    }
    gpu, cores = speed.device(params.compute) == "cuda", os.cpu_count() or 1
    processes = speed.side_by_side(params.compute, gpu, cores)
    for name in params.lms:
        http = params.lm[name].http if params.lm[name].source == "http" else None
        for what, prompts, tokens, stages in readings:
            note = f"{_number(prompts)} prompts at most"
            if http:
                note += f", {tokens * http.prompt_price / 1000:,.2f} in money"
                rows.append(Row(f"{name}, {what}", tokens, speed.of_server(http), note, 1))
                continue
            alone = [read / rate.tokens for rate in rates.values() for read in stages]
            gain, rate = sum(alone) / speed.together(alone, processes) if alone else 1, rates.get(name)
            if rate and gain > 1:
                rate = speed.Speed(gain * rate.tokens, f"{rate.basis}, {gain:.2g} stages side by side")
            rows.append(Row(f"{name}, {what}", sum(stages), rate, note))
    return rows


def _weights(params: SimpleNamespace, sizes: dict[str, workload.Size]) -> list[str]:
    """Lines on what is to be downloaded, and on the memory that each model's weights take as it runs."""
    known = [size.download for size in sizes.values() if size.download is not None]
    unknown = [name for name, size in sizes.items() if size.download is None]
    lines = [
        f"download: {sum(known) / 1e9:,.1f} GB of weights" + (f", and those of {', '.join(unknown)}" if unknown else "")
    ]
    for name, (parameters, _, where) in sizes.items():
        dtype = params.lm[name].dtype if name in params.lm else "fp32"
        size = f"{BYTES[dtype] * parameters / GIB:.1f} GiB of weights in {dtype}, " if parameters else ""
        lines.append(f"model: {name} {size}{where}")
    return lines


def _refreshed(parts: Parts) -> set[str]:
    """The corpora that a refresh embeds."""
    return {*parts.scored[:1], *([parts.datastore] if parts.answered else [])}


def documents_by_corpus(params: SimpleNamespace) -> tuple[dict[str, int], dict[str, str]]:
    """Documents by corpus, and how each number was found: counted, set by the params, or guessed."""
    from pipelines.retrieval import documents

    counts, sources = {}, {}
    for corpus in params.parts.corpora:
        if docs := speed.made_file(corpus, "docs.parquet", params.made):
            counts[corpus], sources[corpus] = documents.count(docs), "counted"
        elif wanted := params.corpus[corpus].documents:
            counts[corpus], sources[corpus] = wanted, "as the params say"
        else:
            counts[corpus], counted = _guess(params, corpus)
            guess = f"{'a guess' if counts[corpus] else 'unknown'}: no corpus is there yet"
            sources[corpus] = "counted in its files" if counted and counts[corpus] else guess
    return counts, sources


def _guess(params: SimpleNamespace, corpus: str) -> tuple[int, bool]:
    """How many documents the sources may give, 0 if nothing says so, and whether they were counted."""
    if params.fetch.source == "wikimedia":
        return WIKIPEDIA if corpus == "wikipedia" else 0, False
    if params.fetch.source == "world":
        documents_of_entity = {"wikipedia": 1, "pile": params.world.pile_documents}
        return params.world.entities * documents_of_entity.get(corpus, 0), False
    globs = params.fetch.files.get(corpus, [])
    files = {file for glob in globs for file in Path(params.fetch.root or ".").glob(glob)}
    return workload.documents_in(files)


def queries_to_learn_from(params: SimpleNamespace) -> int:
    """Language-modelling queries to learn from: counted if they are there, otherwise as many as the params ask for."""
    if not params.parts.scored:
        return 0
    if not (path := speed.made_file(params.parts.scored[0], "queries.parquet", params.made)):
        return params.lsr.lm_queries
    import pyarrow.compute as pc

    return pc.sum(pc.equal(parquet.read(path, columns=["split"])["split"], "train")).as_py() or 0


def training_bytes(params: SimpleNamespace, at_once: int, encoder: speed.Shape) -> tuple[int, int]:
    """Bytes for the encoder that is trained, and for the activations of so many tokens at once."""
    fp32 = at_once * encoder.layers * (68 * encoder.hidden + 10 * 12 * params.chunk.tokens)  # after Korthikanti et al.
    # 20 bytes a weight: fp32 weight, gradient and Adam's two moments, and the weight of the encoder that searches
    weights = 20 * (encoder.weights + encoder.vocabulary * encoder.hidden)
    return weights, fp32 // 2 if params.lsr.dtype == "bf16" else fp32


def _memory(params: SimpleNamespace, needed: Amounts, encoder: speed.Shape, lm: speed.Shape | None) -> list[str]:
    weights, activations = training_bytes(params, needed.at_once, encoder)
    at_once = f"{needed.at_once // params.chunk.tokens:,} texts at once (lsr.micro_batch bounds them)"
    lines = [
        f"training {weights / GIB:.1f} GiB of weights, gradients and Adam, {activations / GIB:.1f} GiB for {at_once}"
    ]
    if lm:
        name = params.lsr.lm
        size = BYTES[params.lm[name].dtype] * (lm.weights + lm.vocabulary * lm.hidden)
        lines.append(f"{name} {size / GIB:.1f} GiB of weights")
    size = needed.held * params.chunk.tokens * 5  # bytes: 4 of a token, and Python's own
    texts = f"texts of a round {size / GIB:.1f} GiB"
    lines.append(", ".join([*_index_memory(needed.documents, encoder, params.index), texts]))
    return lines


def _index_memory(documents: dict[str, int], encoder: speed.Shape, index: Index) -> list[str]:
    """The memory of the largest index, as a text; none if there are no documents."""
    plans = [choose(n, encoder.hidden, index) for n in documents.values() if n]
    largest = max(plans, key=lambda plan: plan.memory, default=None)
    return [f"index {largest.memory / GIB:.1f} GiB ({largest.reason})"] if largest else []


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
