"""`longtail plan`: what a run's models will take, in downloads, tokens, hours, memory, disk and money.

Tokens are counted (amounts.py), and divided by this machine's speeds (speeds.py). What nothing at hand tells is
unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from pipelines.params import params_file
from pipelines.params.params import Params
from pipelines.plan import amounts, speeds
from pipelines.plan.amounts import QUESTION
from pipelines.plan.speeds import Size
from pipelines.retrieval.index_plan import GIB, choose_index

SCORE, PAIR = 5, 40  # bytes on disk of a token's log-probability and length, compressed; of a pair's key
LARGEST = 0.14  # share of the published PopQA that its largest relation has: 2,000 of 14,267 questions, nearly


class Row(NamedTuple):
    """A line of the plan's table; None is unknown."""

    label: str
    tokens: int | None
    rate: float | None  # tokens a second
    note: str
    stages: tuple[int, ...] = ()  # tokens of each stage, where stages run side by side

    @property
    def seconds(self) -> float | None:
        return None if self.tokens is None or self.rate is None else self.tokens / self.rate


def forecast(values: dict[str, Any]) -> list[str]:
    """The plan for the values of params.yaml as lines.

    Raises LongtailError for values that are not allowed, and if an index does not fit into `index.memory_gb`.
    """
    params, made = params_file.parse(values), amounts.made_by(values)
    documents, sizes = amounts.documents_by_corpus(params, made), speeds.sizes(params, made)
    counts = [count for count, _ in documents.values()]
    total = None if None in counts else sum(counts)
    rows = [*_of_retrievers(params, documents, total, sizes), *_of_language_models(params, sizes)]
    known = [f"{corpus} {how}" if n is None else f"{corpus} {n:,} ({how})" for corpus, (n, how) in documents.items()]
    lines = [
        f"profile {params.profile}, on this machine's {'GPU' if speeds.device(params.compute) == 'cuda' else 'CPU'}",
        f"documents: {', '.join(known) or 'none'}",
        "",
        f"{'':32} {'tokens':>9} {'tokens/s':>9} {'takes':>10}",
    ]
    for row in [*rows, *([_together(params, rows)] if rows else [])]:
        cells = f"{_number(row.tokens):>9} {_number(row.rate):>9} {_hours(row.seconds):>10}"
        lines.append(f"{row.label:32} {cells}  {row.note}")
    return [*lines, "", *_memory(params, counts, sizes), _disk(params, total, sizes), *_thresholds(params)]


def _of_retrievers(
    params: Params, documents: dict[str, tuple[int | None, str]], total: int | None, sizes: dict[str, Size | None]
) -> Iterator[Row]:
    """What each retriever embeds, what LSR reads to tune it, and what a reranker reads."""
    compute, length, lsr = params.compute, params.chunk.tokens, params.lsr
    of_process = compute.model_copy(update={"threads": 1})
    processes = speeds.embedding_processes(compute, speeds.device(compute) == "cuda", os.cpu_count() or 1)
    for name in params.retrievers:
        tuned, alone = name in params.parts.tuned, speeds.reads(sizes[name], of_process, params.retriever[name].dtype)
        embeds, indexes = alone and processes * alone, 1 + tuned
        yield Row(f"{name}: indexes", total and indexes * total * length, embeds, f"{processes} processes")
        if not tuned:
            continue
        needed, passes = amounts.tuning(params), 4 if lsr.micro_batch else 3
        searched = {*params.parts.scored[:1], *([params.parts.datastore] if params.parts.answered else [])}
        counts = [documents[corpus][0] for corpus in searched]
        anew = None if None in counts else needed.refreshes * sum(counts) * length
        pairs = f"{_number(needed.pairs)} pairs for {_number(needed.queries)} queries, at most"
        trains = speeds.reads(sizes[name], compute, lsr.dtype, passes)
        yield Row(f"{name}: embedding anew", anew, embeds, f"refreshes: {needed.refreshes}")
        yield Row(
            f"{name}: {lsr.lm} reads",
            needed.lm_tokens,
            _rate(params, lsr.lm, sizes),
            pairs + _price(params, lsr.lm, needed.lm_tokens),
        )
        yield Row(f"{name}: training", needed.trained, trains, f"{lsr.steps:,} steps, forward and backward")
    for name in params.parts.rerankers:
        pairs, rate = amounts.reranked(params), speeds.reads(sizes[name], compute, "fp32")
        yield Row(f"{name}: answers", pairs * (QUESTION + length), rate, f"{_number(pairs)} pairs, at most")


def _of_language_models(params: Params, sizes: dict[str, Size | None]) -> Iterator[Row]:
    """What each language model is asked outside of LSR; local ones are asked side by side."""
    for name in params.lms:
        for what, prompts, tokens, stages in amounts.readings(params, params.lm[name]):
            note = f"{_number(prompts)} prompts, at most{_price(params, name, tokens)}"
            if params.lm[name].source == "http":
                yield Row(f"{name}: {what}", tokens, _rate(params, name, sizes), note)
            else:
                yield Row(f"{name}: {what}", sum(stages), _rate(params, name, sizes), note, stages)


def _rate(params: Params, lm: str, sizes: dict[str, Size | None]) -> float | None:
    """Tokens a second of a language model: a server's by its limit, a local one's by its size."""
    section = params.lm[lm]
    if section.source == "http":
        return section.http.tokens_per_minute and section.http.tokens_per_minute / 60
    return speeds.reads(sizes[lm], params.compute, section.dtype)


def _price(params: Params, lm: str, tokens: int) -> str:
    """What a server takes for so many tokens, as the end of a note; empty for a local model."""
    http = params.lm[lm].http if params.lm[lm].source == "http" else None
    if http is None:
        return ""
    limit = "no limit" if http.max_cost is None else f"max_cost {http.max_cost:g}"
    return f"; costs {tokens * http.prompt_price / 1000:,.2f}, {limit}"


def _together(params: Params, rows: list[Row]) -> Row:
    """The last line of the table: all rows whose time is known, those of local language models side by side."""
    known = [row for row in rows if row.seconds is not None]
    gpu = speeds.device(params.compute) == "cuda"
    processes = speeds.side_by_side(params.compute, gpu, os.cpu_count() or 1)
    stages = [tokens / row.rate for row in known for tokens in row.stages]
    took = sum(row.seconds for row in known if not row.stages) + speeds.together(stages, processes)
    tokens = sum(row.tokens for row in known) or None
    note = "without reading dumps and searching" + " and what is unknown" * (len(known) < len(rows))
    note = f"{processes} stages side by side, {note}" if processes > 1 else note
    return Row("together", tokens, tokens and tokens / took, note)


def _memory(params: Params, counts: list[int | None], sizes: dict[str, Size | None]) -> Iterator[str]:
    """Lines on what is to be downloaded, and on the memory of models, of training, and of the largest index."""
    unknown = [name for name, size in sizes.items() if size is None]
    download = sum(size.download for size in sizes.values() if size) / 1e9
    yield f"download: {download:,.1f} GB of weights"
    if unknown:
        yield f"unknown: the sizes of {', '.join(unknown)}, whose config.json is not at hand"
    for name, size in ((name, size) for name, size in sizes.items() if size):
        dtype = params.lm[name].dtype if name in params.lm else "fp32"
        yield f"memory: {name} {speeds.BYTES[dtype] * size.parameters / GIB:.1f} GiB of weights in {dtype}"
        if name in params.retrievers and any(counts):
            plans = [choose_index(count, size.hidden, params.index) for count in counts if count]
            largest = max(plans, key=lambda plan: plan.memory)
            yield f"memory: {name}'s largest index {largest.memory / GIB:.1f} GiB ({largest.reason})"
        if name in params.parts.tuned:
            at_once, length = amounts.tuning(params).at_once, params.chunk.tokens
            activations = at_once * size.layers * (68 * size.hidden + 120 * length)  # fp32, after Korthikanti et al.
            # a weight takes 20 bytes: itself, its gradient, Adam's two moments, and the encoder that searches
            taken = f"{20 * size.parameters / GIB:.1f} GiB of weights, gradients and Adam"
            texts = f"{activations / GIB:.1f} GiB for {at_once // length:,} texts at once (lsr.micro_batch bounds them)"
            yield f"memory: training {name} {taken}, {texts}"


def _disk(params: Params, total: int | None, sizes: dict[str, Size | None]) -> str:
    """A line on the disk that embeddings and the kept scores of LSR take."""
    widths = [sizes[name] and sizes[name].hidden * (1 + (name in params.parts.tuned)) for name in params.retrievers]
    known = total is not None and None not in widths
    embeddings = f"{2 * total * sum(widths) / 1e9:,.1f} GB" if known else "an unknown size"
    pairs = len(params.parts.tuned) and len(params.parts.tuned) * amounts.tuning(params).pairs
    scores = pairs * (params.queries.continuation_tokens * SCORE + PAIR) / 1e9
    return f"disk: {embeddings} of embeddings, {scores:,.1f} GB of kept scores at most"


def _thresholds(params: Params) -> Iterator[str]:
    """A warning where so few questions of PopQA are asked that hardly any relation can have a threshold."""
    questions, least = params.answer.max_questions, params.thresholds.min_questions
    if params.lms and params.parts.rules and "popqa" in params.parts.answered and questions < least / LARGEST:
        one = f"a relation with {least} answered questions (thresholds.min_questions)"
        most = f"of {questions} (answer.max_questions), PopQA's largest relation has about {questions * LARGEST:.0f}"
        yield f"thresholds: probably none. One needs {one}; {most}"


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def _hours(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
