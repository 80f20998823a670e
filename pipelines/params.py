"""Every number the pipeline depends on, typed: params.yaml is read and checked here, and nowhere else.

The values live in conf/ (composed into params.yaml by a profile); this module only says what is allowed.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from pipelines.errors import LongtailError

PositiveInt = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
Month = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class Compute(Section):
    threads: PositiveInt  # of torch, FAISS and DuckDB: trained weights depend on it, so never taken from the machine
    workers: PositiveInt  # processes on one machine, sharing its ingest.memory_gb; never part of the result
    executor: Literal["local", "dask"]  # whose processes shards are mapped over
    dask: Annotated[str, Field(pattern=r"^(\w+://)?[^\s/]+:\d+$")] | None  # the scheduler's address
    device: Literal["cpu", "cuda"]

    @field_validator("dask")
    @classmethod
    def _address_of_the_scheduler(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("executor") == "dask":
            raise ValueError("should be the scheduler's address, as tcp://host:8786, with compute.executor: dask")
        return value


class Ingest(Section):
    max_reject_share: Share  # more rejected rows than this stop the stage
    memory_gb: PositiveFloat  # of joins and name searches; beyond it they spill to disk or take several passes


class Fetch(Section):
    source: Literal["world", "files", "wikimedia"]
    root: str | None  # source: files: where the files lie
    files: dict[str, list[str]]  # data set under data/raw -> globs below root (files) or URLs (wikimedia)


class World(Section):
    """The offline sample: one fictional world written in the sources' formats."""

    entities: PositiveInt
    month: Month  # of the page views
    lm_documents: PositiveInt  # documents in the C4 shards, which the tiny language model is trained on
    lm_shards: PositiveInt
    lm_mixture: dict[Literal["world", "reading", "distractor"], Share]  # shares of those documents
    pile_documents: PositiveInt  # of each entity
    questions: PositiveInt  # in each of EntityQuestions, MMLU, Natural Questions and TriviaQA
    popularity_mean: float  # of log10 of the monthly page views
    popularity_sd: PositiveFloat
    mention_exponent: PositiveFloat  # mentions in the language model's text ~ popularity ** this
    namesake_share: Share  # entities that share a more popular one's name


class Wikidata(Section):
    source: Literal["dump", "query_service"]
    query_service: str  # address of a SPARQL endpoint
    api: str  # address of the entity API (MediaWiki's api.php)
    page: PositiveInt  # query_service: statements asked for at once; halved where the service runs out of time


class Entities(Section):
    missing_objects: bool  # ask the entity API for the names of objects that data/raw/wikidata lacks


class Popularity(Section):
    source: Literal["dump", "api"]
    api: str  # address of the page views REST API
    month: Month
    agents: Literal["all-agents", "user"]


class PopQA(Section):
    source: Literal["wikidata", "published", "both"]
    sampling: Literal["term_frequency", "all"]
    per_relation: PositiveInt  # cap
    train_share: Share  # of subjects set apart for LSR's questions, never evaluated


class C4(Section):
    sample_mb: PositiveInt


class Tokenizer(Section):
    source: Literal["train", "pretrained"]
    path: str | None  # pretrained: local folder or Hub name
    revision: str | None  # pretrained from the Hub: a commit
    vocab_size: PositiveInt | None  # train
    text: list[Literal["c4", "pile", "wikipedia"]]  # train: the data sets under data/raw it learns from
    sample_mb: PositiveInt


class CorpusOf(Section):
    documents: PositiveInt | None  # at most, of source documents drawn by hash; null: all
    weights: dict[str, PositiveFloat] | None  # subset -> weight in that draw; subsets not named stay out; null: all 1
    query_share: Share  # of source documents kept out of the corpus, for language-modelling queries


class Corpus(Section):
    wikipedia: CorpusOf
    pile: CorpusOf


class Chunk(Section):
    tokens: PositiveInt
    min_tokens: PositiveInt  # at most tokens
    short: Literal["merge", "drop"]  # a last piece shorter than min_tokens

    @field_validator("min_tokens")
    @classmethod
    def _no_more_than_tokens(cls, value: int, info: ValidationInfo) -> int:
        if value > info.data.get("tokens", value):
            raise ValueError(f"should be at most chunk.tokens, {info.data['tokens']}")
        return value


class Queries(Section):
    context_tokens: PositiveInt
    continuation_tokens: PositiveInt
    validation_share: Share  # of the query source documents
    test_share: Share  # with validation_share at most 1; the rest is for training
    per_document: PositiveInt  # at most, from the beginning of a source document
    max_per_split: PositiveInt
    near_duplicate: Annotated[float, Field(gt=0, le=1)]  # MinHash Jaccard similarity of source documents: dropped

    @field_validator("test_share")
    @classmethod
    def _no_more_than_all(cls, value: float, info: ValidationInfo) -> float:
        if value + info.data.get("validation_share", 0.0) > 1:
            raise ValueError(f"should be at most 1 with queries.validation_share, {info.data['validation_share']}")
        return value


class Phase(Section):
    until: Share  # share of the steps at which this phase ends
    weights: dict[str, float]  # kind of text -> share of the tokens


class LMTraining(Section):
    text: Literal["c4", "corpus"]
    hidden_size: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    intermediate_size: PositiveInt
    positions: PositiveInt
    steps: PositiveInt
    batch_size: PositiveInt
    learning_rate: PositiveFloat
    attention_dropout: Annotated[float, Field(ge=0, lt=1)]
    answer_weight: PositiveFloat
    dtype: Literal["fp32", "bf16"]
    phases: list[Phase]


class LM(Section):
    source: Literal["train", "pretrained", "http"]
    path: str | None  # pretrained: local folder or Hub name; http: model name
    revision: str | None
    url: str | None  # http: base address of an OpenAI-compatible server
    max_tokens: PositiveInt | None  # http: what the model reads at once
    dtype: Literal["fp32", "bf16"]
    batch_tokens: PositiveInt  # upper bound of tokens in one forward pass
    training: LMTraining | None


class RetrieverTraining(Section):
    hidden_size: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    steps: PositiveInt
    batch_size: PositiveInt
    learning_rate: PositiveFloat
    temperature: PositiveFloat


class Retriever(Section):
    source: Literal["train", "pretrained"]
    path: str | None
    revision: str | None
    similarity: Literal["cosine", "dot"]
    batch_size: PositiveInt
    max_tokens: PositiveInt
    training: RetrieverTraining | None


class Index(Section):
    kind: Literal["auto", "flat", "ivf", "hnsw"]
    bm25_k1: PositiveFloat
    bm25_b: Share


class LSR(Section):
    queries: Literal["lm", "qa", "mixed"]
    lm_queries: PositiveInt  # at most, of the train split
    qa_queries: PositiveInt  # at most, of PopQA's train split
    validation_queries: PositiveInt  # at most, of each kind: judged before, between and after, never learnt from
    validation_share: Share  # of the subjects of PopQA's train split that judge
    top_k: PositiveInt
    gamma: PositiveFloat
    beta: PositiveFloat
    kl: Literal["q_p", "p_q"]
    likelihood: Literal["mean_logprob", "sum_logprob", "prob"]
    learning_rate: PositiveFloat
    warmup: Share
    batch_size: PositiveInt
    steps: PositiveInt
    refresh_steps: PositiveInt


class Replug(Section):
    top_k: PositiveInt
    temperature: PositiveFloat
    mixture: Literal["token_mixture", "sequence_mixture"]
    max_queries: PositiveInt


class Answer(Section):
    max_questions: PositiveInt  # per data set, drawn by hash
    n_shots: Annotated[int, Field(ge=0)]
    new_tokens: PositiveInt


class Thresholds(Section):
    search: Literal["exact", "bins", "shrunk"]
    splits: PositiveInt
    train_share: Share
    pseudo_questions: PositiveFloat  # shrunk: weight of the pooled curve
    quantiles: PositiveInt  # shrunk: candidate cuts
    min_questions: PositiveInt  # relations with fewer use the pooled threshold


class Tasks(Section):
    max_questions: PositiveInt  # per task
    mmlu_shots: Annotated[int, Field(ge=0)]
    qa_shots: Annotated[int, Field(ge=0)]
    new_tokens: PositiveInt


class Report(Section):
    bootstrap: PositiveInt  # resamples of every interval


class Params(Section):
    profile: str
    seed: int
    contact: str | None  # an e-mail address or web page, for the User-Agent, as Wikimedia's policy asks
    compute: Compute
    ingest: Ingest
    fetch: Fetch
    world: World
    wikidata: Wikidata
    entities: Entities
    popularity: Popularity
    popqa: PopQA
    c4: C4
    tokenizer: Tokenizer
    corpus: Corpus
    chunk: Chunk
    queries: Queries
    lm: LM
    retriever: Retriever
    index: Index
    lsr: LSR
    replug: Replug
    answer: Answer
    thresholds: Thresholds
    tasks: Tasks
    report: Report


def parse(values: dict) -> Params:
    """Check a whole params mapping; the first fault becomes a LongtailError naming key, value and what is allowed."""
    try:
        return Params.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"])) or "(top level)"
        value, problem = fault["input"], f"{fault['msg'][0].lower()}{fault['msg'][1:]}"
        if fault["type"] == "extra_forbidden":
            parent = Params
            for part in fault["loc"][:-1]:
                parent = _model_of(parent, part)
            allowed = ", ".join(parent.model_fields)
            raise LongtailError(f"params.yaml: unknown key {key}; allowed here: {allowed}") from None
        if fault["type"] == "missing":
            raise LongtailError(f"params.yaml: {key} is missing") from None
        raise LongtailError(f"params.yaml: {key} is {value!r}: {problem}") from None


def _model_of(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The section class behind a field, through `X | None` and `list[X]`."""
    from typing import get_args

    pending = [model.model_fields[name].annotation]
    while pending:
        kind = pending.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
        pending.extend(get_args(kind))
    return model


def load(*sections: str, path: str | Path = "params.yaml") -> SimpleNamespace:
    """Read and check all of params.yaml; hand back only `sections`, so that a stage can't use what it does not declare.

    Raises LongtailError with one line on a missing file, bad YAML, an unknown key, a wrong type or a bad value.
    """
    path = Path(path)
    if not path.is_file():
        raise LongtailError(f"{path}: no such file; `longtail profile sample` writes one")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise LongtailError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise LongtailError(f"{path}: expected a mapping of sections, found {type(values).__name__}")
    params = parse(values)
    return SimpleNamespace(**{name: getattr(params, name) for name in sections})
