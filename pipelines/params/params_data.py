"""The params of machines and data: sources, question sets and corpora."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pipelines.params.params_types import Address, Count, Month, Section, Share


class Compute(Section):
    threads: PositiveInt  # threads of each process; trained weights depend on it, so it is not taken from the machine
    workers: PositiveInt  # processes at once: stages side by side, or one stage's shards; never changes a result
    executor: Literal["local", "dask"]  # what runs shards: processes on this machine, or a Dask cluster
    dask: Annotated[str, Field(pattern=r"^(\w+://)?[^\s/]+:\d+$")] | None  # dask: address of the scheduler
    device: Literal["cpu", "cuda"]  # where torch computes; FAISS and DuckDB stay on the CPU


class Ingest(Section):
    max_reject_share: Share  # a larger share of rejected rows stops the stage
    memory_gb: PositiveFloat  # GB for joins and name searches; larger ones spill to disk or take several passes


class Pages(Section):
    """Wikipedia's pages about the subjects of the published PopQA, from the MediaWiki API in place of a dump."""

    api: Address  # of MediaWiki's api.php
    max_subjects: PositiveInt | None  # subjects, at most, drawn by hash; questions about others are left out; null: all
    namesakes: bool  # also pages of the subjects' names with another qualifier, as Mercury (planet) for Mercury
    others: Annotated[int, Field(ge=0)]  # further pages: those that follow subjects in the order of titles


class Fetch(Section):
    source: Literal["world", "files", "wikimedia"]  # the generated world, files on disk, or Wikimedia's servers
    root: str | None  # files: the folder that they lie in
    files: dict[str, list[Address]]  # data set of the catalogue -> globs below root (files) or URLs (wikimedia)
    days_apart: Count  # days between dates of Wikidata, Wikipedia and page views without a warning; a late dump's wait
    redirects: list[str]  # hosts that a download may be sent on to, besides its own and those of the other URLs
    pages: Pages | None  # wikimedia: pages to ask for in place of a dump of Wikipedia; null: none


class World(Section):
    """The offline sample: one fictional world written in the sources' formats."""

    entities: PositiveInt  # entities of the world; each has an article
    lm_documents: PositiveInt  # documents in the C4 shards, which the tiny language model is trained on
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
    months: Annotated[int, Field(ge=1, le=12)] = 1  # months of page views, up to `month`, for their mean and spread
    agents: Literal["all-agents", "user"]  # whose views count: all, as in the published PopQA, or without bots


class PopQA(Section):
    source: Literal["wikidata", "published", "both"]  # built from triples, the published set, or both
    sampling: Literal["term_frequency", "all"]  # triples drawn by term frequency up to per_relation, or all
    per_relation: PositiveInt  # term_frequency: questions of a relation, at most
    mix: Literal["drawn", "published"]  # shares of relations among triples' questions: as drawn, or the published set's
    total: PositiveInt | None  # questions from triples, at most; null: no bound, with mix published 14,267
    refresh: bool  # published questions get the views and answers of popularity.month, by their Wikidata ids
    train_share: Share  # share of subjects whose questions LSR may learn from; they are never evaluated


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
    query_share: Share  # share of source documents that become language-modelling queries in place of documents
    test_files: str | None  # glob of the file names of a published test split; null: queries.test_share
    validation_files: str | None  # glob of the file names of a published validation split

    @property
    def has_queries(self) -> bool:
        return self.query_share > 0 or self.test_files is not None or self.validation_files is not None


class Chunk(Section):
    tokens: PositiveInt  # tokens of a document
    min_tokens: PositiveInt  # tokens of a document, at least; a shorter last piece joins the one before it


class Queries(Section):
    """Language-modelling queries to learn from and to validate on, anywhere in the source documents kept for them."""

    context_tokens: PositiveInt  # tokens of a query that are given
    continuation_tokens: PositiveInt  # tokens of a query that are predicted
    validation_share: Share  # share of the queries' source documents for validation
    test_share: Share  # share of the queries' source documents for tests; what remains is for training
    per_document: PositiveInt  # queries of a source document, at most, drawn by hash
    max_per_split: PositiveInt  # queries of a split, at most, drawn by hash


class Windows(Section):
    """Rolling windows over whole test documents: each predicts the tokens that follow those of the one before."""

    context_tokens: PositiveInt  # tokens before a window that are searched with, and shown to the language model
    stride_tokens: PositiveInt  # tokens that a window predicts; documents are retrieved anew for each window
    first: bool  # predict a document's first context_tokens as well, which nothing can be retrieved for
