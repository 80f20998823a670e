"""`longtail plan`: what a run will take, in downloads, tokens, hours, memory, disk and money.

Tokens are upper bounds: what earlier runs kept is not read again. They are divided by this
machine's speed: a model reads at half the speed of matrix products, which are measured. Sizes are
read from what is at hand: the params, a local folder, the Hub's cache. The Hub itself is not asked.
What nothing at hand tells is unknown.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.params import params_file
from pipelines.params.params import Params
from pipelines.plan import model_sizes, token_counts
from pipelines.plan.model_sizes import Size
from pipelines.plan.token_counts import QUESTION_TOKENS, Reading
from pipelines.retrieval.dense_build import GIB, choose_index

BYTES_OF_WEIGHT = {"fp32": 4, "bf16": 2, "int8": 1}
# A weight in training: itself, its gradient, Adam's two moments, and the encoder that searches.
BYTES_OF_TRAINED_WEIGHT = 20
BYTES_OF_DIMENSION = 2  # of an embedding, on disk
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

Sizes = Mapping[str, Size | None]  # by the model's name; None: unknown


@dataclass(frozen=True)
class CorpusSize:
    documents: int | None  # None: unknown
    source: str  # how the number is known, in words


@dataclass(frozen=True)
class Row:
    """A line of the plan's table: what a model reads."""

    label: str
    tokens: int | None  # None: unknown
    rate: float | None  # tokens a second; None: unknown
    note: str = ""


def forecast(values: dict[str, Any]) -> list[str]:
    """The plan for these values of params.yaml, as lines.

    Raises LongtailError for wrong values, and where an index does not fit into index.memory_gb.
    """
    params = params_file.parse(values)
    corpora = count_documents(params, values)
    sizes = model_sizes.read_sizes(params)
    rows = list(_rows(params, corpora, sizes))

    device = "CPU"
    if model_sizes.device_at_hand(params.compute) == "cuda":
        device = "GPU"
    lines = [
        f"profile {params.profile}, on this machine's {device}",
        f"documents: {_corpora_line(corpora)}",
        "",
    ]
    if rows:
        rows.append(_sum_row(rows))
        lines += _table_lines(rows)
    else:
        lines.append("no model reads anything")
    lines.append("")
    lines += _space(params, corpora, sizes)
    return lines


def count_documents(params: Params, values: dict[str, Any]) -> dict[str, CorpusSize]:
    """How many documents each corpus has; `values` are those of params.yaml."""
    from pipelines.retrieval import documents

    # the documents in data/ are this run's only if params.yaml has the same values
    are_at_hand = False
    if Path("params.yaml").is_file():
        are_at_hand = params_file.read_values() == values

    sizes = {}
    for corpus in params.parts.corpora:
        file = Path("data/corpus", corpus, "docs.parquet")
        most = params.corpus[corpus].documents
        if are_at_hand and file.is_file():
            sizes[corpus] = CorpusSize(documents.count_documents(file), "counted")
        elif most:
            sizes[corpus] = CorpusSize(most, "at most, as the params say")
        else:
            sizes[corpus] = CorpusSize(None, "unknown until `longtail run corpus`")
    return sizes


def _count_all(corpora: Iterable[CorpusSize]) -> int | None:
    """The documents of some corpora together; None where one is unknown."""
    counts = [corpus.documents for corpus in corpora]
    if None in counts:
        return None
    return sum(counts)


def _corpora_line(corpora: Mapping[str, CorpusSize]) -> str:
    words = []
    for corpus, size in corpora.items():
        if size.documents is None:
            words.append(f"{corpus} {size.source}")
        else:
            words.append(f"{corpus} {size.documents:,} ({size.source})")
    return ", ".join(words) or "none"


def _rows(params: Params, corpora: Mapping[str, CorpusSize], sizes: Sizes) -> Iterator[Row]:
    """What each encoder, reranker and language model reads, in this order."""
    for name in params.retrievers:
        yield from _retriever_rows(params, name, corpora, sizes)
    for name in params.parts.rerankers:
        yield _reranker_row(params, name, sizes)
    scores = token_counts.count_scores(params)
    benchmarks = token_counts.count_benchmarks(params)
    for name in params.lms:
        answers = token_counts.count_answers(params, params.lm[name])
        for reading in (answers, scores, benchmarks):
            if reading.prompts:
                label = f"{name}: {reading.work}"
                yield _lm_row(params, sizes, name, reading, _all_threads(params), label)


def _all_threads(params: Params) -> int:
    """Threads of all processes together, which are as fast as one process with as many threads."""
    compute = params.compute.of_stage("index")
    return min(compute.workers * compute.threads, os.cpu_count() or 1)


def _retriever_rows(
    params: Params, name: str, corpora: Mapping[str, CorpusSize], sizes: Sizes
) -> Iterator[Row]:
    """What an encoder reads for its indexes and, if it is tuned, what LSR's training reads."""
    lsr = params.lsr
    parts = params.parts
    tuning = token_counts.count_tuning(params)
    is_tuned = name in parts.tuned

    documents = _count_all(corpora.values())
    if documents is not None and is_tuned:
        # It is indexed twice, and what it searches is embedded anew at each refresh.
        names = set(parts.scored[:1])
        if parts.answered:
            names.add(parts.datastore)
        searched = _count_all(corpora[name] for name in names if name)
        documents = 2 * documents + tuning.refreshes * searched
    tokens = None
    if documents is not None:
        tokens = documents * params.chunk.tokens
    threads = _all_threads(params)
    dtype = params.retriever[name].dtype
    rate = model_sizes.tokens_per_second(sizes[name], threads, params.compute, dtype)
    yield Row(f"{name}: indexes", tokens, rate)

    if is_tuned:  # LSR is one process
        threads = params.compute.threads
        label = f"{name}: {lsr.lm} reads"
        yield _lm_row(params, sizes, lsr.lm, tuning.reading, threads, label)
        # forward, and backward twice as long; with micro-batches forward once more
        passes = 4 if lsr.micro_batch else 3
        rate = model_sizes.tokens_per_second(
            sizes[name], threads, params.compute, lsr.dtype, passes=passes
        )
        note = f"{lsr.steps:,} steps, forward and backward"
        yield Row(f"{name}: training", tuning.trained_tokens, rate, note)


def _reranker_row(params: Params, name: str, sizes: Sizes) -> Row:
    questions = len(params.parts.answered) * params.answer.max_questions
    pairs = questions * len(params.lms) * params.reranker.candidates
    tokens = pairs * (QUESTION_TOKENS + params.chunk.tokens)
    threads = params.compute.threads
    rate = model_sizes.tokens_per_second(sizes[name], threads, params.compute, "fp32")
    return Row(f"{name}: answers", tokens, rate, f"{_number(pairs)} pairs, at most")


def _lm_row(
    params: Params, sizes: Sizes, lm: str, reading: Reading, threads: int, label: str
) -> Row:
    """What a language model reads for one kind of work; on a server, also its price and limit."""
    section = params.lm[lm]
    note = f"{_number(reading.prompts)} prompts, at most"
    if section.source != "http":
        rate = model_sizes.tokens_per_second(sizes[lm], threads, params.compute, section.dtype)
        return Row(label, reading.read_tokens, rate, note)

    server = section.http
    cost = reading.sent_tokens * server.prompt_price / 1000
    limit = "no limit"
    if server.max_cost is not None:
        limit = f"max_cost {server.max_cost:g}"
    rate = None
    if server.tokens_per_minute:
        rate = server.tokens_per_minute / 60
    return Row(label, reading.sent_tokens, rate, f"{note}; costs {cost:,.2f}, {limit}")


def _sum_row(rows: list[Row]) -> Row:
    """The sum over all rows that are known."""
    tokens = 0
    seconds = 0.0
    n_known = 0
    for row in rows:
        if row.tokens is not None and row.rate:
            tokens += row.tokens
            seconds += row.tokens / row.rate
            n_known += 1
    note = "without reading dumps and searching"
    if n_known < len(rows):
        note += " and what is unknown"
    if not tokens:
        return Row("together", None, None, note)
    return Row("together", tokens, tokens / seconds, note)


def _table_lines(rows: list[Row]) -> Iterator[str]:
    width = max(len(row.label) for row in rows)
    yield f"{'':{width}} {'tokens':>9} {'tokens/s':>9} {'takes':>11}"
    for row in rows:
        tokens = _number(row.tokens)
        rate = _number(row.rate)
        hours = _hours(row)
        line = f"{row.label:{width}} {tokens:>9} {rate:>9} {hours:>11}  {row.note}"
        yield line.rstrip()


def _space(params: Params, corpora: Mapping[str, CorpusSize], sizes: Sizes) -> Iterator[str]:
    """Lines on downloads, memory of each model and its largest index, and disk for embeddings."""
    unknown = [name for name, size in sizes.items() if size is None]
    known = {name: size for name, size in sizes.items() if size is not None}
    if unknown:
        yield "download: an unknown size of weights"
        names = ", ".join(unknown)
        advice = "`hf download NAME config.json` brings one"
        yield f"unknown: the sizes of {names}, whose config.json is not at hand; {advice}"
    else:
        download = sum(size.download for size in known.values())
        yield f"download: {download / 1e9:,.1f} GB of weights"

    counts = [size.documents for size in corpora.values()]
    for name, size in known.items():
        yield _memory_line(params, name, size, counts)

    documents = _count_all(corpora.values())
    encoders_are_known = not set(params.retrievers) & set(unknown)
    if documents is None or not encoders_are_known:
        yield "disk: an unknown size of embeddings"
    else:
        disk = 0
        for name in params.retrievers:
            copies = 2 if name in params.parts.tuned else 1
            disk += BYTES_OF_DIMENSION * documents * sizes[name].hidden * copies
        yield f"disk: {disk / 1e9:,.1f} GB of embeddings"


def _memory_line(params: Params, name: str, size: Size, counts: list[int | None]) -> str:
    dtype = "fp32"
    if name in params.lm:
        dtype = params.lm[name].dtype
    weights = BYTES_OF_WEIGHT[dtype] * size.parameters / GIB
    line = f"memory: {name} {weights:.1f} GiB of weights in {dtype}"

    if name in params.parts.tuned:
        trained = BYTES_OF_TRAINED_WEIGHT * size.parameters / GIB
        line += f"; to train it {trained:.1f} GiB, and the texts of lsr.micro_batch"

    known_counts = [count for count in counts if count]
    if name in params.retrievers and known_counts:
        plans = [choose_index(count, size.hidden, params.index) for count in known_counts]
        largest = max(plans, key=lambda plan: plan.memory)
        line += f"; its largest index {largest.memory / GIB:.1f} GiB ({largest.reason})"
    return line


def _number(value: float | None) -> str:
    """A number with three digits and a unit, such as 1.25 M."""
    if value is None:
        return "unknown"
    for size, unit in UNITS:
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def _hours(row: Row) -> str:
    if row.tokens is None or not row.rate:
        return "unknown"
    return f"{row.tokens / row.rate / 3600:,.2f} h"
