"""`longtail plan`: what a run's models will take, in downloads, tokens, hours, memory, disk and money.

Tokens are counted (tokens.py), and divided by this machine's speed: a model reads at half the speed of matrix products,
which are measured. Sizes are read from what is at hand: the params, a local folder, the Hub's cache. The Hub itself is
not asked. What nothing at hand tells is unknown.
"""

import os
import timeit
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.params import params_file
from pipelines.params.params import LM, Compute, Params, Reranker, Retriever
from pipelines.plan import tokens
from pipelines.retrieval.faiss_build import GIB, choose_index

SHARE = 0.5  # a whole model reaches this share of the matrix products' speed
BYTES = {"fp32": 4, "bf16": 2, "int8": 1}  # of a weight
TRAINED = 20  # bytes of a weight in training: itself, its gradient, Adam's two moments, and the encoder that searches


class Size(NamedTuple):
    parameters: int  # the model's parameters
    multiplied: int  # parameters that each token meets; an encoder's embeddings are looked up
    hidden: int
    download: int  # bytes; 0 for a model that is here


Sizes = Mapping[str, Size | None]  # by the model's name; None: unknown
Row = tuple[str, int | None, float | None, str]  # label, tokens, tokens a second, note


def forecast(values: dict[str, Any]) -> list[str]:
    """The plan for these values of params.yaml as lines; LongtailError for wrong ones or too little index.memory_gb."""
    params = params_file.parse(values)
    documents, sizes = tokens.count_documents(params, values), read_sizes(params)
    counts = {corpus: count for corpus, (count, _) in documents.items()}
    told = [f"{corpus} {how}" if n is None else f"{corpus} {n:,} ({how})" for corpus, (n, how) in documents.items()]
    table = list(_rows(params, counts, sizes))
    known = [(read, read / rate) for _, read, rate, _ in table if read is not None and rate]
    read, seconds = sum(read for read, _ in known), sum(seconds for _, seconds in known)
    note = "without reading dumps and searching" + " and what is unknown" * (len(known) < len(table))
    table += [("together", read or None, read / seconds if read else None, note)] * bool(table)
    width = max((len(label) for label, *_ in table), default=0)
    return [
        f"profile {params.profile}, on this machine's {'GPU' if _device(params.compute) == 'cuda' else 'CPU'}",
        f"documents: {', '.join(told) or 'none'}",
        "",
        f"{'':{width}} {'tokens':>9} {'tokens/s':>9} {'takes':>11}" if table else "no model reads anything",
        *(
            f"{label:{width}} {_number(read):>9} {_number(rate):>9} {_hours(read, rate):>11}  {note}".rstrip()
            for label, read, rate, note in table
        ),
        "",
        *_space(params, counts, sizes),
    ]


def _rows(params: Params, counts: Mapping[str, int | None], sizes: Sizes) -> Iterator[Row]:
    """What each retriever embeds, what LSR reads, what a reranker reads, and what each language model is asked."""
    compute, length, lsr, parts = params.compute, params.chunk.tokens, params.lsr, params.parts
    # stages and shards side by side are as fast as one process with all their threads; LSR is one process
    every = min(compute.of_stage("index").workers * compute.threads, os.cpu_count() or 1)
    for name in params.retrievers:
        reading, refreshes, trained = tokens.count_tuning(params)
        searched = {*parts.scored[:1], *([parts.datastore] if parts.answered else [])}
        texts = list(counts.values())
        if name in parts.tuned:  # it is indexed twice, and what it searches is embedded anew at each refresh
            texts += [*texts, *[counts[corpus] for corpus in searched] * refreshes]
        embedded, dtype = None if None in texts else sum(texts) * length, params.retriever[name].dtype
        yield f"{name}: indexes", embedded, _speed(sizes[name], every, compute, dtype), ""
        if name in parts.tuned:
            yield _asked(params, sizes, lsr.lm, reading, compute.threads, f"{name}: {lsr.lm} reads")
            trains = _speed(sizes[name], compute.threads, compute, lsr.dtype, passes=4 if lsr.micro_batch else 3)
            yield f"{name}: training", trained, trains, f"{lsr.steps:,} steps, forward and backward"
    for name in parts.rerankers:
        pairs = len(parts.answered) * params.answer.max_questions * len(params.lms) * params.reranker.candidates
        rate = _speed(sizes[name], compute.threads, compute, "fp32")
        yield f"{name}: answers", pairs * (tokens.QUESTION + length), rate, f"{_number(pairs)} pairs, at most"
    for name in params.lms:
        answers = tokens.count_answers(params, params.lm[name])
        for reading in (answers, tokens.count_scores(params), tokens.count_benchmarks(params)):
            if reading.prompts:
                yield _asked(params, sizes, name, reading, every, f"{name}: {reading.what}")


def _asked(params: Params, sizes: Sizes, lm: str, reading: tokens.Reading, threads: int, label: str) -> Row:
    """A row for what a language model reads. A server has the speed of its limit, and a price."""
    section, http = params.lm[lm], params.lm[lm].http
    note = f"{_number(reading.prompts)} prompts, at most"
    if section.source != "http":
        return label, reading.read, _speed(sizes[lm], threads, params.compute, section.dtype), note
    limit = "no limit" if http.max_cost is None else f"max_cost {http.max_cost:g}"
    note += f"; costs {reading.tokens * http.prompt_price / 1000:,.2f}, {limit}"
    return label, reading.tokens, http.tokens_per_minute and http.tokens_per_minute / 60, note


def _space(params: Params, counts: Mapping[str, int | None], sizes: Sizes) -> Iterator[str]:
    """Lines on what is to be downloaded, on the memory of models, training and indexes, and on the embeddings."""
    unknown, disk = [name for name, size in sizes.items() if size is None], 0
    download = sum(size.download for size in sizes.values() if size)
    yield f"download: {'an unknown size' if unknown else f'{download / 1e9:,.1f} GB'} of weights"
    if unknown:
        section = (
            params.lm[unknown[0]] if unknown[0] in params.lm else params.retriever.get(unknown[0], params.reranker)
        )
        pinned = f" --revision {section.revision}" * bool(section.revision)
        brings = f"; `hf download {section.path}{pinned} config.json` brings that of {unknown[0]}"
        brings *= not str(section.path).startswith(("/", "."))  # a folder
        yield f"unknown: the sizes of {', '.join(unknown)}, whose config.json is not at hand{brings}"
    for name, size in ((name, size) for name, size in sizes.items() if size):
        dtype, tuned = params.lm[name].dtype if name in params.lm else "fp32", name in params.parts.tuned
        line = f"memory: {name} {BYTES[dtype] * size.parameters / GIB:.1f} GiB of weights in {dtype}"
        if tuned:
            line += f"; to train it {TRAINED * size.parameters / GIB:.1f} GiB, and the texts of lsr.micro_batch"
        if name in params.retrievers and any(counts.values()):
            plans = [choose_index(count, size.hidden, params.index) for count in counts.values() if count]
            largest = max(plans, key=lambda plan: plan.memory)
            line += f"; its largest index {largest.memory / GIB:.1f} GiB ({largest.reason})"
            disk += 2 * sum(count or 0 for count in counts.values()) * size.hidden * (1 + tuned)
        yield line
    known = None not in counts.values() and not {*params.retrievers} & {*unknown}
    yield f"disk: {f'{disk / 1e9:,.1f} GB' if known else 'an unknown size'} of embeddings"


def read_sizes(params: Params) -> dict[str, Size | None]:
    """The sizes of the run's local language models and encoders, by name."""
    models: dict[str, LM | Retriever | Reranker] = {
        **{name: params.lm[name] for name in params.lms if params.lm[name].source != "http"},
        **{name: params.retriever[name] for name in params.retrievers},
        **dict.fromkeys(params.parts.rerankers, params.reranker),
    }
    return {name: _size(section, params.tokenizer.vocab_size) for name, section in models.items()}


def _size(section: LM | Retriever | Reranker, vocabulary: int | None) -> Size | None:
    """The size of a Llama-like or BERT-like model that is trained, or of another one by its config.json."""
    is_lm = isinstance(section, LM)
    if getattr(section, "source", "") != "train" or not vocabulary:
        return size_by_config(section.path, section.revision, is_lm)
    training, width = section.training, section.training.hidden_size
    inner = getattr(training, "intermediate_size", 2 * width)
    layers, words = training.layers * (4 * width**2 + 3 * width * inner), vocabulary * width
    return Size(layers + words, layers + words * is_lm, width, 0)


def size_by_config(place: str | None, revision: str | None, is_lm: bool) -> Size | None:
    """The size of a model in a folder, or of the Hub if its cache has the config.json."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    kind = AutoModelForCausalLM if is_lm else AutoModel
    try:
        config = AutoConfig.from_pretrained(place, revision=revision, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            model = kind.from_config(config, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError):  # no such config at hand, or none that says what it is
        return None
    parameters, text = model.num_parameters(), config.get_text_config()
    looked_up = 0 if is_lm else model.get_input_embeddings().weight.numel()
    download = 0 if Path(place).is_dir() else parameters * (config.dtype or torch.float32).itemsize
    return Size(parameters, parameters - looked_up, text.hidden_size, download)


def _speed(size: Size | None, threads: int, compute: Compute, dtype: str, passes: float = 1.0) -> float | None:
    """Tokens a second that a model reads, in so many forward passes; None for an unknown size."""
    from pipelines.retrieval.encoder import has_bf16

    if size is None:
        return None
    where = _device(compute)
    half = has_bf16(where) if dtype == "auto" else dtype != "fp32"
    return SHARE * matrix_products(threads, where, half) / (2.0 * size.multiplied * passes)


def _device(compute: Compute) -> str:
    """The device of the params if this machine has it, otherwise the CPU."""
    import torch

    return "cuda" if compute.device == "cuda" and torch.cuda.is_available() else "cpu"


@cache
def matrix_products(threads: int, device: str, half: bool) -> float:
    """Multiplications and additions a second, in a product of a model's shape; the fastest of some repetitions."""
    import torch

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if half else torch.float32
    left, right = torch.randn(2048, 768, device=device, dtype=dtype), torch.randn(768, 3072, device=device, dtype=dtype)

    def product() -> None:
        left @ right
        if device == "cuda":
            torch.cuda.synchronize()

    return 2 * 2048 * 768 * 3072 / min(timeit.repeat(product, number=1, repeat=5)[1:])


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    units = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
    return next((f"{value / size:.3g} {unit}" for size, unit in units if value >= size), f"{value:.0f}")


def _hours(read: int | None, rate: float | None) -> str:
    return "unknown" if read is None or not rate else f"{read / rate / 3600:,.2f} h"
