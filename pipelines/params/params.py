"""Every number the pipeline depends on, typed.

The values live in conf/ (composed into params.yaml by a profile, read by params_file); this module and params_data,
params_models and params_types only say what is allowed. Others import all of them from here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from pipelines.params.params_data import (
    C4,
    Chunk,
    Compute,
    CorpusOf,
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
from pipelines.params.params_types import Count, LMName, Month, RetrieverName, Section, Share

__all__ = ["LMServer", "LMTraining", "Pages", "Phase", "RetrieverTraining"]  # sections within sections

Method = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")]


class Pair(Section):
    """Two methods that a threshold chooses between, besides closed-book with each other method."""

    popular: Method  # from the threshold on
    tail: Method  # below the threshold


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
    rerankers: list[Literal["cross-encoder"]] = Field(default_factory=list)  # of the section reranker
    rules: list[Literal["popularity"]]  # by which the closed-book or the augmented answer is chosen
    exposure: list[str] = Field(default_factory=list)  # texts whose documents with subjects and answers are counted


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
    reranker: Reranker | None  # reads what the main retriever finds, in the way reranked; null: none
    parts: Parts
    ways: list[str]  # methods by which the language models answer question sets (methods.py:METHODS)
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
