"""Every number the pipeline depends on, typed.

The values live in conf/ (composed into params.yaml by a profile, read by params_file); this module and params_data,
params_models and params_types only say what is allowed. Others import all of them from here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, ValidationInfo, field_validator

from pipelines import catalogue
from pipelines.language import language
from pipelines.params.params_data import (
    C4,
    Chunk,
    Compute,
    CorpusOf,
    Entities,
    Fetch,
    Ingest,
    Pages,
    PopQA,
    Popularity,
    Queries,
    Tokenizer,
    Wikidata,
    Windows,
    World,
)
from pipelines.params.params_models import (
    LM,
    LSR,
    Answer,
    Index,
    LMServer,
    LMTraining,
    Logprobs,
    Phase,
    Replug,
    Reranker,
    Retriever,
    RetrieverTraining,
)
from pipelines.params.params_types import Count, LMName, Month, RetrieverName, Section, Share, known

__all__ = ["LMServer", "LMTraining", "Pages", "Phase", "RetrieverTraining"]  # sections within sections

Method = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")]


class Pair(Section):
    """Two methods that a threshold chooses between, besides closed-book with each other method."""

    popular: Method  # from the threshold on
    tail: Method  # below the threshold

    @field_validator("tail")
    @classmethod
    def _another(cls, value: str, info: ValidationInfo) -> str:
        if value == info.data.get("popular"):
            raise ValueError("should be other answers than popular's")
        return value


class Thresholds(Section):
    imported: Literal["all", "test"]  # the questions that imported answers count on: all, or the test split's
    pairs: list[Pair]  # further than the closed-book answer above and each other method below
    search: Literal["exact", "bins", "shrunk", "logistic"]  # the search in use; all four are reported
    splits: PositiveInt  # random splits into a training side and a held-out side
    split_by: Literal["subject", "question"]  # what splits draw: subjects with all their questions, or questions
    train_share: Share  # share of the subjects, or questions, that thresholds are fitted on
    min_questions: PositiveInt  # relations with fewer use the pooled threshold; if all have fewer, there is none


class Tasks(Section):
    max_questions: PositiveInt  # per task
    mmlu_query: Literal["question_and_options", "question"]  # what documents are searched with
    mmlu_shots: Count  # demonstrations of the same subject
    qa_shots: Count  # demonstrations for Natural Questions and TriviaQA, from their training files
    new_tokens: PositiveInt  # at most, of an answer to them


class Exposure(Section):
    cutoffs: dict[str, Month] = Field(default_factory=dict)  # language model, also an imported one -> its text's end


class Report(Section):
    bootstrap: PositiveInt  # resamples of every bootstrap interval


class Parts(Section):
    """What a run is made of, by names of pipelines/catalogue.py. An empty list leaves its stages out."""

    knowledge: list[Literal["wikidata"]]  # where triples come from
    question_sets: list[str]  # are built, with the popularity of what they ask about
    answered: list[str]  # of question_sets: methods answer them, and thresholds are learnt on them
    corpora: list[str]  # are cut into documents and indexed
    datastore: str | None  # of corpora: what questions are answered from
    scored: list[str]  # of corpora: language models are scored on their test queries
    benchmarks: list[str]  # tasks that the language models are tested on
    passages: list[str]  # sets of questions with passages that retrievers are compared on
    tokenizers: list[Literal["documents"]]  # what cuts corpora into tokens
    tuned: list[str]  # of retrievers: LSR tunes these to the language model lsr.lm
    rules: list[Literal["popularity"]]  # by which the closed-book or the augmented answer is chosen
    exposure: list[str] = Field(default_factory=list)  # texts whose documents with subjects and answers are counted

    @field_validator("question_sets", "answered", "corpora", "benchmarks", "passages", "exposure")
    @classmethod
    def _in_the_catalogue(cls, value: list[str], info: ValidationInfo) -> list[str]:
        uses = {"question_sets": "questions", "benchmarks": "benchmark"}
        uses |= dict.fromkeys(("corpora", "exposure"), "documents")
        return known(value, catalogue.names(uses.get(info.field_name, info.field_name)))


class Ways(Section):
    """How question sets are answered: a list for each way, empty for none. Most lists name retrievers."""

    plain: list[Literal["closed_book", "genread", "bm25"]]  # without a retriever that is trained
    dense: list[str]  # with the best passages of these, untuned
    lsr: list[str]  # the same of parts.tuned, tuned
    hybrid: list[str]  # with BM25's documents and those of these, untuned, fused by reciprocal rank
    reranked: list[Literal["cross-encoder"]]  # with the main retriever's, in the order of the section reranker
    replug: list[str]  # with an ensemble over the documents of these, untuned
    replug_lsr: list[str]  # the same of parts.tuned, tuned


class Params(Section):
    profile: str  # the name it was composed from
    seed: int  # every random draw is a hash of this and of the id of what is drawn
    language: str  # of names, questions, page views, prompts and BM25's terms: a file of pipelines/language/languages
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
    corpus: dict[str, CorpusOf]  # how each corpus of parts.corpora is read
    chunk: Chunk
    queries: Queries
    windows: Windows
    lm: dict[LMName, LM]
    lms: list[LMName]  # the language models that run; the first is the main one, which the report's findings are of
    retriever: dict[RetrieverName, Retriever]
    retrievers: list[RetrieverName]  # the retrievers that run; the first is the main one (methods.py)
    reranker: Reranker | None  # what ways.reranked runs; null: none
    parts: Parts
    ways: Ways
    lm_text: Literal["raw/c4", "corpus"]  # what a language model is trained on: C4, or the corpora
    index: Index
    lsr: LSR
    logprobs: Logprobs
    replug: Replug
    answer: Answer
    thresholds: Thresholds
    tasks: Tasks
    exposure: Exposure = Field(default_factory=Exposure)
    report: Report

    @field_validator("language")
    @classmethod
    def _has_a_file(cls, value: str) -> str:
        return known([value], language.codes())[0]

    @field_validator("replug")
    @classmethod
    def _no_more_than_scored(cls, value: Replug, info: ValidationInfo) -> Replug:
        if "logprobs" in info.data and value.top_k > info.data["logprobs"].top_k:
            raise ValueError(f"top_k should be at most logprobs.top_k, {info.data['logprobs'].top_k}")
        return value

    @field_validator("lsr")
    @classmethod
    def _learns_from_a_model_that_runs(cls, value: LSR, info: ValidationInfo) -> LSR:
        tuned = "parts" in info.data and info.data["parts"].tuned
        if tuned and value.lm not in info.data.get("lms", [value.lm]):
            raise ValueError(f"lm should be one of lms, {', '.join(info.data['lms'])}; it is {value.lm}")
        return value

    @field_validator("lms", "retrievers")
    @classmethod
    def _in_the_section_of_one(cls, value: list[str], info: ValidationInfo) -> list[str]:
        return known(value, list(info.data.get(info.field_name.removesuffix("s"), {})))

    @field_validator("parts")
    @classmethod
    def _complete(cls, parts: Parts, info: ValidationInfo) -> Parts:
        if {"corpus", "queries", "lms", "retrievers", "popqa", "language"} <= set(info.data):
            _check_language(info.data["language"], parts, info.data["popqa"])
            tested = [
                name
                for name, corpus in info.data["corpus"].items()
                if corpus.test_files or (corpus.query_share and info.data["queries"].test_share)
            ]
            names = info.data["lms"], info.data["retrievers"]
            _check_parts(parts, info.data["corpus"], tested, *names, info.data["popqa"])
        return parts

    @field_validator("ways")
    @classmethod
    def _of_the_retrievers(cls, ways: Ways, info: ValidationInfo) -> Ways:
        if not {"parts", "retrievers", "reranker"} <= set(info.data):
            return ways
        tuned, retrievers = info.data["parts"].tuned, info.data["retrievers"]
        for way in ("dense", "lsr", "hybrid", "replug", "replug_lsr"):
            names, of = (tuned, "parts.tuned") if way.endswith("lsr") else (retrievers, "retrievers")
            if not _each_once(getattr(ways, way), names):
                raise ValueError(f"{way}: should be among {of}")
        if ways.reranked and not (info.data["reranker"] and retrievers):
            raise ValueError("reranked: needs the section reranker, and one of retrievers")
        return ways


def _each_once(listed: list[str], names: list[str]) -> bool:
    """Whether a list has names of `names` only, each at most once."""
    return set(listed) <= set(names) and len(set(listed)) == len(listed)


def _check_language(spoken: str, parts: Parts, popqa: PopQA) -> None:
    """Raise ValueError where published questions, which are English, would be taken for those of another language."""
    if spoken != "en":
        if english := [name for name in parts.question_sets if name != "popqa"]:
            raise ValueError(f"question_sets: {english[0]} is English, expected popqa alone with language: {spoken}")
        if "popqa" in parts.question_sets and popqa.source != "wikidata":
            raise ValueError(f"question_sets: popqa.source should be wikidata with language: {spoken}")


def _check_parts(
    parts: Parts, corpus: dict[str, CorpusOf], tested: list[str], lms: list[str], retrievers: list[str], popqa: PopQA
) -> None:
    """Raise ValueError naming the first list of `parts` that lacks what another one needs; `tested` have test texts."""
    tested = [name for name in parts.corpora if name in tested]
    published = {"popqa"} if popqa.source == "published" and not popqa.refresh else set()
    from_triples = [name for name in parts.question_sets if catalogue.DATASETS[name].triples and name not in published]
    answering = bool(parts.benchmarks or parts.passages or (parts.answered and lms))
    rules = [
        (set(parts.corpora) <= set(corpus), "corpora: the section corpus has no settings for one of them"),
        (
            set(parts.scored) <= set(tested),
            f"scored: only {tested} have test texts (corpus.*.test_files, or query_share and queries.test_share)",
        ),
        (set(parts.answered) <= set(parts.question_sets), "answered: should be among question_sets"),
        (parts.knowledge or not from_triples, f"knowledge: {from_triples} need wikidata there"),
        (parts.tokenizers or not parts.corpora, "tokenizers: corpora need it to be [documents]"),
        (retrievers or not parts.corpora, "corpora: need at least one of retrievers"),
        (parts.corpora or not retrievers, "corpora: retrievers search them, and there are none"),
        (_each_once(parts.tuned, retrievers), "tuned: should be among retrievers"),
        (parts.corpora or not parts.tuned, "tuned: a retriever is tuned on corpora, and there are none"),
        (lms or not (parts.tuned or parts.scored or parts.benchmarks), "tuned, scored, benchmarks: need one of lms"),
        (parts.answered or not parts.rules, "rules: thresholds need a question set in answered"),
        (parts.answered or not parts.exposure, "exposure: is of the question sets in answered, and there are none"),
        (
            not answering or parts.datastore in parts.corpora,
            "datastore: should be the one of corpora that answers questions",
        ),
    ]
    for holds, problem in rules:
        if not holds:
            raise ValueError(problem)
