"""Every number the pipeline depends on, typed.

The values live in conf/ (composed into params.yaml by a profile, read by params_file); this module only says what is
allowed.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from pipelines import catalogue, methods

PositiveInt = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
Month = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]
LM_NAME = r"^[a-z0-9][a-z0-9_-]*$"  # of a folder, and of a key that DVC can follow: no dots
LMName = Annotated[str, Field(pattern=LM_NAME)]
RetrieverName = Annotated[str, AfterValidator(methods.check_name)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


def _known(names: list[str], known: list[str]) -> list[str]:
    """The names, each once and all of them known; pydantic turns the ValueError into the user's error."""
    if len(set(names)) < len(names) or not set(names) <= set(known):
        raise ValueError(f"should be names, each once, of: {', '.join(known)}")
    return names


def _filled_by_a_document(template: str) -> str:
    if not re.fullmatch(r"[^{}]*(\{title\}[^{}]*)?\{text\}[^{}]*", template):
        raise ValueError("should have {text} once, and no other braces but {title} once before it")
    return template


def _without_a_secret(address: str) -> str:
    """An address, which ends up in params.yaml, dvc.lock, MLflow and releases; or a glob, in `fetch.files`."""
    if "://" in address:
        parts = urlsplit(address)
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
        if "@" in parts.netloc or any(map(SECRET.search, names)):
            raise ValueError("should have no password or token, which files would keep; put it into ~/.netrc")
    return address


SECRET = re.compile(  # names in a query
    r"token|secret|passw|signature|credential|^(sig|auth|authorization)$|key(id)?$", re.IGNORECASE
)
Address = Annotated[str, AfterValidator(_without_a_secret)]
Template = Annotated[str, AfterValidator(_filled_by_a_document)]  # filled by retrieval/documents.py


class Compute(Section):
    threads: PositiveInt  # threads of each process; trained weights depend on it, so it is not taken from the machine
    workers: PositiveInt  # processes at once: stages side by side, or one stage's shards; never changes a result
    executor: Literal["local", "dask"]  # what runs shards: processes on this machine, or a Dask cluster
    dask: Annotated[str, Field(pattern=r"^(\w+://)?[^\s/]+:\d+$")] | None  # dask: address of the scheduler
    device: Literal["cpu", "cuda"]  # where torch computes; FAISS and DuckDB stay on the CPU

    @field_validator("dask")
    @classmethod
    def _address_of_the_scheduler(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("executor") == "dask":
            raise ValueError("should be the scheduler's address, as tcp://host:8786, with compute.executor: dask")
        return value


class Ingest(Section):
    max_reject_share: Share  # a larger share of rejected rows stops the stage
    memory_gb: PositiveFloat  # GB for joins and name searches; larger ones spill to disk or take several passes
    record_mb: PositiveFloat  # MB of one record, as a line or an article; four times as many of a file read as a whole
    rejects_kept: PositiveInt  # rejected rows of an input that are kept with their reasons; further ones are counted


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
    redirects: list[str]  # hosts that a download may be sent on to, besides its own and those of the other URLs
    pages: Pages | None  # wikimedia: pages to ask for in place of a dump of Wikipedia; null: none


class World(Section):
    """The offline sample: one fictional world written in the sources' formats."""

    entities: PositiveInt  # entities of the world; each has an article
    month: Month  # month of the page views, YYYY-MM
    lm_documents: PositiveInt  # documents in the C4 shards, which the tiny language model is trained on
    lm_shards: PositiveInt  # C4 files that the documents are written to
    lm_mixture: dict[Literal["world", "reading", "distractor"], Share]  # share of each kind among the C4 documents
    pile_documents: PositiveInt  # Pile documents about each entity
    questions: PositiveInt  # in each of EntityQuestions, MMLU, Natural Questions and TriviaQA
    popularity_mean: float  # mean of log10 of the monthly page views
    popularity_sd: PositiveFloat  # standard deviation of log10 of the monthly page views
    mention_exponent: PositiveFloat  # mentions in the C4 documents grow as popularity to this power
    namesake_share: Share  # share of entities that have the name of a more popular entity


class Wikidata(Section):
    source: Literal["dump", "query_service"]  # the dump under data/raw, or a SPARQL endpoint
    query_service: Address  # of a SPARQL endpoint
    api: Address  # of the entity API (MediaWiki's api.php)
    page: PositiveInt  # query_service: statements per request; halved when the service runs out of time


class Entities(Section):
    missing_objects: bool  # ask the entity API for the names of objects that data/raw/wikidata lacks
    excerpts: bool  # a dump may end without its ], as a dump's first lines do; otherwise such a dump counts as cut


class Popularity(Section):
    source: Literal["dump", "api"]  # the monthly dump, or a REST API asked page by page
    api: Address  # of the page views REST API
    redirects_api: Address  # api: of English Wikipedia's API, which says how moved articles were called
    month: Month  # month whose page views are the popularity, YYYY-MM
    agents: Literal["all-agents", "user"]  # whose views count: all, as in the published PopQA, or without bots


class PopQA(Section):
    source: Literal["wikidata", "published", "both"]  # built from triples, the published set, or both
    sampling: Literal["term_frequency", "all"]  # triples drawn by term frequency up to per_relation, or all
    per_relation: PositiveInt  # term_frequency: questions of a relation, at most
    train_share: Share  # share of subjects whose questions LSR may learn from; they are never evaluated


class C4(Section):
    sample_mb: PositiveInt  # megabytes of C4's text that names are counted in


class Tokenizer(Section):
    source: Literal["train", "pretrained"]  # trained here (byte-level BPE), or read
    path: str | None  # pretrained: local folder or Hub name
    revision: str | None  # pretrained from the Hub: a commit
    vocab_size: PositiveInt | None  # train: entries of the vocabulary
    text: list[str]  # train: the data sets under data/raw it learns from
    sample_mb: PositiveInt  # train: megabytes of that text

    @field_validator("text")
    @classmethod
    def _readable(cls, value: list[str]) -> list[str]:
        return _known(value, catalogue.names("documents"))


class CorpusOf(Section):
    documents: PositiveInt | None  # documents of the corpus, at most, drawn by hash; null: all
    weights: dict[str, PositiveFloat] | None  # subset -> weight in the draw of documents; others left out; null: all 1
    query_share: Share  # share of source documents that become language-modelling queries in place of documents
    test_files: str | None  # glob of the file names of a published test split; null: queries.test_share
    validation_files: str | None  # glob of the file names of a published validation split

    @property
    def has_queries(self) -> bool:
        return self.query_share > 0 or self.test_files is not None or self.validation_files is not None


class Chunk(Section):
    tokens: PositiveInt  # tokens of a document
    min_tokens: PositiveInt  # tokens that the last piece of a text needs to be a document; at most chunk.tokens
    short: Literal["merge", "drop"]  # what becomes of a last piece shorter than min_tokens

    @field_validator("min_tokens")
    @classmethod
    def _no_more_than_tokens(cls, value: int, info: ValidationInfo) -> int:
        if value > info.data.get("tokens", value):
            raise ValueError(f"should be at most chunk.tokens, {info.data['tokens']}")
        return value


class Queries(Section):
    """Language-modelling queries to learn from and to validate on, anywhere in the source documents kept for them."""

    context_tokens: PositiveInt  # tokens of a query that are given
    continuation_tokens: PositiveInt  # tokens of a query that are predicted
    validation_share: Share  # share of the queries' source documents for validation
    test_share: Share  # share of the queries' source documents for tests; what remains is for training
    per_document: PositiveInt  # queries of a source document, at most, drawn by hash
    max_per_split: PositiveInt  # queries of a split, at most, drawn by hash
    near_duplicate: Annotated[float, Field(gt=0, le=1)]  # Jaccard similarity from which a query's document is dropped

    @field_validator("test_share")
    @classmethod
    def _no_more_than_all(cls, value: float, info: ValidationInfo) -> float:
        if value + info.data.get("validation_share", 0.0) > 1:
            raise ValueError(f"should be at most 1 with queries.validation_share, {info.data['validation_share']}")
        return value


class Windows(Section):
    """Rolling windows over whole test documents: each predicts the tokens that follow those of the one before."""

    context_tokens: PositiveInt  # tokens before a window that are searched with, and shown to the language model
    stride_tokens: PositiveInt  # tokens that a window predicts; documents are retrieved anew for each window
    first: bool  # predict a document's first context_tokens as well, which nothing can be retrieved for


class Phase(Section):
    until: Share  # share of all steps after which the phase ends
    weights: dict[str, float]  # kind of text -> share of the phase's tokens; empty: as they come


class LMTraining(Section):
    hidden_size: PositiveInt  # width of the Llama-like model
    layers: PositiveInt  # layers
    heads: PositiveInt  # attention heads
    intermediate_size: PositiveInt  # width of the feed-forward layers
    positions: PositiveInt  # tokens that the model reads at once
    steps: PositiveInt  # steps of AdamW
    batch_size: PositiveInt  # sequences in a step
    learning_rate: PositiveFloat  # highest learning rate, after warm-up and before decay
    attention_dropout: Annotated[float, Field(ge=0, lt=1)]  # share of attention weights dropped in training
    answer_weight: PositiveFloat  # weight of an answer's tokens in the loss; other tokens weigh 1
    dtype: Literal["fp32", "bf16"]  # number format of matrix products
    phases: list[Phase]  # what is learnt when


class LMServer(Section):
    """A server with OpenAI's completions or chat interface; its key, if it wants one, is $LONGTAIL_API_KEY."""

    url: Annotated[Address, Field(pattern=r"^https?://\S+$")]  # base address, as https://host/v1; without a password
    max_tokens: PositiveInt  # tokens of prompt and continuation; vLLM and llama.cpp: one less than their context
    tokenizer: str | None  # local folder or Hub name (at lm.<name>.revision); null: prompts are sent as text, uncut
    batch_size: PositiveInt  # prompts in a request; a chat's request has one
    concurrency: PositiveInt  # requests at the same time, by each stage
    logprobs: PositiveInt  # likeliest next tokens to ask for when one is chosen
    extra: dict[str, bool | int | float | str]  # further fields of each request, which the server understands
    requests_per_minute: PositiveInt | None  # limit for all stages together; null: none
    tokens_per_minute: PositiveInt | None  # limit for all stages together; null: none
    prompt_price: Annotated[float, Field(ge=0)]  # price of 1,000 prompt tokens, in any currency
    completion_price: Annotated[float, Field(ge=0)]  # price of 1,000 generated tokens, in the same currency
    max_cost: PositiveFloat | None  # limit on the cost of all requests to this model, over all runs; null: none

    @field_validator("max_cost")
    @classmethod
    def _with_prices(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and not info.data.get("prompt_price"):
            raise ValueError("should be null where prompt_price is 0: nothing would ever be counted")
        return value


class LM(Section):
    source: Literal["train", "pretrained", "http"]  # trained here, local weights, or a server
    path: str | None  # pretrained: local folder or Hub name; http: model name
    revision: str | None  # commit on the Hub, of a pretrained model or of a server's tokenizer
    http: LMServer | None  # http: the server
    dtype: Literal["fp32", "bf16", "int8"]  # number format of the weights; bf16 and int8 are first compared with fp32
    batch_tokens: PositiveInt  # tokens in one forward pass, at most
    training: LMTraining | None  # train: how
    chat: bool  # answers: prompts are a user's message, by the model's own template or the server's chat interface
    n_shots: Count | None  # demonstrations before a question; null: answer.n_shots

    @field_validator("http")
    @classmethod
    def _where_it_is_served(cls, value: LMServer | None, info: ValidationInfo) -> LMServer | None:
        if info.data.get("source") == "http" and not (value and info.data.get("path")):
            raise ValueError("should be the server's settings, beside path, the model's name there, with source: http")
        return value

    @field_validator("chat")
    @classmethod
    def _as_it_can_be_asked(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("source") == "train":
            raise ValueError("should be false with source: train: such a model has no chat template")
        if value and info.data.get("http") and info.data["http"].tokenizer:
            raise ValueError("should be false where http.tokenizer is set: the chat interface takes texts, not tokens")
        return value


class RetrieverTraining(Section):
    hidden_size: PositiveInt  # width of the BERT-like encoder
    layers: PositiveInt  # layers
    heads: PositiveInt  # attention heads
    steps: PositiveInt  # steps of AdamW on pairs of crops of a document
    batch_size: PositiveInt  # pairs in a step; crops of other documents are the negatives
    learning_rate: PositiveFloat  # highest learning rate
    temperature: PositiveFloat  # temperature of the contrastive loss


class Retriever(Section):
    """Any BERT-like encoder; docs/retrievers.md shows what Contriever, DPR, BERT and E5 need."""

    source: Literal["train", "pretrained"]  # trained here, or read
    path: str | None  # pretrained: local folder or Hub name
    revision: str | None  # commit of path on the Hub
    query_path: str | None  # pretrained: another encoder for queries (DPR); null: the same as for documents
    query_revision: str | None  # commit of query_path on the Hub
    pooling: Literal["mean", "cls"]  # mean of all tokens' last hidden states, or the first token's
    similarity: Literal["cosine", "dot"]  # how a query's and a document's vectors are compared
    query_prefix: str  # goes before every query, as E5 and BGE need
    document: Template  # how a document's {title} and {text} are read; where there is no title, what stands from
    # {title} to {text} falls away
    dtype: Literal["auto", "bf16", "fp32"]  # number format; auto: bf16 if the device has it and it is as good as fp32
    batch_tokens: PositiveInt  # tokens in one forward pass, at most
    max_tokens: PositiveInt  # tokens of a text that are read
    training: RetrieverTraining | None  # train: how

    @field_validator("pooling")
    @classmethod
    def _as_trained(cls, value: str, info: ValidationInfo) -> str:
        if value != "mean" and info.data.get("source") == "train":
            raise ValueError("should be mean with source: train, which learns that")
        return value


class Reranker(Section):
    """A cross-encoder, as MS MARCO's MiniLM: a sequence classifier of a query and a document with one or two logits."""

    path: str  # local folder or Hub name
    revision: str | None  # commit of path on the Hub
    max_tokens: PositiveInt  # tokens of query and document together that are read
    batch_tokens: PositiveInt  # tokens in one forward pass, at most
    candidates: PositiveInt  # the best documents of the main retriever, untuned, that it reads for each query


class Index(Section):
    """Vector indexes and BM25. Where a key is null, Longtail chooses by the size of the corpus."""

    kind: Literal["auto", "flat", "ivf", "ivf_pq", "ivf_flat", "hnsw"]  # ivf: lists of 4-bit codes
    memory_gb: PositiveFloat  # GiB that building or searching an index may take
    recall_target: Annotated[float, Field(gt=0, lt=1)]  # share of the exact top 10 that a search must find
    training_sample: PositiveInt | None  # documents that lists and codes are learnt on
    nlist: PositiveInt | None  # lists that similar documents are grouped into
    nprobe: PositiveInt | None  # lists that a search looks at; hnsw: candidates that it keeps
    refine: PositiveInt | None  # candidates per document asked for that are compared by their exact embeddings
    bm25_k1: PositiveFloat  # how soon more occurrences of a term stop counting
    bm25_b: Share  # how much a document's length counts


class LSR(Section):
    lm: LMName | None  # of lms: the language model that is learnt from; null where parts.tuned is empty
    queries: Literal["lm", "qa", "mixed"]  # what LSR learns from: language-modelling queries, questions, or both
    lm_queries: Count  # language-modelling queries of the train split, at most; 0 where queries is qa
    qa_queries: Count  # questions of the train split, at most; 0 where queries is lm
    validation_queries: Count  # validation queries of each kind, at most; never learnt from; 0 only where keep is last
    validation_share: Share  # share of the train split's subjects whose questions validate
    top_k: PositiveInt  # documents of a query; both distributions are over them
    gamma: PositiveFloat  # temperature of the retriever's P_R
    beta: PositiveFloat  # temperature of the language model's Q
    kl: Literal["q_p", "p_q"]  # KL(Q || P_R) or KL(P_R || Q)
    likelihood: Literal["mean_logprob", "sum_logprob", "prob"]  # of a continuation; Q is its softmax over the documents
    learning_rate: PositiveFloat  # Adam's learning rate after warm-up
    warmup: Share  # share of the steps in which the learning rate rises
    decay: Literal["constant", "linear"]  # of the learning rate after warm-up: none, or evenly to 0 after the last step
    batch_size: PositiveInt  # queries in a step
    steps: PositiveInt  # training steps
    refresh_steps: PositiveInt  # steps after which the corpora are embedded and indexed anew
    refresh: Literal["sync", "async"]  # a round of refresh_steps learns from documents that the encoder found at its
    # start, or with async at the start of the round before, in a second process: refresh_steps further behind training
    patience: (
        PositiveInt | None
    )  # refreshes without better validation after which training ends; null: it never ends early
    keep: Literal["best", "last"]  # the encoder that is kept: the one that validates best, or the last step's
    checkpoint_steps: PositiveInt  # steps between checkpoints, which a killed run goes on from
    dtype: Literal["fp32", "bf16"]  # number format of matrix products; weights and Adam stay fp32
    micro_batch: PositiveInt | None  # texts embedded with gradients at once; null: the whole batch
    keep_scores: bool  # keep the language model's scores for later trainings; their last digits may then differ
    max_cost: (
        PositiveFloat | None
    )  # limit on an estimate, made before training, of what a server's scores cost; null: none

    @field_validator("lm_queries", "qa_queries")
    @classmethod
    def _some_of_the_kind_learnt_from(cls, value: int, info: ValidationInfo) -> int:
        kind = info.field_name.removesuffix("_queries")
        if value == 0 and info.data.get("queries") in (kind, "mixed"):
            raise ValueError(f"should be at least 1 with lsr.queries: {info.data['queries']}")
        return value

    @field_validator("keep")
    @classmethod
    def _by_validation(cls, value: str, info: ValidationInfo) -> str:
        if value == "best" and info.data.get("validation_queries") == 0:
            raise ValueError("should be last with lsr.validation_queries: 0, which choose no encoder")
        if value == "last" and info.data.get("patience"):
            raise ValueError("should be best with lsr.patience, which ends training by validation")
        return value


class Datastore(Section):
    """The curve of bits per byte over parts of a corpus, with the untuned dense retriever."""

    shares: list[Annotated[float, Field(gt=0, lt=1)]]  # shares of the documents; smaller ones lie within larger ones
    max_queries: PositiveInt  # scored queries that the curve is measured on


class Logprobs(Section):
    """The log-probabilities that language models give to test queries, with as many documents as ensembles may need."""

    top_k: PositiveInt  # documents by each retriever, and as many random ones
    max_queries: PositiveInt  # test queries of each corpus, drawn by hash
    datastore: Datastore  # the curve over sizes of the corpus
    controls: bool  # also score the replug.top_k documents in one prompt, and more of the text instead of a document


class Replug(Section):
    """REPLUG's ensemble, for scored texts and for answers alike."""

    top_k: PositiveInt  # documents in an ensemble; at most logprobs.top_k
    temperature: PositiveFloat  # of lambda, the softmax of the documents' similarities
    mixture: Literal["token_mixture", "sequence_mixture"]  # mixes probabilities of each next token, or of whole texts
    vote: bool  # answers: true generates one with each document and elects one of them, the way for models on servers


class Answer(Section):
    max_questions: PositiveInt  # per data set, drawn by hash
    n_shots: Count  # demonstrations before the question, where lm.<name>.n_shots is null
    new_tokens: PositiveInt  # at most, of an answer
    passages: PositiveInt  # bm25, dense, lsr: passages in a prompt, the best first
    passage: Template  # how the language model reads a retrieved passage's {title} and {text}; as in retriever.document
    passage_tokens: PositiveInt  # genread: of the passage that the language model writes itself, at most

    def of(self, lm: LM) -> Answer:
        """These settings with the language model's own number of demonstrations, if it has one."""
        return self if lm.n_shots is None else self.model_copy(update={"n_shots": lm.n_shots})


Answers = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9_-]*/)?[a-z0-9][a-z0-9_-]*$")]  # METHOD or LM/METHOD


class Pair(Section):
    """Two ways to answer that a threshold chooses between, besides closed-book with each other method.

    Each is METHOD, of each language model, or LM/METHOD.
    """

    popular: Answers  # from the threshold on
    tail: Answers  # below the threshold

    @field_validator("tail")
    @classmethod
    def _another(cls, value: str, info: ValidationInfo) -> str:
        if value == info.data.get("popular"):
            raise ValueError("should be other answers than popular's")
        return value


class Thresholds(Section):
    pairs: list[Pair]  # further than the closed-book answer above and each other method below
    search: Literal["exact", "bins", "shrunk"]  # the search in use; all three are reported
    splits: PositiveInt  # random splits into a training side and a held-out side
    split_by: Literal["subject", "question"]  # what splits draw: subjects with all their questions, or questions
    train_share: Share  # share of the subjects, or questions, that thresholds are fitted on
    pseudo_questions: PositiveFloat | None  # shrunk: weight of the curve pooled over relations; null: estimated
    quantiles: PositiveInt  # shrunk: candidate cuts
    min_questions: PositiveInt  # relations with fewer questions use the pooled threshold
    cost: Literal["retrievals", "tokens", "money"]  # unit of cost: retrievals, thousands of tokens, or money
    cost_weight: Annotated[float, Field(ge=0)]  # accuracy that a unit of cost must earn


class Tasks(Section):
    max_questions: PositiveInt  # per task
    mmlu_query: Literal["question_and_options", "question"]  # what documents are searched with
    mmlu_shots: Count  # demonstrations of the same subject
    qa_shots: Count  # demonstrations for Natural Questions and TriviaQA, from their training files
    new_tokens: PositiveInt  # at most, of an answer to them


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
    ensembles: list[str]  # of retrievers: REPLUG answers question sets with the documents of these, untuned
    tuned: list[str]  # of retrievers: LSR tunes these to the language model lsr.lm
    rerankers: list[Literal["cross-encoder"]]  # what puts the main retriever's best documents into another order
    hybrids: list[str]  # of retrievers: BM25's documents and those of these, untuned, fused by reciprocal rank
    rules: list[Literal["popularity"]]  # by which the closed-book or the augmented answer is chosen

    @field_validator("question_sets", "answered", "corpora", "benchmarks", "passages")
    @classmethod
    def _in_the_catalogue(cls, value: list[str], info: ValidationInfo) -> list[str]:
        uses = {"question_sets": "questions", "corpora": "documents", "benchmarks": "benchmark"}
        return _known(value, catalogue.names(uses.get(info.field_name, info.field_name)))


class Params(Section):
    profile: str  # the name it was composed from
    seed: int  # every random draw is a hash of this and of the id of what is drawn
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
    reranker: Reranker | None  # what parts.rerankers runs; null: none
    parts: Parts
    lm_text: Literal["raw/c4", "corpus"]  # what a language model is trained on: C4, or the corpora
    index: Index
    lsr: LSR
    logprobs: Logprobs
    replug: Replug
    answer: Answer
    thresholds: Thresholds
    tasks: Tasks
    report: Report

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

    @field_validator("lms")
    @classmethod
    def _in_the_section_lm(cls, value: list[str], info: ValidationInfo) -> list[str]:
        return _known(value, list(info.data.get("lm", {})))

    @field_validator("retrievers")
    @classmethod
    def _in_the_section_retriever(cls, value: list[str], info: ValidationInfo) -> list[str]:
        return _known(value, list(info.data.get("retriever", {})))

    @field_validator("parts")
    @classmethod
    def _complete(cls, parts: Parts, info: ValidationInfo) -> Parts:
        if {"corpus", "queries", "lms", "retrievers", "popqa"} <= set(info.data):
            tested = [
                name
                for name, corpus in info.data["corpus"].items()
                if corpus.test_files or (corpus.query_share and info.data["queries"].test_share)
            ]
            names = info.data["lms"], info.data["retrievers"]
            if parts.rerankers and not (info.data.get("reranker") and info.data["retrievers"]):
                raise ValueError("rerankers: need the section reranker, and one of retrievers")
            _check_parts(parts, info.data["corpus"], tested, *names, info.data["popqa"])
        return parts


def _check_parts(
    parts: Parts, corpus: dict[str, CorpusOf], tested: list[str], lms: list[str], retrievers: list[str], popqa: PopQA
) -> None:
    """Raise ValueError naming the first list of `parts` that lacks what another one needs; `tested` have test texts."""
    tested = [name for name in parts.corpora if name in tested]
    published = {"popqa"} if popqa.source == "published" else set()
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
        *(
            (set(names) <= set(retrievers) and len(set(names)) == len(names), f"{key}: should be among retrievers")
            for key, names in (("ensembles", parts.ensembles), ("tuned", parts.tuned), ("hybrids", parts.hybrids))
        ),
        (parts.corpora or not parts.tuned, "tuned: a retriever is tuned on corpora, and there are none"),
        (lms or not (parts.tuned or parts.scored or parts.benchmarks), "tuned, scored, benchmarks: need one of lms"),
        (parts.answered or not parts.rules, "rules: thresholds need a question set in answered"),
        (
            not answering or parts.datastore in parts.corpora,
            "datastore: should be the one of corpora that answers questions",
        ),
    ]
    for holds, problem in rules:
        if not holds:
            raise ValueError(problem)
