"""What a run will take, in downloads, tokens, hours, memory, disk and money.

Tokens are upper bounds: what earlier runs kept is not read again. They are divided by the speed of
this machine, or of an H200 where a run is for a GPU and this machine has none (see speed.py). Sizes
are read from what is at hand: a local folder, the Hub's cache, or the params, where profiles have
the sizes of their models. The Hub itself is not asked. What nothing at hand tells is unknown.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.params import params_file
from pipelines.params.params import LM, Params
from pipelines.plan import model_sizes, speed, token_counts
from pipelines.plan.model_sizes import Model, Size
from pipelines.plan.token_counts import QUESTION_TOKENS, Reading
from pipelines.retrieval.dense_build import Plan as IndexPlan
from pipelines.retrieval.dense_build import choose_index
from pipelines.retrieval.published_files import part_sizes

BYTES_OF_WEIGHT = {"fp32": 4, "bf16": 2, "int8": 1}
# A weight in training: itself, its gradient, Adam's two moments, and the encoder that searches.
BYTES_OF_TRAINED_WEIGHT = 20
BYTES_OF_DIMENSION = 2  # of an embedding, on disk
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class CorpusSize:
    documents: int | None  # None: unknown
    source: str  # how the number is known, in words


@dataclass(frozen=True)
class Work:
    """What a model reads for one kind of work; None: unknown."""

    label: str  # the model's name and the kind of work
    tokens: int | None
    rate: float | None  # tokens a second
    note: str = ""
    cost: float | None = None  # of a server, in the unit of its price

    @property
    def hours(self) -> float | None:
        if self.tokens is None or not self.rate:
            return None
        return self.tokens / self.rate / 3600


@dataclass(frozen=True)
class Memory:
    """The memory of a model, in bytes."""

    model: str  # its place in params.yaml
    dtype: str
    weights: int
    training: int | None  # None: it is not trained
    index: IndexPlan | None  # its largest index; None: it has none, or its size is unknown
    part: int | None  # the largest file of published vectors; None: it reads none at hand


@dataclass(frozen=True)
class Forecast:
    """The plan for a run; None: unknown."""

    profile: str
    device: str  # CPU or GPU, which are this machine's, or H200
    documents: dict[str, CorpusSize]  # by corpus
    work: list[Work]
    together: Work  # the sum over all work that is known
    unknown: list[str]  # models whose sizes are unknown, by their places in params.yaml
    download: int | None  # bytes of weights
    memory: list[Memory]
    disk: int | None  # bytes of embeddings
    published: dict[str, int | None]  # path of published vectors that are read -> bytes


def forecast(values: dict[str, Any]) -> Forecast:
    """The plan for these values of params.yaml.

    Raises LongtailError for wrong values, and where an index does not fit into index.memory_gb.
    """
    params = params_file.parse(values)
    documents = count_documents(params, values)
    models = model_sizes.read_models(params)
    work = list(_all_work(params, documents, models))
    unknown = [place for place, model in models.items() if model.size is None]
    download = None if unknown else model_sizes.count_download(models)
    return Forecast(
        profile=params.profile,
        device=speed.device_of(params.compute),
        documents=documents,
        work=work,
        together=_sum(work),
        unknown=unknown,
        download=download,
        memory=list(_memory(params, documents, models)),
        disk=_disk(params, documents, models),
        published=_count_published(params),
    )


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
        elif corpus in params.plan.documents:
            sizes[corpus] = CorpusSize(params.plan.documents[corpus], "about, as the profile says")
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


def _all_work(
    params: Params, corpora: Mapping[str, CorpusSize], models: Mapping[str, Model]
) -> Iterator[Work]:
    """What each encoder, reranker and language model reads, in this order."""
    for name in params.retrievers:
        yield from _retriever_work(params, name, corpora, models)
    for name in params.parts.rerankers:
        yield _reranker_work(params, name, models["reranker"].size)
    scores = token_counts.count_scores(params)
    for name in params.lms:
        answers = token_counts.count_answers(params, params.lm[name])
        for reading in (answers, scores):
            if reading.prompts:
                label = f"{name}: {reading.work}"
                yield _lm_work(params, models, name, reading, _all_threads(params), label)


def _all_threads(params: Params) -> int:
    """Threads of all processes together, which are as fast as one process with as many threads."""
    compute = params.compute
    return min(compute.workers * compute.threads, os.cpu_count() or 1)


def _retriever_work(
    params: Params,
    name: str,
    corpora: Mapping[str, CorpusSize],
    models: Mapping[str, Model],
) -> Iterator[Work]:
    """What an encoder reads for its indexes and, if it is tuned, what LSR's training reads."""
    lsr = params.lsr
    parts = params.parts
    size = models[f"retriever.{name}"].size
    tuning = token_counts.count_tuning(params)
    is_tuned = name in parts.tuned

    published = params.retriever[name].vectors
    embedded = [size for corpus, size in corpora.items() if corpus not in published]
    if is_tuned:
        # All is embedded for its second index, and what it searches anew at each refresh.
        embedded += corpora.values()
        names = set(parts.scored[:1])
        if parts.answered:
            names.add(parts.datastore)
        embedded += tuning.refreshes * [corpora[name] for name in names if name]
    documents = _count_all(embedded)
    tokens = None
    if documents is not None:
        tokens = documents * params.chunk.tokens
    threads = _all_threads(params)
    dtype = params.retriever[name].dtype
    rate = speed.tokens_per_second(size, "indexes", threads, params.compute, dtype)
    note = f"the published vectors of {', '.join(published)} are read" if published else ""
    yield Work(f"{name}: indexes", tokens, rate, note)

    if is_tuned:  # LSR is one process
        threads = params.compute.threads
        label = f"{name}: {lsr.lm} reads"
        yield _lm_work(params, models, lsr.lm, tuning.reading, threads, label)
        # forward, and backward twice as long; with micro-batches forward once more
        passes = 4 if lsr.micro_batch else 3
        rate = speed.tokens_per_second(size, "training", threads, params.compute, lsr.dtype, passes)
        note = f"{lsr.steps:,} steps, forward and backward"
        yield Work(f"{name}: training", tuning.trained_tokens, rate, note)


def _reranker_work(params: Params, name: str, size: Size | None) -> Work:
    questions = 0
    for dataset in params.parts.answered:
        for lm in params.lms:
            questions += params.answer.of(dataset, params.lm[lm]).max_questions
    pairs = questions * params.reranker.candidates
    tokens = pairs * (QUESTION_TOKENS + params.chunk.tokens)
    threads = params.compute.threads
    rate = speed.tokens_per_second(size, "indexes", threads, params.compute, "fp32")
    return Work(f"{name}: answers", tokens, rate, f"{show_number(pairs)} pairs, at most")


def _lm_work(
    params: Params,
    models: Mapping[str, Model],
    lm: str,
    reading: Reading,
    threads: int,
    label: str,
) -> Work:
    """What a language model reads for one kind of work; on a server, also its price and limit."""
    section = params.lm[lm]
    note = f"{show_number(reading.prompts)} prompts, at most"
    if section.source != "http":
        size = models[f"lm.{lm}"].size
        rate = speed.tokens_per_second(size, reading.work, threads, params.compute, section.dtype)
        return Work(label, reading.read_tokens, rate, note)

    server = section.http
    cost = reading.sent_tokens * server.prompt_price / 1000
    limit = "no limit"
    if server.max_cost is not None:
        limit = f"max_cost {server.max_cost:g}"
    rate = None
    if server.tokens_per_minute:
        rate = server.tokens_per_minute / 60
    note += f"; costs {cost:,.2f}, {limit}"
    return Work(label, reading.sent_tokens, rate, note, cost)


def _sum(work: list[Work]) -> Work:
    """The sum over all work that is known."""
    tokens = 0
    hours = 0.0
    n_known = 0
    for row in work:
        if row.tokens is not None and row.hours is not None:
            tokens += row.tokens
            hours += row.hours
            n_known += 1
    note = "without reading dumps and searching"
    if n_known < len(work):
        note += " and what is unknown"
    if not tokens:
        return Work("together", None, None, note)
    return Work("together", tokens, tokens / hours / 3600, note)


def _memory(
    params: Params, corpora: Mapping[str, CorpusSize], models: Mapping[str, Model]
) -> Iterator[Memory]:
    device = speed.device_of(params.compute)
    counts = [corpus.documents for corpus in corpora.values() if corpus.documents]
    for place, model in models.items():
        if model.size is None:
            continue
        dtype = "fp32"
        if isinstance(model.section, LM):
            dtype = speed.number_format(model.section.dtype, device)
        section, _, name = place.partition(".")
        training = None
        if section == "retriever" and name in params.parts.tuned:
            training = BYTES_OF_TRAINED_WEIGHT * model.size.parameters
        index = None
        if section == "retriever" and name in params.retrievers and counts:
            plans = [choose_index(count, model.size.hidden, params.index) for count in counts]
            index = max(plans, key=lambda plan: plan.memory)
        part = None
        if index:
            parts: list[int] = []
            for path in params.retriever[name].vectors.values():
                parts += part_sizes(Path(path))
            part = max(parts, default=None)
        weights = BYTES_OF_WEIGHT[dtype] * model.size.parameters
        yield Memory(place, dtype, weights, training, index, part)


def _disk(
    params: Params, corpora: Mapping[str, CorpusSize], models: Mapping[str, Model]
) -> int | None:
    """Bytes of all embeddings; None where a corpus or an encoder is unknown."""
    documents = _count_all(corpora.values())
    if documents is None:
        return None
    disk = 0
    for name in params.retrievers:
        size = models[f"retriever.{name}"].size
        if size is None:
            return None
        copies = 2 if name in params.parts.tuned else 1
        disk += BYTES_OF_DIMENSION * documents * size.hidden * copies
    return disk


def _count_published(params: Params) -> dict[str, int | None]:
    """The bytes of the published vectors that are read; None: they are not on this machine."""
    sizes = {}
    for name in params.retrievers:
        for path in params.retriever[name].vectors.values():
            sizes[path] = sum(part_sizes(Path(path))) or None
    return sizes


def show_number(value: float | None) -> str:
    """A number with three digits and, from a thousand on, a unit, such as 1.25 M."""
    if value is None:
        return "unknown"
    for size, unit in UNITS:
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"
