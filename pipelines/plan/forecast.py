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
from pipelines.retrieval.faiss_build import GIB, choose_index

TRAINED = 20  # bytes of a weight in training: itself, its gradient, Adam's two moments, and the encoder that searches


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
    """The plan for these values of params.yaml as lines; LongtailError for wrong ones or too little index.memory_gb."""
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
    return [*lines, "", *_sizes(params, counts, sizes)]


def _of_retrievers(
    params: Params, documents: dict[str, tuple[int | None, str]], total: int | None, sizes: dict[str, Size | None]
) -> Iterator[Row]:
    """What each retriever embeds, what LSR reads to tune it, and what a reranker reads."""
    compute, length, lsr = params.compute, params.chunk.tokens, params.lsr
    of_process = compute.model_copy(update={"threads": 1})
    gpu = speeds.device(compute) == "cuda"  # which embeds in one process; each of the others has one thread
    processes = 1 if gpu else min(max(compute.workers, compute.threads), os.cpu_count() or 1)
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
        price = _price(params, lsr.lm, needed.lm_tokens)
        yield Row(f"{name}: {lsr.lm} reads", needed.lm_tokens, _rate(params, lsr.lm, sizes), pairs + price)
        yield Row(f"{name}: training", needed.trained, trains, f"{lsr.steps:,} steps, forward and backward")
    for name in params.parts.rerankers:
        questions = len(params.parts.answered) * params.answer.max_questions * len(params.lms)
        pairs, rate = questions * params.reranker.candidates, speeds.reads(sizes[name], compute, "fp32")
        yield Row(f"{name}: answers", pairs * (QUESTION + length), rate, f"{_number(pairs)} pairs, at most")


def _of_language_models(params: Params, sizes: dict[str, Size | None]) -> Iterator[Row]:
    """What each language model is asked outside of LSR; local ones are asked side by side."""
    for name in params.lms:
        for what, prompts, tokens, stages in amounts.readings(params, params.lm[name]):
            note = f"{_number(prompts)} prompts, at most{_price(params, name, tokens)}"
            read, stages = (tokens, ()) if params.lm[name].source == "http" else (sum(stages), stages)
            yield Row(f"{name}: {what}", read, _rate(params, name, sizes), note, stages)


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
    processes = speeds.side_by_side(params.compute, speeds.device(params.compute) == "cuda", os.cpu_count() or 1)
    stages = [tokens / row.rate for row in known for tokens in row.stages]
    took = sum(row.seconds for row in known if not row.stages) + speeds.together(stages, processes)
    tokens = sum(row.tokens for row in known) or None
    note = "without reading dumps and searching" + " and what is unknown" * (len(known) < len(rows))
    note = f"{processes} stages side by side, {note}" if processes > 1 else note
    return Row("together", tokens, tokens and tokens / took, note)


def _sizes(params: Params, counts: list[int | None], sizes: dict[str, Size | None]) -> Iterator[str]:
    """Lines on what is to be downloaded, on the memory of models, training and indexes, and on the embeddings."""
    yield f"download: {sum(size.download for size in sizes.values() if size) / 1e9:,.1f} GB of weights"
    if unknown := [name for name, size in sizes.items() if size is None]:
        yield f"unknown: the sizes of {', '.join(unknown)}, whose config.json is not at hand"
    for name, size in ((name, size) for name, size in sizes.items() if size):
        dtype = params.lm[name].dtype if name in params.lm else "fp32"
        yield f"memory: {name} {speeds.BYTES[dtype] * size.parameters / GIB:.1f} GiB of weights in {dtype}"
        if name in params.retrievers and any(counts):
            plans = [choose_index(count, size.hidden, params.index) for count in counts if count]
            largest = max(plans, key=lambda plan: plan.memory)
            yield f"memory: {name}'s largest index {largest.memory / GIB:.1f} GiB ({largest.reason})"
        if name in params.parts.tuned:
            taken = f"{TRAINED * size.parameters / GIB:.1f} GiB of weights, gradients and Adam"
            yield f"memory: training {name} {taken}, and the texts of lsr.micro_batch"
    widths = [sizes[name] and sizes[name].hidden * (1 + (name in params.parts.tuned)) for name in params.retrievers]
    known = None not in (*counts, *widths)
    yield f"disk: {f'{2 * sum(counts) * sum(widths) / 1e9:,.1f} GB' if known else 'an unknown size'} of embeddings"


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    units = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
    return next((f"{value / size:.3g} {unit}" for size, unit in units if value >= size), f"{value:.0f}")


def _hours(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    units = ((3600, f"{seconds / 3600:,.1f} h"), (100, f"{seconds / 60:.0f} min"))
    return next((shown for least, shown in units if seconds >= least), f"{seconds:.0f} s")
