"""What a run's language models take besides LSR, for `longtail plan`: their size, and what they read and write.

Numbers of prompts are upper bounds from the params. Sizes come from a model's config.json, also if it lies on the Hub.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from pipelines.lsr import speed
from pipelines.lsr.speed import MODELS
from pipelines.params import LM, Retriever
from pipelines.sources.streams import DECOMPRESSORS, open_lines
from pipelines.sources.text_documents import is_psgs

DOCUMENT = 500  # bytes of a compressed source file per document: 270 for The Pile, 760 for Wikipedia
UNPACKED = 2.5  # times as many bytes has a file that is not compressed
PASSAGE = 240  # bytes of DPR's compressed passages per passage
COUNTED = 1 << 26  # bytes of a file of passages that is short enough to count them
QUESTION = 24  # tokens of a question and its answer
OPTIONS = 120  # tokens of an MMLU question with its options
MMLU = 14_042  # questions
LARGEST = 0.14  # share of the published PopQA that its largest relation has: 2,000 of 14,267 questions, nearly
UNREACHABLE = "of unknown size: the Hub can't be reached"


class Reading(NamedTuple):
    what: str
    prompts: int
    tokens: int  # read and written: what a server counts
    stages: tuple[int, ...]  # by stage, without the beginnings that a local model reads once for several prompts


class Size(NamedTuple):
    parameters: int | None  # None if nothing says how many
    download: int | None  # bytes to download; 0 for a model that lies here
    where: str


def readings(params: SimpleNamespace) -> list[Reading]:
    """What each language model is asked outside of LSR's training; kinds without prompts are left out."""
    return [reading for reading in (answers(params), _scores(params), _benchmarks(params)) if reading.prompts]


def answers(params: SimpleNamespace) -> Reading:
    """All answers of a language model, at most. GenRead asks twice, for the passage and for the answer.

    GenRead shows all questions the same demonstrations, and REPLUG shows them before each document of a question. A
    local model reads such a beginning once.
    """
    parts, ways, answer, k = params.parts, params.ways, params.answer, params.replug.top_k
    length, n_shots, new = QUESTION + answer.passages * params.chunk.tokens, answer.n_shots, answer.new_tokens
    of_document, written = QUESTION + params.chunk.tokens, QUESTION + answer.passage_tokens
    with_passages = len([*ways.dense, *ways.lsr, *ways.hybrid, *ways.reranked]) + ("bm25" in ways.plain)
    methods = [  # prompts of a question, their tokens, and those that a local model reads
        (1, (n_shots + 1) * QUESTION + new, (n_shots + 1) * QUESTION + new),
        (2, (n_shots + 2) * written + 2 * new, 2 * written + new),
        *[(1, (n_shots + 1) * length + new, (n_shots + 1) * length + new)] * with_passages,
        *[(k, k * ((n_shots + 1) * of_document + new), n_shots * of_document + k * (of_document + new))]
        * (len(ways.replug) + len(ways.replug_lsr)),
    ]
    questions = len(parts.answered) * answer.max_questions
    prompts, tokens = (questions * sum(numbers) for numbers in list(zip(*methods, strict=True))[:2])
    stages = tuple(answer.max_questions * read for _, _, read in methods) * len(parts.answered)
    return Reading("answers", prompts, tokens, stages)


def reranked(params: SimpleNamespace) -> int:
    """Pairs of a question and a document that a reranker scores for answers, at most, without demonstrations."""
    questions = len(params.parts.answered) * params.answer.max_questions * len(params.lms)
    return questions * params.reranker.candidates


def _scores(params: SimpleNamespace) -> Reading:
    """Each test query alone, with the documents of every retriever, with random ones, with those of the curve.

    The controls are a longer context, and all documents in one prompt, as if each one had room.
    """
    parts, logprobs = params.parts, params.logprobs
    retrievers = 1 + len(params.retrievers) + len(parts.tuned) + 1  # BM25's and random documents
    prompts = logprobs.max_queries * (1 + retrievers * logprobs.top_k)
    prompts += logprobs.datastore.max_queries * len(logprobs.datastore.shares) * logprobs.top_k
    length = params.chunk.tokens + params.queries.context_tokens + params.queries.continuation_tokens
    tokens = prompts * length
    if logprobs.controls:
        one_prompt = length + (params.replug.top_k - 1) * params.chunk.tokens
        concatenated = 1 + (params.retrievers[0] in parts.tuned)
        prompts += logprobs.max_queries * (1 + concatenated)
        tokens += logprobs.max_queries * (length + concatenated * one_prompt)
    return Reading("scores", prompts * len(parts.scored), tokens * len(parts.scored), (tokens,) * len(parts.scored))


def _benchmarks(params: SimpleNamespace) -> Reading:
    """Each question closed-book, and in ensembles: with every retriever's documents, BM25's and random ones."""
    parts, tasks = params.parts, params.tasks
    main = params.retrievers[:1]
    each = 1 + params.replug.top_k * (2 + len(main) + len(set(main) & set(parts.tuned)))
    prompts, stages = 0, []
    for task in parts.benchmarks:
        questions = min(tasks.max_questions, MMLU) if task == "mmlu" else tasks.max_questions
        shots, length = (tasks.mmlu_shots, OPTIONS) if task == "mmlu" else (tasks.qa_shots, QUESTION)
        prompts += questions * each
        stages.append(questions * each * ((shots + 1) * (length + params.chunk.tokens) + tasks.new_tokens))
    return Reading("benchmarks", prompts, sum(stages), tuple(stages))


def documents_in(files: Iterable[Path]) -> tuple[int, bool]:
    """How many documents a corpus has that is made of these files, and whether they were counted.

    DPR's passages are a document each, and counted where they are few. Otherwise the files' sizes give a guess.
    """
    number, counted = 0.0, True
    for file in files:
        size = file.stat().st_size * (1 if file.suffix in (*DECOMPRESSORS, ".parquet") else 1 / UNPACKED)
        if is_psgs(file) and size < COUNTED:
            number += max(0, sum(1 for _ in open_lines(file)) - 1)  # without the header
        else:
            number, counted = number + size / (PASSAGE if is_psgs(file) else DOCUMENT), False
    return int(number), counted


def thresholds(params: SimpleNamespace) -> list[str]:
    """A warning where so few questions of PopQA are asked that hardly any relation can have a threshold."""
    questions, least = params.answer.max_questions, params.thresholds.min_questions
    if not (params.lms and params.parts.rules and "popqa" in params.parts.answered) or questions >= least / LARGEST:
        return []
    return [
        f"thresholds: probably none. One needs a relation with {least} answered questions (thresholds.min_questions); "
        f"of {questions} (answer.max_questions), PopQA's largest relation has about {questions * LARGEST:.0f}"
    ]


def sizes(params: SimpleNamespace) -> dict[str, Size]:
    """The sizes of the run's language models, but for those on servers, and of its encoders, by name.

    The Hub is asked for config.json alone, and not again once it can't be reached.
    """
    from pipelines.lm.model_files import count_parameters

    models = {name: (f"base_lm@{name}", MODELS / "lm" / name, params.lm[name]) for name in params.lms}
    models |= {
        f"retriever {name}": (f"base_retriever@{name}", MODELS / "retriever" / name, params.retriever[name])
        for name in params.retrievers
    }
    by_name: dict[str, Size] = {}
    reachable = True
    for name, (stage, folder, section) in models.items():
        if section.source == "http":
            continue
        if stage in params.made and (parameters := count_parameters(folder)):
            by_name[name] = Size(parameters, 0, "here")
        elif section.source == "train":
            shape, _ = speed.shape_of(folder, section, speed.GPT2_XL, params.made)
            by_name[name] = Size(shape.weights + shape.vocabulary * shape.hidden, 0, "trained here")
        elif section.path and (reachable or Path(section.path).is_dir()):
            by_name[name], reachable = _size_by_config(section, reachable)
        else:
            by_name[name] = Size(None, None, UNREACHABLE if section.path else "of unknown size: its path is null")
    return by_name


def _size_by_config(section: LM | Retriever, reachable: bool) -> tuple[Size, bool]:
    """The size of the model that config.json at `path` describes, and whether the Hub is still worth asking."""
    import torch
    from huggingface_hub.errors import LocalEntryNotFoundError
    from huggingface_hub.utils import logging
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    logging.set_verbosity_error()  # not a line for each of its attempts to reach the Hub
    kind = AutoModelForCausalLM if isinstance(section, LM) else AutoModel
    try:
        config = AutoConfig.from_pretrained(section.path, revision=section.revision, trust_remote_code=False)
        with torch.device("meta"):
            parameters = kind.from_config(config, trust_remote_code=False).num_parameters()
    except (OSError, ValueError, KeyError) as error:
        away = isinstance(error.__cause__, LocalEntryNotFoundError)
        reason = " ".join(str(error).split())[:80]
        return Size(None, None, UNREACHABLE if away else f"of unknown size: {reason}"), reachable and not away
    if Path(section.path).is_dir():
        return Size(parameters, 0, "here"), reachable
    of_each = (config.dtype or torch.float32).itemsize
    return Size(parameters, parameters * of_each, "on the Hub"), reachable
