"""params.yaml, read and checked here and nowhere else: what is wrong with it, in one line.

What a value may be beside the others is a rule: a key, whether its value is right, and what it should be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from pipelines import catalogue, methods, subsets
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params.params import Params
from pipelines.params.params_models import Section

Settings = TypeVar("Settings", bound=Section)  # the sections that a stage, or a command, reads
Rule = tuple[str, bool, str]  # key, whether its value is right, what it should be
USES = {
    "question_sets": "questions",
    "benchmarks": "benchmark",
    "corpora": "documents",
    "exposure": "documents",
}


def parse(values: dict, file: str = "params.yaml") -> Params:
    """Check all values of `file`; the first fault, an unknown key first, is a LongtailError with what is allowed."""
    try:
        params = Params.model_validate(values)
    except ValidationError as error:
        fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
        key = ".".join(map(str, fault["loc"])) or "(top level)"
        said = fault["msg"].replace(
            "Value error, ", ""
        )  # pydantic's word for an error of our own validators
        value, problem = fault["input"], f"{said[0].lower()}{said[1:]}"
        if fault["type"] == "extra_forbidden":
            allowed = ", ".join(reduce(_model_of, fault["loc"][:-1], Params).model_fields)
            raise LongtailError(f"{file}: unknown key {key}; allowed here: {allowed}") from None
        raise _wrong(file, key, value, problem) from None
    for rules in (
        _names,
        _sections,
        _models,
        _parts,
        _ways,
    ):  # a rule may rely on the rules before it
        for key, holds, should in rules(params):
            if not holds:
                raise _wrong(file, key, value_at(values, key), should)
    return params


def value_at(values: Any, key: str) -> Any:
    """The value of a dotted key, as thresholds.pairs.0.below; None where there is none."""
    for name in key.split("."):
        if isinstance(values, list):
            values = values[int(name)]
        else:
            values = values.get(name) if isinstance(values, dict) else None
    return values


def _wrong(file: str, key: str, value: object, problem: str) -> LongtailError:
    shown = re.sub(r"\?[^\s']*", "?...", repr(value))
    found = "" if isinstance(value, dict) else f" is {shown}"  # a section is too long for a line
    return LongtailError(f"{file}: {key}{found}: {problem}")


def _model_of(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The section class behind a field, through `X | None`, `list[X]` and `dict[str, X]` with its keys."""
    pending = [model.model_fields[name].annotation] if name in model.model_fields else []
    while pending:
        kind = pending.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
        pending += get_args(kind)
    return model


def load_settings(model: type[Settings], path: str | Path = "params.yaml") -> Settings:
    """The sections of params.yaml that are fields of `model`; all of the file is checked.

    Raises LongtailError with one line that says what is wrong.
    """
    params = parse(read_values(path))
    return settings_of(params, model)


def settings_of(params: Params, model: type[Settings]) -> Settings:
    """The sections of `params` that are fields of `model`."""
    sections = {name: getattr(params, name) for name in model.model_fields}
    return model(**sections)


def load_params(*sections: str, path: str | Path = "params.yaml") -> SimpleNamespace:
    """Only these sections of params.yaml, all of which is checked; raises LongtailError with one line."""
    params = parse(read_values(path))
    return SimpleNamespace(**{name: getattr(params, name) for name in sections})


def read_values(path: str | Path = "params.yaml") -> dict:
    """The values of params.yaml, unchecked. Raises LongtailError on a missing file, bad YAML, or no mapping."""
    path = Path(path)
    if not path.is_file():
        raise LongtailError(f"{path}: no such file; `longtail init --profile sample` writes one")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LongtailError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise LongtailError(
            f"{path}: expected a mapping of sections, found {type(values).__name__}"
        )
    return values


def _listed(key: str, names: Sequence[str], known: Sequence[str]) -> Rule:
    holds = len(set(names)) == len(names) and set(names) <= set(known)
    return key, holds, f"should be names, each once, of: {', '.join(known)}"


def _names(params: Params) -> Iterator[Rule]:
    yield _listed("language", [params.language], language.codes())
    yield _listed("tokenizer.text", params.tokenizer.text, catalogue.names("documents"))
    for part in ("question_sets", "answered", "corpora", "benchmarks", "passages", "exposure"):
        yield _listed(
            f"parts.{part}", getattr(params.parts, part), catalogue.names(USES.get(part, part))
        )
    yield _listed("lms", params.lms, list(params.lm))
    yield _listed("retrievers", params.retrievers, list(params.retriever))
    chosen = [params.popqa.subset] if params.popqa.subset else []
    yield _listed("popqa.subset", chosen, [*subsets.read_subsets()] if chosen else [])
    yield _listed("answer.clipped", params.answer.clipped, list(methods.INDEXES))


def _sections(params: Params) -> Iterator[Rule]:
    compute, chunk, queries, logprobs = (
        params.compute,
        params.chunk,
        params.queries,
        params.logprobs,
    )
    at = "should be the scheduler's address, as tcp://host:8786, with compute.executor: dask"
    yield "compute.dask", compute.executor != "dask" or compute.dask is not None, at
    yield (
        "chunk.min_tokens",
        chunk.min_tokens <= chunk.tokens,
        f"should be at most chunk.tokens, {chunk.tokens}",
    )
    most = f"should be at most 1 with queries.validation_share, {queries.validation_share}"
    yield "queries.test_share", queries.test_share + queries.validation_share <= 1, most
    most = f"should be at most logprobs.top_k, {logprobs.top_k}"
    yield "replug.top_k", params.replug.top_k <= logprobs.top_k, most
    for i, pair in enumerate(params.thresholds.pairs):
        yield (
            f"thresholds.pairs.{i}.below",
            pair.below != pair.above,
            "should be other answers than above's",
        )


def _models(params: Params) -> Iterator[Rule]:
    for name, lm in params.lm.items():
        trained, http = lm.source == "train", lm.http if lm.source == "http" else None
        server = "should be the server's settings, beside path, the model's name there, with source: http"
        yield f"lm.{name}.http", lm.source != "http" or bool(http and lm.path), server
        nothing = "should be null where prompt_price is 0: nothing would ever be counted"
        yield (
            f"lm.{name}.http.max_cost",
            not (http and http.max_cost and not http.prompt_price),
            nothing,
        )
        no_template = "should be false with source: train: such a model has no chat template"
        yield f"lm.{name}.chat", not (lm.chat and trained), no_template
        texts = "should be false where http.tokenizer is set: the chat interface takes texts, not tokens"
        yield f"lm.{name}.chat", not (lm.chat and lm.http and lm.http.tokenizer), texts
    for name, retriever in params.retriever.items():
        learnt = retriever.source != "train" or retriever.pooling == "mean"
        yield (
            f"retriever.{name}.pooling",
            learnt,
            "should be mean with source: train, which learns that",
        )
    lsr = params.lsr
    for kind, number in (("lm", lsr.lm_queries), ("qa", lsr.qa_queries)):
        some = f"should be at least 1 with lsr.queries: {lsr.queries}"
        yield f"lsr.{kind}_queries", bool(number) or lsr.queries not in (kind, "mixed"), some
    no_answer = "should be qa with lsr.likelihood: answer_right, as a text's continuation has no right answer"
    yield "lsr.queries", lsr.queries == "qa" or lsr.likelihood != "answer_right", no_answer
    yield "lsr.further_k", lsr.further_k < lsr.top_k, f"should be less than lsr.top_k, {lsr.top_k}"
    last = "should be last with lsr.validation_queries: 0, which choose no encoder"
    yield "lsr.keep", lsr.keep != "best" or bool(lsr.validation_queries), last


def _parts(params: Params) -> Iterator[Rule]:
    parts, retrievers, lms, popqa = params.parts, params.retrievers, params.lms, params.popqa
    if params.language != "en":  # published questions are
        english = [name for name in parts.question_sets if name != "popqa"]
        spoken = f"should be popqa alone with language: {params.language}; {', '.join(english)} is English"
        yield "parts.question_sets", not english, spoken
        wikidata = f"should be wikidata with language: {params.language}"
        yield (
            "popqa.source",
            "popqa" not in parts.question_sets or popqa.source == "wikidata",
            wikidata,
        )
    of_published = (
        "should be null with popqa.source: wikidata, as only published questions have its ids"
    )
    yield "popqa.subset", popqa.subset is None or popqa.source != "wikidata", of_published
    no_settings = "has no settings in the section corpus for one of them"
    yield "parts.corpora", set(parts.corpora) <= set(params.corpus), no_settings
    of = {name: params.corpus[name] for name in parts.corpora}
    split = params.queries.test_share > 0
    tested = [
        name for name, corpus in of.items() if corpus.test_files or (corpus.query_share and split)
    ]
    texts = f"only {tested} have test texts (corpus.*.test_files, or query_share and queries.test_share)"
    yield "parts.scored", set(parts.scored) <= set(tested), texts
    yield (
        "parts.answered",
        set(parts.answered) <= set(parts.question_sets),
        "should be among question_sets",
    )
    published = {"popqa"} if popqa.source == "published" and not popqa.refresh else set()
    built = [
        name
        for name in parts.question_sets
        if catalogue.DATASETS[name].triples and name not in published
    ]
    yield (
        "parts.knowledge",
        bool(parts.knowledge or not built),
        f"should be [wikidata], which {built} need",
    )
    needing = bool(parts.corpora or (parts.answered and lms))
    yield (
        "parts.tokenizers",
        bool(parts.tokenizers or not needing),
        "should be [documents], for corpora and lms",
    )
    used = parts.tuned or parts.scored or parts.benchmarks
    searching = parts.corpora and (used or (parts.answered and lms))
    yield (
        "retrievers",
        bool(retrievers or not searching),
        "with parts.corpora, language models need at least one",
    )
    yield (
        "parts.corpora",
        bool(parts.corpora or not retrievers),
        "retrievers search them, and there are none",
    )
    yield _listed("parts.tuned", parts.tuned, retrievers)
    yield (
        "parts.rerankers",
        bool(params.reranker or not parts.rerankers),
        "the section reranker is null",
    )
    yield (
        "parts.corpora",
        bool(parts.corpora or not parts.tuned),
        "a retriever is tuned on them, and there are none",
    )
    yield "lms", bool(lms or not used), "parts tuned, scored and benchmarks need one of lms"
    yield (
        "parts.answered",
        bool(parts.answered or not parts.rules),
        "should have a set, which thresholds need",
    )
    yield (
        "parts.answered",
        bool(parts.answered or not parts.exposure),
        "should have a set, which exposure is of",
    )
    searched = any(methods.split(way)[0] in methods.INDEXES for way in params.ways)
    answering = parts.benchmarks or parts.passages or (parts.answered and lms and searched)
    corpus = "should be the one of corpora that answers questions"
    yield "parts.datastore", not answering or parts.datastore in parts.corpora, corpus
    yield (
        "lsr.lm",
        not parts.tuned or params.lsr.lm in lms,
        f"should be one of lms, {', '.join(lms)}",
    )


def _ways(params: Params) -> Iterator[Rule]:
    parts, retrievers = params.parts, params.retrievers
    for way in params.ways if parts.answered and params.lms else ():
        try:
            kind, name = methods.resolve(way, retrievers)
        except LongtailError as error:
            yield "ways", False, str(error)
            return
        called = methods.short(kind, name, retrievers)
        yield (
            "ways",
            way == called,
            f"{way}: should be {called}, as the main retriever's ways have no name",
        )
        tuned = methods.INDEXES.get(kind) != "lsr" or name in parts.tuned
        yield "ways", tuned, f"{way}: needs {name} among parts.tuned; leave it out, or tune it"
        key = f"retrieval{name and '/'}{name}"
        brought = (
            kind not in methods.GIVEN or params.fetch.source == "world" or key in params.fetch.files
        )
        yield f"fetch.files.{key}", brought, f"should name the file that has the passages of {way}"
        joined = kind not in methods.GIVEN or "retrieval" in parts.given_passages
        yield "parts.given_passages", joined, f"should be [retrieval], as {way} answers from it"
        reranked = kind != "reranked" or (bool(parts.rerankers) and called == kind)
        yield (
            "ways",
            reranked,
            f"{way}: needs parts.rerankers, which rerank what the main retriever finds",
        )
    yield "ways", len(set(params.ways)) == len(params.ways), "should have each way once"
    answering = parts.answered and params.lms
    for way in (
        way for pair in params.thresholds.pairs if answering for way in (pair.above, pair.below)
    ):
        theirs = methods.split(way)[0] not in methods.METHODS  # an imported answer's
        yield (
            "thresholds.pairs",
            theirs or way in params.ways,
            f"{way}: should be among ways; add it, or drop the pair",
        )
