"""`longtail plan`: what a run's models will take, in downloads, tokens, hours, memory, disk and money.

Tokens are upper bounds: what earlier runs kept is not read again. They are divided by this machine's speed: a model
reads at half the speed of matrix products, which are measured. Sizes are read from what is at hand: the params, a local
folder, the Hub's cache. The Hub itself is not asked. What nothing at hand tells is unknown.
"""

import os
import timeit
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pipelines import methods
from pipelines.params import params_file
from pipelines.params.params import LM, Compute, Params, Reranker, Retriever
from pipelines.retrieval.dense import GIB, choose_index

SHARE = 0.5  # a whole model reaches this share of the matrix products' speed
BYTES = {"fp32": 4, "bf16": 2, "int8": 1}  # of a weight
QUESTION = 24  # tokens of a question and its answer
OPTIONS = 120  # tokens of an MMLU question with its options
MMLU = 14_042  # questions
SHOWN = 10  # documents of a validation query
TRAINED = 20  # bytes of a weight in training: itself, its gradient, Adam's two moments, and the encoder that searches


class Size(NamedTuple):
    parameters: int  # the model's parameters
    multiplied: int  # parameters that each token meets; an encoder's embeddings are looked up
    hidden: int
    download: int  # bytes; 0 for a model that is here


class Reading(NamedTuple):
    what: str  # the work that one kind of stage asks of one language model
    prompts: int
    tokens: int  # tokens of prompts and answers, as a server counts them
    read: int  # tokens that a local model reads: a beginning that prompts share is read once


Sizes = Mapping[str, Size | None]  # by the model's name; None: unknown
Row = tuple[str, int | None, float | None, str]  # label, tokens, tokens a second, note


def forecast(values: dict[str, Any]) -> list[str]:
    """The plan for these values of params.yaml as lines; LongtailError for wrong ones or too little index.memory_gb."""
    params = params_file.parse(values)
    documents, sizes = count_documents(params, values), read_sizes(params)
    counts = {corpus: count for corpus, (count, _) in documents.items()}
    told = [
        f"{corpus} {how}" if n is None else f"{corpus} {n:,} ({how})"
        for corpus, (n, how) in documents.items()
    ]
    table = list(_rows(params, counts, sizes))
    known = [(read, read / rate) for _, read, rate, _ in table if read is not None and rate]
    read, seconds = sum(read for read, _ in known), sum(seconds for _, seconds in known)
    note = "without reading dumps and searching" + " and what is unknown" * (
        len(known) < len(table)
    )
    table += [("together", read or None, read / seconds if read else None, note)] * bool(table)
    width = max((len(label) for label, *_ in table), default=0)
    return [
        f"profile {params.profile}, on this machine's {'GPU' if _device(params.compute) == 'cuda' else 'CPU'}",
        f"documents: {', '.join(told) or 'none'}",
        "",
        f"{'':{width}} {'tokens':>9} {'tokens/s':>9} {'takes':>11}"
        if table
        else "no model reads anything",
        *(
            f"{label:{width}} {_number(read):>9} {_number(rate):>9} {_hours(read, rate):>11}  {note}".rstrip()
            for label, read, rate, note in table
        ),
        "",
        *_space(params, counts, sizes),
    ]


def count_answers(params: Params, lm: LM) -> Reading:
    """All answers of a language model.

    GenRead asks twice, for the passage and for the answer. It shows all questions the same demonstrations, and REPLUG
    shows them before each document of a question: a local model reads such a beginning once.
    """
    answer, k, document = params.answer.of(lm), params.replug.top_k, params.chunk.tokens
    n_shots, new, shown = answer.n_shots, answer.new_tokens, answer.n_shots * answer.shot_passages
    of_document, shots = QUESTION + document, n_shots * QUESTION
    closed_book = shots + QUESTION + new
    with_passages = closed_book + (shown + 1) * answer.passages * document
    before = shots + shown * document
    by_token = lm.http and lm.http.tokenizer and not params.replug.vote  # how a server mixes
    sent = k * (new if by_token else 1)
    ensemble = sent, sent * (before + of_document) + k * new, before + k * (of_document + new)
    written = QUESTION + answer.passage_tokens
    kinds = {  # kind of way -> prompts of a question, their tokens, and those that a local model reads
        "closed_book": (1, closed_book, closed_book),
        "genread": (
            2,
            shots + shown * answer.passage_tokens + 2 * (written + new),
            2 * written + new,
        ),
        **dict.fromkeys(methods.ENSEMBLES, ensemble),
    }
    retrieving = 1, with_passages, with_passages
    questions = len(params.parts.answered) * answer.max_questions
    ways = [kinds.get(methods.split(way)[0], retrieving) for way in params.ways]
    return Reading("answers", *(questions * sum(way[place] for way in ways) for place in range(3)))


def count_scores(params: Params) -> Reading:
    """Each test query alone, with every retriever's and random documents, the curve's documents, and controls."""
    parts, logprobs = params.parts, params.logprobs
    retrievers = 1 + len(params.retrievers) + len(parts.tuned) + 1  # BM25's and random documents
    prompts = logprobs.max_queries * (1 + retrievers * logprobs.top_k)
    prompts += logprobs.datastore.max_queries * len(logprobs.datastore.shares) * logprobs.top_k
    length = (
        params.chunk.tokens + params.queries.context_tokens + params.queries.continuation_tokens
    )
    tokens = prompts * length
    if logprobs.controls:
        one_prompt = length + (params.replug.top_k - 1) * params.chunk.tokens
        concatenated = 1 + (params.retrievers[:1] == parts.tuned[:1])
        prompts += logprobs.max_queries * (1 + concatenated)
        tokens += logprobs.max_queries * (length + concatenated * one_prompt)
    tokens *= len(parts.scored)
    return Reading("scores", prompts * len(parts.scored), tokens, tokens)


def count_benchmarks(params: Params) -> Reading:
    """Each question closed-book, in ensembles of the main retriever's documents, tuned or not, and with all in one."""
    tasks, main, prompts, tokens = params.tasks, params.retrievers[:1], 0, 0
    k, document, in_one = params.replug.top_k, params.chunk.tokens, int(params.tasks.concatenated)
    each = 1 + in_one + k * (len(main) + len({*main} & {*params.parts.tuned}))
    for task in params.parts.benchmarks:
        most, shots, length = (
            (MMLU, tasks.mmlu_shots, OPTIONS)
            if task == "mmlu"
            else (None, tasks.qa_shots, QUESTION)
        )
        questions = min(tasks.max_questions, most or tasks.max_questions)
        prompts += questions * each
        whole = (shots + 1) * (length + document) + tasks.new_tokens
        tokens += questions * (each * whole + in_one * (k - 1) * document)
    return Reading("benchmarks", prompts, tokens, tokens)


def count_tuning(params: Params) -> tuple[Reading, int, int]:
    """LSR's training of a retriever: what the language model reads, refreshes, and tokens embedded with gradient.

    In each round between refreshes the language model reads a query's documents once, and each query once alone. A
    query's documents share its demonstrations, which a local model reads once.
    """
    lsr, length = params.lsr, params.chunk.tokens
    context, continuation = params.queries.context_tokens, params.queries.continuation_tokens
    n_lm = lsr.lm_queries if lsr.queries != "qa" and params.parts.scored else 0
    queries = n_lm + (lsr.qa_queries if lsr.queries != "lm" else 0)
    rounds = [
        min(lsr.refresh_steps, lsr.steps - done) for done in range(0, lsr.steps, lsr.refresh_steps)
    ]
    drawn = lsr.top_k * sum(min(steps * lsr.batch_size, queries) for steps in rounds)
    alone = min(lsr.steps * lsr.batch_size, queries)
    validation = (len(rounds) + 1) * lsr.validation_queries * SHOWN
    lm_share = n_lm / max(1, queries)
    query = lm_share * (context + continuation) + (1 - lm_share) * QUESTION
    read = round(drawn * (length + query) + alone * query) + validation * (
        length + context + continuation
    )
    of_query = round(lsr.top_k * length + lm_share * context + (1 - lm_share) * QUESTION)
    shots = round(
        (1 - lm_share) * lsr.shots(params.answer, params.lm[lsr.lm]) * (length + QUESTION)
    )
    read += (drawn + alone) * params.answer.new_tokens * (lsr.likelihood == "answer_right")
    billed, read = read + (drawn + alone) * shots, read + (drawn // lsr.top_k + alone) * shots
    reading = Reading("LSR", drawn + alone + validation, billed, read)
    return reading, len(rounds), lsr.steps * lsr.batch_size * of_query


def count_documents(params: Params, values: dict[str, Any]) -> dict[str, tuple[int | None, str]]:
    """Documents of each corpus, None if unknown, and how it is known; `values` are those of params.yaml."""
    from pipelines.retrieval import documents

    found: dict[str, tuple[int | None, str]] = {}
    at_hand = (
        Path("params.yaml").is_file() and params_file.read_values() == values
    )  # else data/ has other documents
    for corpus in params.parts.corpora:
        docs, most = Path("data/corpus") / corpus / "docs.parquet", params.corpus[corpus].documents
        if at_hand and docs.is_file():
            found[corpus] = documents.count_documents(docs), "counted"
        else:
            found[corpus] = (
                most,
                "at most, as the params say" if most else "unknown until `longtail run corpus`",
            )
    return found


def _rows(params: Params, counts: Mapping[str, int | None], sizes: Sizes) -> Iterator[Row]:
    compute, length, lsr, parts = params.compute, params.chunk.tokens, params.lsr, params.parts
    # stages and shards side by side are as fast as one process with all their threads; LSR is one process
    every = min(compute.of_stage("index").workers * compute.threads, os.cpu_count() or 1)
    for name in params.retrievers:
        reading, refreshes, trained = count_tuning(params)
        searched = {*parts.scored[:1], *([parts.datastore] if parts.answered else [])}
        texts = list(counts.values())
        if (
            name in parts.tuned
        ):  # it is indexed twice, and what it searches is embedded anew at each refresh
            texts += [*texts, *[counts[corpus] for corpus in searched] * refreshes]
        embedded, dtype = (
            None if None in texts else sum(texts) * length,
            params.retriever[name].dtype,
        )
        yield f"{name}: indexes", embedded, _speed(sizes[name], every, compute, dtype), ""
        if name in parts.tuned:
            yield _asked(params, sizes, lsr.lm, reading, compute.threads, f"{name}: {lsr.lm} reads")
            trains = _speed(
                sizes[name], compute.threads, compute, lsr.dtype, passes=4 if lsr.micro_batch else 3
            )
            yield f"{name}: training", trained, trains, f"{lsr.steps:,} steps, forward and backward"
    for name in parts.rerankers:
        pairs = (
            len(parts.answered)
            * params.answer.max_questions
            * len(params.lms)
            * params.reranker.candidates
        )
        rate = _speed(sizes[name], compute.threads, compute, "fp32")
        yield (
            f"{name}: answers",
            pairs * (QUESTION + length),
            rate,
            f"{_number(pairs)} pairs, at most",
        )
    for name in params.lms:
        answers = count_answers(params, params.lm[name])
        for reading in (answers, count_scores(params), count_benchmarks(params)):
            if reading.prompts:
                yield _asked(params, sizes, name, reading, every, f"{name}: {reading.what}")


def _asked(
    params: Params, sizes: Sizes, lm: str, reading: Reading, threads: int, label: str
) -> Row:
    section, http = params.lm[lm], params.lm[lm].http
    note = f"{_number(reading.prompts)} prompts, at most"
    if section.source != "http":
        return label, reading.read, _speed(sizes[lm], threads, params.compute, section.dtype), note
    limit = "no limit" if http.max_cost is None else f"max_cost {http.max_cost:g}"
    note += f"; costs {reading.tokens * http.prompt_price / 1000:,.2f}, {limit}"
    return label, reading.tokens, http.tokens_per_minute and http.tokens_per_minute / 60, note


def _space(params: Params, counts: Mapping[str, int | None], sizes: Sizes) -> Iterator[str]:
    unknown, disk = [name for name, size in sizes.items() if size is None], 0
    download = sum(size.download for size in sizes.values() if size)
    yield f"download: {'an unknown size' if unknown else f'{download / 1e9:,.1f} GB'} of weights"
    if unknown:
        brings = "`hf download NAME config.json` brings one"
        yield f"unknown: the sizes of {', '.join(unknown)}, whose config.json is not at hand; {brings}"
    for name, size in ((name, size) for name, size in sizes.items() if size):
        dtype, tuned = (
            params.lm[name].dtype if name in params.lm else "fp32",
            name in params.parts.tuned,
        )
        line = (
            f"memory: {name} {BYTES[dtype] * size.parameters / GIB:.1f} GiB of weights in {dtype}"
        )
        if tuned:
            line += f"; to train it {TRAINED * size.parameters / GIB:.1f} GiB, and the texts of lsr.micro_batch"
        if name in params.retrievers and any(counts.values()):
            plans = [
                choose_index(count, size.hidden, params.index) for count in counts.values() if count
            ]
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
        config = AutoConfig.from_pretrained(
            place, revision=revision, local_files_only=True, trust_remote_code=False
        )
        with torch.device("meta"):
            model = kind.from_config(config, trust_remote_code=False)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
    ):  # no such config at hand, or none that says what it is
        return None
    parameters, text = model.num_parameters(), config.get_text_config()
    looked_up = 0 if is_lm else model.get_input_embeddings().weight.numel()
    download = 0 if Path(place).is_dir() else parameters * (config.dtype or torch.float32).itemsize
    return Size(parameters, parameters - looked_up, text.hidden_size, download)


def _speed(
    size: Size | None, threads: int, compute: Compute, dtype: str, passes: float = 1.0
) -> float | None:
    if size is None:
        return None
    where = _device(compute)
    half = where == "cuda" if dtype == "auto" else dtype != "fp32"
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
    left, right = (
        torch.randn(2048, 768, device=device, dtype=dtype),
        torch.randn(768, 3072, device=device, dtype=dtype),
    )

    def product() -> None:
        left @ right
        if device == "cuda":
            torch.cuda.synchronize()

    return 2 * 2048 * 768 * 3072 / min(timeit.repeat(product, number=1, repeat=5)[1:])


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    units = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
    return next(
        (f"{value / size:.3g} {unit}" for size, unit in units if value >= size), f"{value:.0f}"
    )


def _hours(read: int | None, rate: float | None) -> str:
    return "unknown" if read is None or not rate else f"{read / rate / 3600:,.2f} h"
