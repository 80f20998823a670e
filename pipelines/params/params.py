"""Every number the pipeline depends on, typed.

The values live in conf/ (composed into params.yaml by a profile, read by params_file); this module and params_models
only say what is allowed. Others import all of them from here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pipelines.params.params_models import (
    LM,
    LSR,
    Address,
    Answer,
    Count,
    Index,
    LMName,
    LMServer,
    LMTraining,
    Logprobs,
    Month,
    Phase,
    Replug,
    Reranker,
    Retriever,
    RetrieverName,
    RetrieverTraining,
    Section,
    Share,
)

__all__ = ["LMServer", "LMTraining", "Phase", "RetrieverTraining"]  # sections within sections

Method = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")]


Computing = Literal[  # stages of dvc.yaml that read `compute`
    "entities", "popularity", "term_frequency", "triples", "questions", "exposure", "chunk", "base_retriever", "index",
    "index_bm25", "train_lsr", "index_lsr", "score_lm", "attribute", "answer", "evaluate_tasks", "evaluate_retrieval",
]  # fmt: skip


class Compute(Section):
    threads: PositiveInt  # threads of each process; trained weights depend on it, so it is not taken from the machine
    workers: PositiveInt  # processes at once: stages side by side, or one stage's shards; never changes a result
    executor: Literal[
        "local", "dask"
    ]  # what runs shards: processes on this machine, or a Dask cluster
    dask: (
        Annotated[str, Field(pattern=r"^(\w+://)?[^\s/]+:\d+$")] | None
    )  # dask: address of the scheduler
    device: Literal["cpu", "cuda"]  # where torch computes; FAISS's lists and DuckDB stay on the CPU
    stages: dict[Computing, PositiveInt] = Field(
        default_factory=dict
    )  # a stage -> its workers, in place of `workers`

    def of_stage(self, name: str) -> Compute:
        """What a stage has; `name` is DVC's, as chunk@wikipedia."""
        return self.model_copy(
            update={"workers": self.stages.get(name.partition("@")[0], self.workers)}
        )


class Ingest(Section):
    max_reject_share: Share  # a larger share of rejected rows stops the stage
    memory_gb: PositiveFloat  # GB for joins and name searches; larger ones spill to disk or take several passes


class Pages(Section):
    """Wikipedia's pages about the subjects of the published PopQA, from the MediaWiki API in place of a dump."""

    api: Address  # of MediaWiki's api.php
    max_subjects: (
        PositiveInt | None
    )  # subjects, at most, drawn by hash; questions about others are left out; null: all
    namesakes: bool  # also pages of the subjects' names with another qualifier, as Mercury (planet) for Mercury
    others: Annotated[
        int, Field(ge=0)
    ]  # further pages: those that follow subjects in the order of titles


class Fetch(Section):
    source: Literal[
        "world", "files", "wikimedia"
    ]  # the generated world, files on disk, or Wikimedia's servers
    root: str | None  # files: the folder that they lie in
    files: dict[
        str, list[Address]
    ]  # data set of the catalogue -> globs below root (files) or URLs (wikimedia)
    days_apart: Count  # days between dates of Wikidata, Wikipedia and page views without a warning; a late dump's wait
    redirects: list[
        str
    ]  # hosts that a download may be sent on to, besides its own and those of the other URLs
    pages: Pages | None  # wikimedia: pages to ask for in place of a dump of Wikipedia; null: none


class World(Section):
    """The offline sample: one fictional world written in the sources' formats."""

    entities: PositiveInt  # entities of the world; each has an article
    lm_documents: (
        PositiveInt  # documents in the C4 shards, which the tiny language model is trained on
    )
    lm_shards: PositiveInt  # C4 files that the documents are written to
    pile_documents: PositiveInt  # Pile documents about each entity
    questions: PositiveInt  # in each of EntityQuestions, MMLU, Natural Questions and TriviaQA


class Wikidata(Section):
    source: Literal["dump", "query_service"]  # the dump under data/raw, or a SPARQL endpoint
    query_service: Address  # of a SPARQL endpoint
    api: Address  # of the entity API (MediaWiki's api.php)


class Popularity(Section):
    source: Literal["dump", "api"]  # the monthly dump, or a REST API asked page by page
    api: Address  # of the page views REST API
    redirects_api: Address  # api: of the Wikipedia's API, which says how moved articles were called
    month: Month  # month whose page views are the popularity, YYYY-MM
    months: Annotated[int, Field(ge=1, le=12)] = (
        1  # months of page views, up to `month`, for their mean and spread
    )
    agents: Literal[
        "all-agents", "user"
    ]  # whose views count: all, as in the published PopQA, or without bots


class PopQA(Section):
    source: Literal[
        "wikidata", "published", "both"
    ]  # built from triples, the published set, or both
    sampling: Literal[
        "term_frequency", "all"
    ]  # triples drawn by term frequency up to per_relation, or all
    per_relation: PositiveInt  # term_frequency: questions of a relation, at most
    mix: Literal[
        "drawn", "published"
    ]  # shares of relations among triples' questions: as drawn, or the published set's
    total: (
        PositiveInt | None
    )  # questions from triples, at most; null: no bound, with mix published 14,267
    subset: str | None = (
        None  # of the published questions, a sample that papers use, such as longtail; null: all
    )
    refresh: bool  # published questions get the views and answers of popularity.month, by their Wikidata ids
    train_share: (
        Share  # share of subjects whose questions LSR may learn from; they are never evaluated
    )


class C4(Section):
    sample_mb: PositiveInt  # megabytes of C4's text that names are counted in, drawn by hash


class Tokenizer(Section):
    source: Literal["train", "pretrained"]  # trained here (byte-level BPE), or read
    path: str | None  # pretrained: local folder or Hub name
    revision: str | None  # pretrained from the Hub: a commit
    vocab_size: PositiveInt | None  # train: entries of the vocabulary
    text: list[str]  # train: the data sets under data/raw it learns from


class CorpusOf(Section):
    documents: PositiveInt | None  # documents of the corpus, at most, drawn by hash; null: all
    titles: bool = True  # documents keep the titles of their source documents, which encoders and language models read
    query_share: Share  # share of source documents that become language-modelling queries in place of documents
    test_files: (
        str | None
    )  # glob of the file names of a published test split; null: queries.test_share
    validation_files: str | None  # glob of the file names of a published validation split

    @property
    def has_queries(self) -> bool:
        return (
            self.query_share > 0 or self.test_files is not None or self.validation_files is not None
        )


class Chunk(Section):
    tokens: PositiveInt  # tokens of a document
    min_tokens: (
        PositiveInt  # tokens of a document, at least; a shorter last piece joins the one before it
    )


class Queries(Section):
    """Language-modelling queries to learn from and to validate on, anywhere in the source documents kept for them."""

    context_tokens: PositiveInt  # tokens of a query that are given
    continuation_tokens: PositiveInt  # tokens of a query that are predicted
    validation_share: Share  # share of the queries' source documents for validation
    test_share: (
        Share  # share of the queries' source documents for tests; what remains is for training
    )
    per_document: PositiveInt  # queries of a source document, at most, drawn by hash
    max_per_split: PositiveInt  # queries of a split, at most, drawn by hash


class Windows(Section):
    """Rolling windows over whole test documents: each predicts the tokens that follow those of the one before."""

    context_tokens: PositiveInt  # tokens before a window that are searched with, and shown to the language model
    stride_tokens: (
        PositiveInt  # tokens that a window predicts; documents are retrieved anew for each window
    )
    first: (
        bool | Literal["window"]
    )  # predict a document's first context_tokens as well, without retrieval; window: a
    # whole window without retrieval, and a longer context for a last window that predicts less, as REPLUG's authors do


class Pair(Section):
    """Two methods that a threshold chooses between, besides closed-book with each other method."""

    above: Method  # answers from the threshold on
    below: Method  # answers below the threshold


class Thresholds(Section):
    pairs: list[Pair]  # further than the closed-book answer above and each other method below
    search: Literal["exact", "bins", "shrunk"]  # the search in use; all three are reported
    splits: PositiveInt  # random splits into a training side and a held-out side
    split_by: Literal[
        "subject", "question"
    ]  # what splits draw: subjects with all their questions, or questions
    train_share: Share  # share of the subjects, or questions, that thresholds are fitted on
    min_questions: PositiveInt  # relations with fewer use the pooled threshold; if all have fewer, there is none


class Tasks(Section):
    max_questions: PositiveInt  # per task
    mmlu_query: Literal["question_and_options", "question"]  # what documents are searched with
    mmlu_shots: Count  # demonstrations of the same subject
    qa_shots: Count  # demonstrations for Natural Questions and TriviaQA, from their training files
    new_tokens: PositiveInt  # at most, of an answer to them
    concatenated: bool = False  # also ask with the replug.top_k documents in one prompt (the way dense of benchmarks)


class Exposure(Section):
    cutoffs: dict[str, Month] = Field(
        default_factory=dict
    )  # language model, also an imported one -> its text's end


class Report(Section):
    bootstrap: PositiveInt  # resamples of every bootstrap interval
    merge_bins: bool  # in PopQA's figures 8, 20 and 21, bins with few questions join neighbours; false: are left out


class Parts(Section):
    """What a run is made of, by names of pipelines/catalogue.yaml. An empty list leaves its stages out."""

    knowledge: list[Literal["wikidata"]]  # where triples come from
    question_sets: list[str]  # are built, with the popularity of what they ask about
    answered: list[str]  # of question_sets: methods answer them, and thresholds are learnt on them
    corpora: list[str]  # are cut into documents and indexed
    datastore: str | None  # of corpora: what questions are answered from
    scored: list[str]  # of corpora: language models are scored on their test queries
    benchmarks: list[str]  # tasks that the language models are tested on
    passages: list[str]  # sets of questions with passages that retrievers are compared on
    given_passages: list[Literal["retrieval"]] = Field(
        default_factory=list
    )  # sets of questions with passages that the ways given and replug_given answer from
    tokenizers: list[Literal["documents"]]  # what cuts corpora into tokens
    tuned: list[str]  # of retrievers: LSR tunes these to the language model lsr.lm
    rerankers: list[Literal["cross-encoder"]] = Field(
        default_factory=list
    )  # of the section reranker
    rules: list[Literal["popularity"]]  # by which the closed-book or the augmented answer is chosen
    exposure: list[str] = Field(
        default_factory=list
    )  # texts whose documents with subjects and answers are counted


class Params(Section):
    profile: str  # the name it was composed from
    seed: int  # every random draw is a hash of this and of the id of what is drawn
    language: str  # of names, questions, page views, prompts and BM25's terms: a file of pipelines/language/languages
    contact: (
        str | None
    )  # an e-mail address or web page, for the User-Agent, as Wikimedia's policy asks
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
    lms: list[
        LMName
    ]  # the language models that run; the first is the main one, which the report's findings are of
    retriever: dict[RetrieverName, Retriever]
    retrievers: list[
        RetrieverName
    ]  # the retrievers that run; the first is the main one (methods.py)
    reranker: (
        Reranker | None
    )  # reads what the main retriever finds, in the way reranked; null: none
    parts: Parts
    ways: list[
        str
    ]  # methods by which the language models answer question sets (methods.py:METHODS)
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
