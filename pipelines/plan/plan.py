"""The plan of a run: what each model reads, the hours and the price of that, and the disk space of
sources and embeddings.

Sizes are read from what is on this machine, the files and documents of an earlier run and the
config.json of a model, or from the profile (`plan` in params.yaml). Nothing is downloaded.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.params.params import LM, ModelSize, Params, Retriever
from pipelines.plan import speed, token_counts
from pipelines.storage.atomic import read_json

BYTES_OF_DIMENSION = 2  # of an embedding, on disk
BYTES_OF_GB = 1_000_000_000
MANIFEST = Path("raw/manifest.json")
EMBEDDINGS = "embeddings"
OUTPUT_COPIES = 2  # that a machine keeps: in data and in .dvc/cache
SOURCE_COPIES = {"files": 2, "wikimedia": 3}  # downloads are in .longtail/downloads too


@dataclass(frozen=True)
class Work:
    """What a model reads for one kind of work."""

    model: str
    work: str
    tokens: int
    hours: float | None  # None: unknown
    cost: float = 0.0  # of a server, in the unit of its price


@dataclass(frozen=True)
class Plan:
    """What a run takes."""

    profile: str
    device: str  # CPU, which is this machine's, or H200
    documents: dict[str, int]  # by corpus; 0: unknown, and not in the sums
    work: list[Work]
    hours: float  # of all work whose hours are known
    # bytes of each data set's sources and of EMBEDDINGS; 0: unknown, and not in the sums
    space: dict[str, int]
    disk_bytes: int  # in all copies that this machine keeps
    remote_bytes: int


def plan_run(params: Params, data: Path | None = None, is_linked: bool = False) -> Plan:
    """The plan for these params; `data` is the folder of an earlier run by them.

    `is_linked` says that DVC links outputs to its cache, so that all copies are one.
    """
    documents = count_documents(params, data)
    work: list[Work] = []
    for name in params.retrievers:
        work += _retriever_work(params, name, documents)
    for name in params.lms:
        work += _lm_work(params, name)

    sources = count_source_bytes(params, data)
    embeddings = count_embedding_bytes(params, documents)
    remote_bytes = sum(sources.values()) + embeddings
    disk_bytes = remote_bytes
    if not is_linked:
        disk_bytes = SOURCE_COPIES[params.fetch.source] * sum(sources.values())
        disk_bytes += OUTPUT_COPIES * embeddings
    return Plan(
        profile=params.profile,
        device=speed.device_of(params.compute),
        documents=documents,
        work=work,
        hours=sum(row.hours or 0.0 for row in work),
        space=sources | {EMBEDDINGS: embeddings},
        disk_bytes=disk_bytes,
        remote_bytes=remote_bytes,
    )


def count_source_bytes(params: Params, data: Path | None) -> dict[str, int]:
    """Bytes of each data set's source files: of those in the folder `data`, else of the downloads
    as the profile says; 0: unknown.
    """
    fetched: Counter = Counter()
    if data and (data / MANIFEST).is_file():
        for entry in read_json(data / MANIFEST):
            fetched[entry["dataset"]] += entry["bytes"]

    sizes = {}
    named = [name for name, entries in params.fetch.files.items() if entries]
    for name in named:
        dataset = name.partition("/")[0]
        gigabytes = params.plan.downloads_gb.get(dataset, 0.0)
        sizes[dataset] = fetched[dataset] or round(gigabytes * BYTES_OF_GB)
    return sizes


def count_embedding_bytes(params: Params, documents: Mapping[str, int]) -> int:
    """Bytes of all embeddings; an encoder of unknown size counts as none."""
    total = 0
    for name in params.retrievers:
        size = size_of(params.retriever[name], params)
        if size:
            indexes = 2 if name in params.parts.tuned else 1
            embeddings = indexes * sum(documents.values())
            total += embeddings * size.hidden_size * BYTES_OF_DIMENSION
    return total


def count_documents(params: Params, data: Path | None) -> dict[str, int]:
    """The documents of each corpus: counted in the folder `data`, else as the profile says, else
    the most that are read; 0: unknown.
    """
    from pipelines.retrieval import documents

    counts = {}
    for corpus in params.parts.corpora:
        expected = params.plan.documents.get(corpus) or params.corpus[corpus].documents or 0
        counts[corpus] = expected
        if data:
            file = data / "corpus" / corpus / "docs.parquet"
            if file.is_file():
                counts[corpus] = documents.count_documents(file)
    return counts


def size_of(section: LM | Retriever, params: Params) -> ModelSize | None:
    """The size of a model: by its config.json if that is on this machine, else by the profile.

    A transformer's feed-forward networks are taken to be four times as wide as its vectors. A
    language model also multiplies by its vocabulary.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            section.path, revision=section.revision, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError):
        return params.plan.models.get(section.path)
    text = config.get_text_config()
    parameters = 12 * text.num_hidden_layers * text.hidden_size**2
    if isinstance(section, LM):
        parameters += text.vocab_size * text.hidden_size
    return ModelSize(parameters=parameters, hidden_size=text.hidden_size)


def _retriever_work(params: Params, name: str, documents: Mapping[str, int]) -> Iterator[Work]:
    """What an encoder reads for its indexes and, if LSR tunes it, what LSR's training reads."""
    section = params.retriever[name]
    in_corpora = sum(documents.values())
    embedded = in_corpora
    for corpus in section.vectors:  # published vectors are read in place of embedding
        embedded -= documents[corpus]
    is_tuned = name in params.parts.tuned
    if is_tuned:  # its second index and, at most, all corpora in each round of LSR
        embedded += (1 + token_counts.count_rounds(params)) * in_corpora

    yield _work_of(params, name, section, "embeddings", embedded * params.chunk.tokens)
    if is_tuned:
        lm = params.lsr.lm
        scored = token_counts.count_lsr_scores(params)
        yield _work_of(params, lm, params.lm[lm], "scores", scored, f"scores for LSR of {name}")
        trained = token_counts.count_lsr_training(params)
        yield _work_of(params, name, section, "training", trained)


def _lm_work(params: Params, name: str) -> Iterator[Work]:
    """What a language model reads for answers and scores."""
    section = params.lm[name]
    answers = token_counts.count_answers(params, section)
    scores = token_counts.count_scores(params)
    if answers:
        yield _work_of(params, name, section, "answers", answers)
    if scores:
        yield _work_of(params, name, section, "scores", scores)


def _work_of(
    params: Params, name: str, section: LM | Retriever, work: str, tokens: int, label: str = ""
) -> Work:
    """The work with its hours, here or on a server; `work` is one of speed.H200_MICROSECONDS."""
    compute = params.compute
    label = label or work
    hours = None
    server = section.http if isinstance(section, LM) else None
    if server:
        if server.tokens_per_minute:
            hours = tokens / server.tokens_per_minute / 60
        return Work(name, label, tokens, hours, cost=tokens * server.prompt_price / 1000)

    size = size_of(section, params)
    if size:
        dtype = "auto" if work == "training" else section.dtype
        threads = min(compute.workers * compute.threads, os.cpu_count() or 1)
        rate = speed.tokens_per_second(work, size.parameters, threads, compute, dtype)
        hours = tokens / rate / 3600
    return Work(name, label, tokens, hours)
