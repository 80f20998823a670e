"""The params: every number and name that a user may change, typed.

The values live in conf/, from which a profile composes params.yaml; params_file.py reads that. This
module and params_models.py only say what is allowed. Others import all sections from here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pipelines.params.param_types import (
    Address,
    Count,
    LMName,
    MethodName,
    Month,
    RetrieverName,
    Section,
    Share,
)
from pipelines.params.params_models import (
    BETTER,
    LM,
    LSR,
    Answer,
    AnswerOfSet,
    LMServer,
    Logprobs,
    Replug,
    Retriever,
)

# sections within sections, and a table
__all__ = ["BETTER", "AnswerOfSet", "LMServer"]

SAMPLE = "sample/data"  # the folder of the sample's files


class Compute(Section):
    """Where and how stages compute."""

    # threads of each process; trained weights depend on it, so it is not taken from the machine
    threads: PositiveInt
    # processes at once: stages side by side, or one stage's shards; never changes a result
    workers: PositiveInt
    # address of the scheduler of a Dask cluster, which runs shards; null: processes on this machine
    dask: Annotated[str, Field(pattern=r"^(\w+://)?[^\s/]+:\d+$")] | None
    # where torch computes; FAISS's lists and DuckDB stay on the CPU
    device: Literal["cpu", "cuda"]


class Ingest(Section):
    """How stages read large inputs."""

    # a larger share of rejected rows, or of questions that a server refuses, stops the stage
    max_reject_share: Share
    # GB for joins, name searches and indexes; larger joins spill to disk, larger searches take
    # several passes, and larger indexes get coarser codes
    memory_gb: PositiveFloat


class Pages(Section):
    """Wikipedia's pages about the subjects of the published PopQA, from the MediaWiki API in place
    of a dump.
    """

    # address of MediaWiki's api.php
    api: Address
    # subjects, at most, drawn by hash; questions about others are left out; null: all
    max_subjects: PositiveInt | None
    # also pages of the subjects' names with another qualifier, as Mercury (planet) for Mercury
    namesakes: bool
    # number of further pages, which follow subjects in the order of titles
    others: Annotated[int, Field(ge=0)]


class Fetch(Section):
    """Where the data sets come from."""

    # files on disk, or Wikimedia's servers
    source: Literal["files", "wikimedia"]
    # files: the folder that they lie in
    root: str | None
    # data set of the catalogue -> globs below root (files) or URLs (wikimedia)
    files: dict[str, list[Address]]
    # days between dates of Wikidata, Wikipedia and page views without a warning; a late dump's wait
    days_apart: Count
    # hosts that a download may be sent on to, besides its own and those of the other URLs
    redirects: list[str]
    # wikimedia: pages to ask for in place of a dump of Wikipedia; null: none
    pages: Pages | None

    @property
    def is_fictional(self) -> bool:
        """Whether the files are the sample's, which are of a fictional world."""
        return self.source == "files" and self.root == SAMPLE


class Wikidata(Section):
    """Where entities and claims come from."""

    # the dump under data/raw, or a SPARQL endpoint
    source: Literal["dump", "query_service"]
    # address of the SPARQL endpoint
    query_service: Address
    # address of the entity API (MediaWiki's api.php)
    api: Address


class Popularity(Section):
    """Where page views come from, and of which month."""

    # the monthly dump, or a REST API asked page by page
    source: Literal["dump", "api"]
    # address of the page views REST API
    api: Address
    # api: address of the Wikipedia's API, which says how moved articles were called
    redirects_api: Address
    # month whose page views are the popularity, YYYY-MM
    month: Month
    # whose views count: all, as in the published PopQA, or without bots
    agents: Literal["all-agents", "user"]


class PopQA(Section):
    """Which questions PopQA has."""

    # built from triples, the published set, or both
    source: Literal["wikidata", "published", "both"]
    # term_frequency: a triple is drawn with probability (ln f + 6) / 8, by its f; or all
    sampling: Literal["term_frequency", "all"]
    # questions of a relation from triples, at most
    per_relation: PositiveInt
    # a sample of the published questions that papers use, such as longtail; null: all
    subset: str | None = None
    # published questions get the views and answers of popularity.month, by their Wikidata ids
    refresh: bool
    # share of subjects whose questions LSR may learn from; they are never evaluated
    train_share: Share


class C4(Section):
    # megabytes of C4's text that names are counted in, drawn by hash
    sample_mb: PositiveInt


class Tokenizer(Section):
    # local folder or Hub name
    path: str | None
    # commit of path on the Hub
    revision: str | None


class Corpus(Section):
    """How a corpus is read."""

    # documents of the corpus, at most, drawn by hash; null: all
    documents: PositiveInt | None
    # documents keep the titles of their source documents, which encoders and language models read
    titles: bool = True
    # share of source documents that become language-modelling queries in place of documents
    query_share: Share
    # glob of the file names of a published test split; null: queries.test_share
    test_files: str | None
    # WikiText: so many lines of a test file are joined into one text, as REPLUG's authors do; null:
    # each article is a text
    test_lines: PositiveInt | None = None
    # glob of the file names of a published validation split
    validation_files: str | None

    @property
    def has_queries(self) -> bool:
        has_files = self.test_files is not None or self.validation_files is not None
        return has_files or self.query_share > 0


class Chunk(Section):
    """How texts are cut into documents."""

    # tokens of a document; a last piece with less than an eighth joins the one before it
    tokens: PositiveInt


class Queries(Section):
    """Language-modelling queries to learn from and to validate on, anywhere in the source documents
    kept for them.
    """

    # tokens of a query that are given
    context_tokens: PositiveInt
    # tokens of a query that are predicted
    continuation_tokens: PositiveInt
    # share of the queries' source documents for validation
    validation_share: Share
    # share of the queries' source documents for tests; what remains is for training
    test_share: Share
    # queries of a source document, at most, drawn by hash
    per_document: PositiveInt
    # queries of a split, at most, drawn by hash
    max_per_split: PositiveInt


class Windows(Section):
    """Rolling windows over whole test documents: each predicts the tokens that follow those of the
    one before.
    """

    # tokens before a window that are searched with, and shown to the language model
    context_tokens: PositiveInt
    # tokens that a window predicts; documents are retrieved anew for each window
    stride_tokens: PositiveInt
    # whether a document's first tokens are predicted, and how (docs/language-modelling.md)
    first: bool | Literal["window"]


class Pair(Section):
    """Two methods that a threshold chooses between, besides answers without retrieval above and
    each other method below.
    """

    # answers from the threshold on
    above: MethodName
    # answers below the threshold
    below: MethodName


class Thresholds(Section):
    """How the popularity is learnt below which a passage is retrieved."""

    # further than answers without retrieval above and each other method below
    pairs: list[Pair]
    # the search in use; all three are reported
    search: Literal["exact", "bins", "shrunk"]
    # share of the questions that may retrieve; 1 sets no limit
    budget: Annotated[float, Field(gt=0, le=1)]
    # random splits into a training side and a held-out side
    splits: PositiveInt
    # what splits draw: subjects with all their questions, or questions
    split_by: Literal["subject", "question"]
    # share of the subjects, or questions, that thresholds are fitted on
    train_share: Annotated[float, Field(ge=0, le=0.99)]
    # relations with fewer use the pooled threshold; if all have fewer, there is none
    min_questions: PositiveInt


class Report(Section):
    # resamples of a bootstrap interval; of what follows from thresholds, at most 200
    bootstrap: PositiveInt


class Parts(Section):
    """What a run is made of, by names of pipelines/catalogue.yaml. An empty list leaves its stages
    out.
    """

    # where triples come from
    knowledge: list[Literal["wikidata"]]
    # question sets that are built, with the popularity of what they ask about
    question_sets: list[str]
    # those of question_sets that methods answer, and that thresholds are learnt on
    answered: list[str]
    # corpora that are cut into documents and indexed
    corpora: list[str]
    # the one of corpora that questions are answered from
    datastore: str | None
    # those of corpora whose test queries language models are scored on
    scored: list[str]
    # sets of questions with passages that retrievers are compared on
    passages: list[str]
    # sets of questions with passages that the ways given and replug_given answer from
    given_passages: list[Literal["retrieval"]] = Field(default_factory=list)
    # what cuts corpora into tokens
    tokenizers: list[Literal["documents"]]
    # those of retrievers that LSR tunes to the language model lsr.lm
    tuned: list[str]
    # rules by which answers with or without retrieval are chosen
    rules: list[Literal["popularity"]]


class ModelSize(Section):
    """The size of a model that is not on this machine yet."""

    # number of weights that each token meets: an encoder's without its embeddings
    parameters: PositiveInt
    # width of the model's vectors
    hidden_size: PositiveInt


class Plan(Section):
    """What `longtail plan` reckons with where nothing on this machine tells; no stage reads it."""

    # corpus -> about how many documents it will have
    documents: dict[str, PositiveInt] = Field(default_factory=dict)
    # data set -> about how many GB of it are downloaded
    downloads_gb: dict[str, PositiveFloat] = Field(default_factory=dict)
    # name of a model on the Hugging Face Hub -> its size
    models: dict[str, ModelSize] = Field(default_factory=dict)


class Params(Section):
    # the name of the profile that params.yaml was composed from
    profile: str
    # every random draw is a hash of this and of the id of what is drawn
    seed: int
    # code of the language of names, questions, page views, prompts and BM25's terms: a file of
    # pipelines/language/languages
    language: str
    # an e-mail address or web page, for the User-Agent, as Wikimedia's policy asks
    contact: str | None
    compute: Compute
    ingest: Ingest
    fetch: Fetch
    wikidata: Wikidata
    popularity: Popularity
    popqa: PopQA
    c4: C4
    tokenizer: Tokenizer
    # how each corpus of parts.corpora is read
    corpus: dict[str, Corpus]
    chunk: Chunk
    queries: Queries
    windows: Windows
    lm: dict[LMName, LM]
    # the language models that run; the first is the main one, which the report's findings are of
    lms: list[LMName]
    retriever: dict[RetrieverName, Retriever]
    # the retrievers that run; the first is the main one (methods.py)
    retrievers: list[RetrieverName]
    parts: Parts
    # methods by which the language models answer question sets (methods.py:METHODS)
    ways: list[str]
    plan: Plan = Field(default_factory=Plan)
    lsr: LSR
    logprobs: Logprobs
    replug: Replug
    answer: Answer
    thresholds: Thresholds
    report: Report
