"""Every number the pipeline depends on, typed.

The values live in conf/ (composed into params.yaml by a profile, read by params_file); this module only says what is
allowed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

PositiveInt = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
Month = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]
LMName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]  # a folder, and a key that DVC can follow: no dots


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class Compute(Section):
    threads: PositiveInt  # a process's: weights depend on it, so it is never taken from the machine
    workers: PositiveInt  # processes at once, of stages side by side or of one's shards; never part of the result
    executor: Literal["local", "dask"]  # whose processes shards are mapped over
    dask: Annotated[str, Field(pattern=r"^(\w+://)?[^\s/]+:\d+$")] | None  # the scheduler's address
    device: Literal["cpu", "cuda"]  # of torch; FAISS and DuckDB stay on the CPU

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
    source: Literal["world", "files", "wikimedia"]  # the generated world, files on disk, or Wikimedia's servers
    root: str | None  # source: files: where the files lie
    files: dict[str, list[str]]  # data set under data/raw -> globs below root (files) or URLs (wikimedia)


class World(Section):
    """The offline sample: one fictional world written in the sources' formats."""

    entities: PositiveInt  # with an article each
    month: Month  # of the page views
    lm_documents: PositiveInt  # documents in the C4 shards, which the tiny language model is trained on
    lm_shards: PositiveInt  # files they are written to
    lm_mixture: dict[Literal["world", "reading", "distractor"], Share]  # shares of those documents
    pile_documents: PositiveInt  # of each entity
    questions: PositiveInt  # in each of EntityQuestions, MMLU, Natural Questions and TriviaQA
    popularity_mean: float  # of log10 of the monthly page views
    popularity_sd: PositiveFloat  # likewise
    mention_exponent: PositiveFloat  # mentions in the language model's text ~ popularity ** this
    namesake_share: Share  # entities that share a more popular one's name


class Wikidata(Section):
    source: Literal["dump", "query_service"]  # the dump under data/raw, or a SPARQL endpoint
    query_service: str  # address of a SPARQL endpoint
    api: str  # address of the entity API (MediaWiki's api.php)
    page: PositiveInt  # query_service: statements asked for at once; halved where the service runs out of time


class Entities(Section):
    missing_objects: bool  # ask the entity API for the names of objects that data/raw/wikidata lacks


class Popularity(Section):
    source: Literal["dump", "api"]  # the monthly dump, or a REST API asked page by page
    api: str  # address of the page views REST API
    month: Month  # YYYY-MM, whose page views count
    agents: Literal["all-agents", "user"]  # all, as published, or without spiders and bots


class PopQA(Section):
    source: Literal["wikidata", "published", "both"]  # built from triples, the published set, or both
    sampling: Literal["term_frequency", "all"]  # up to the cap by weight of term frequency, or every triple
    per_relation: PositiveInt  # cap
    train_share: Share  # of subjects set apart for LSR's questions, never evaluated


class C4(Section):
    sample_mb: PositiveInt  # megabytes of C4's text that names are counted in


class Tokenizer(Section):
    source: Literal["train", "pretrained"]  # trained here (byte-level BPE), or read
    path: str | None  # pretrained: local folder or Hub name
    revision: str | None  # pretrained from the Hub: a commit
    vocab_size: PositiveInt | None  # train
    text: list[Literal["c4", "pile", "wikipedia"]]  # train: the data sets under data/raw it learns from
    sample_mb: PositiveInt  # train: megabytes of that text


class CorpusOf(Section):
    documents: PositiveInt | None  # at most, of source documents drawn by hash; null: all
    weights: dict[str, PositiveFloat] | None  # subset -> weight in that draw; subsets not named stay out; null: all 1
    query_share: Share  # of source documents kept out of the corpus, for language-modelling queries
    query_files: str | None  # glob on names of files, instead: theirs are all test queries, from beginning to end

    @field_validator("query_files")
    @classmethod
    def _one_way_to_queries(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("query_share"):
            raise ValueError("should be null where query_share is not 0: one of them says which documents are queries")
        return value

    @property
    def has_queries(self) -> bool:
        return self.query_share > 0 or self.query_files is not None


class Corpus(Section):
    wikipedia: CorpusOf
    pile: CorpusOf
    wikitext: CorpusOf


class Chunk(Section):
    tokens: PositiveInt  # of the main language model, in a document
    min_tokens: PositiveInt  # at most tokens
    short: Literal["merge", "drop"]  # a last piece shorter than min_tokens

    @field_validator("min_tokens")
    @classmethod
    def _no_more_than_tokens(cls, value: int, info: ValidationInfo) -> int:
        if value > info.data.get("tokens", value):
            raise ValueError(f"should be at most chunk.tokens, {info.data['tokens']}")
        return value


class Queries(Section):
    context_tokens: PositiveInt  # of a language-modelling query, what is known
    continuation_tokens: PositiveInt  # and what is to be predicted
    validation_share: Share  # of the query source documents
    test_share: Share  # with validation_share at most 1; the rest is for training
    per_document: PositiveInt  # at most, from the beginning of a source document; no bound under query_files
    max_per_split: PositiveInt  # queries, drawn by hash
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
    hidden_size: PositiveInt  # this and the next four: a Llama's shape
    layers: PositiveInt
    heads: PositiveInt
    intermediate_size: PositiveInt
    positions: PositiveInt
    steps: PositiveInt  # of AdamW
    batch_size: PositiveInt  # sequences
    learning_rate: PositiveFloat  # the highest: after warm-up, before decay
    attention_dropout: Annotated[float, Field(ge=0, lt=1)]  # share of attention weights
    answer_weight: PositiveFloat  # of an answer's tokens in the loss, others 1
    dtype: Literal["fp32", "bf16"]  # of the products, by autocast
    phases: list[Phase]


class LMServer(Section):
    """A server with OpenAI's completions interface; its key, if it wants one, is $LONGTAIL_API_KEY."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]  # base address, as https://host/v1; without a password
    max_tokens: PositiveInt  # of prompt and continuation together; vLLM and llama.cpp: one less than their context
    tokenizer: str | None  # the model's: local folder or Hub name (at lm's revision); null: prompts go as texts, uncut
    batch_size: PositiveInt  # prompts in a request
    concurrency: PositiveInt  # requests at the same time, of each stage
    logprobs: PositiveInt  # likeliest next tokens to ask for, where one is to be chosen
    extra: dict[str, bool | int | float | str]  # more fields of each request: what the server has beyond the interface
    requests_per_minute: PositiveInt | None  # this and the next: of all stages together; null: no limit
    tokens_per_minute: PositiveInt | None
    prompt_price: Annotated[float, Field(ge=0)]  # of 1,000 tokens, in any currency
    completion_price: Annotated[float, Field(ge=0)]  # likewise
    max_cost: PositiveFloat | None  # of all that was ever asked of the model here (lm/ledger.py); null: no limit

    @field_validator("max_cost")
    @classmethod
    def _with_prices(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and not info.data.get("prompt_price"):
            raise ValueError("should be null where prompt_price is 0: nothing would ever be counted")
        return value


class LM(Section):
    source: Literal["train", "pretrained", "http"]  # trained here, local weights, or a server
    path: str | None  # pretrained: local folder or Hub name; http: model name
    revision: str | None  # pretrained from the Hub, and http's tokenizer: a commit
    http: LMServer | None  # http
    dtype: Literal["fp32", "bf16", "int8"]  # the latter two are compared with fp32 first (lm/weights.py)
    batch_tokens: PositiveInt  # upper bound of tokens in one forward pass
    training: LMTraining | None

    @field_validator("http")
    @classmethod
    def _where_it_is_served(cls, value: LMServer | None, info: ValidationInfo) -> LMServer | None:
        if info.data.get("source") == "http" and not (value and info.data.get("path")):
            raise ValueError("should be the server's settings, beside path, the model's name there, with source: http")
        return value


class RetrieverTraining(Section):
    hidden_size: PositiveInt  # this and the next two: a BERT's shape
    layers: PositiveInt
    heads: PositiveInt
    steps: PositiveInt  # of AdamW on pairs of crops of a document
    batch_size: PositiveInt  # pairs; the others' crops are the negatives
    learning_rate: PositiveFloat  # the highest
    temperature: PositiveFloat  # of the contrastive loss


class Retriever(Section):
    """Any BERT-like encoder: README shows what Contriever, DPR, BERT and E5 need."""

    source: Literal["train", "pretrained"]  # trained here, or read
    path: str | None  # pretrained: local folder or Hub name
    revision: str | None  # of path on the Hub: a commit
    query_path: str | None  # pretrained: another encoder, for queries only (DPR); null: one for both sides
    query_revision: str | None  # of query_path: a commit
    pooling: Literal["mean", "cls"]  # of the real tokens' last hidden states, or the first token's alone
    similarity: Literal["cosine", "dot"]  # of a query's and a document's vector
    query_prefix: str  # goes before every query, as in E5 and BGE
    document_prefix: str
    dtype: Literal["auto", "bf16", "fp32"]  # of inference; auto: bf16 where the device has it, if as good as fp32
    batch_tokens: PositiveInt  # upper bound of tokens in one forward pass
    max_tokens: PositiveInt  # read of a text
    training: RetrieverTraining | None

    @field_validator("pooling")
    @classmethod
    def _as_trained(cls, value: str, info: ValidationInfo) -> str:
        if value != "mean" and info.data.get("source") == "train":
            raise ValueError("should be mean with retriever.source: train, which learns that")
        return value


class Index(Section):
    """Vector indexes and BM25; null: chosen by the corpus and its embeddings."""

    kind: Literal["auto", "flat", "ivf", "ivf_pq", "ivf_flat", "hnsw"]  # ivf: 4-bit codes, FAISS's fast scan
    memory_gb: PositiveFloat  # GiB that an index may take, building it or searching it
    recall_target: Annotated[float, Field(gt=0, lt=1)]  # of the exact top 10, found for queries held out
    training_sample: PositiveInt | None  # documents that lists and codes are learnt from
    nlist: PositiveInt | None  # lists, by likeness, that the documents are put into
    nprobe: PositiveInt | None  # lists that a search looks at; hnsw: documents that it keeps in sight
    refine: PositiveInt | None  # candidates by their codes, for each document asked for, compared by their embeddings
    bm25_k1: PositiveFloat  # saturation of a term's frequency
    bm25_b: Share  # share of a document's length that counts


class LSR(Section):
    queries: Literal["lm", "qa", "mixed"]  # language modelling, questions, or both
    lm_queries: PositiveInt  # at most, of the train split
    qa_queries: PositiveInt  # at most, of PopQA's train split
    validation_queries: PositiveInt  # at most, of each kind: judged before, between and after, never learnt from
    validation_share: Share  # of the subjects of PopQA's train split that judge
    top_k: PositiveInt  # documents of a query, that both distributions are over
    gamma: PositiveFloat  # temperature of the retriever's P_R
    beta: PositiveFloat  # temperature of the language model's Q
    kl: Literal["q_p", "p_q"]  # KL(Q || P_R) or KL(P_R || Q)
    likelihood: Literal["mean_logprob", "sum_logprob", "prob"]  # of a continuation: what Q is a softmax of
    learning_rate: PositiveFloat  # of Adam, after warm-up
    warmup: Share  # of the steps
    batch_size: PositiveInt  # queries
    steps: PositiveInt
    refresh_steps: PositiveInt  # after which the corpora are embedded and indexed anew
    refresh: Literal["sync", "async"]  # async: by a second process, one round ahead of the training it serves
    patience: PositiveInt | None  # refreshes without better validation that end training early; null: none do
    checkpoint_steps: PositiveInt  # a killed run goes on from the last of them, or the last refresh
    dtype: Literal["fp32", "bf16"]  # of the products in training, by autocast; weights and Adam stay fp32
    micro_batch: PositiveInt | None  # texts embedded with gradient at once, where a batch has more; null: all
    keep_scores: bool  # for other trainings: what one asks, no other does, but its last digits follow from the first
    max_cost: PositiveFloat | None  # of scores that a server sells, by an upper estimate before training


class Datastore(Section):
    """The curve of bits per byte over parts of a corpus, with the untuned dense retriever."""

    shares: list[Annotated[float, Field(gt=0, lt=1)]]  # of the documents, by hash, the smaller within the larger ones
    max_queries: PositiveInt  # of those scored


class Logprobs(Section):
    """What language models are asked about a corpus's test queries: as much as any ensemble of them may need."""

    top_k: PositiveInt  # documents of each retriever, and random ones
    max_queries: PositiveInt  # of each corpus, drawn by hash
    datastore: Datastore


class Replug(Section):
    """REPLUG's ensemble, for scored texts and for answers alike."""

    top_k: PositiveInt  # documents in an ensemble; at most logprobs.top_k
    temperature: PositiveFloat  # of lambda, the softmax of the documents' similarities
    mixture: Literal["token_mixture", "sequence_mixture"]  # mixes probabilities of each next token, or of whole texts
    vote: bool  # answers: true generates one with each document and elects one of them, the way for models on servers


class Answer(Section):
    max_questions: PositiveInt  # per data set, drawn by hash
    n_shots: Annotated[int, Field(ge=0)]  # demonstrations before the question
    new_tokens: PositiveInt  # at most, of an answer
    passages: PositiveInt  # bm25, dense, lsr: passages in a prompt, the best first
    passage_tokens: PositiveInt  # genread: of the passage that the language model writes itself, at most


class Thresholds(Section):
    search: Literal["exact", "bins", "shrunk"]  # the one in use (adaptive/searches.py); all are reported
    splits: PositiveInt  # seeded, into training and held-out subjects
    train_share: Share  # of the subjects
    pseudo_questions: PositiveFloat | None  # shrunk: weight of the pooled curve; null: estimated from the questions
    quantiles: PositiveInt  # shrunk: candidate cuts
    min_questions: PositiveInt  # relations with fewer use the pooled threshold
    cost: Literal["retrievals", "tokens", "money"]  # unit: one each; thousands read and written; by the server's prices
    cost_weight: Annotated[float, Field(ge=0)]  # accuracy that a unit of cost must earn: accuracy - cost_weight x cost


class Tasks(Section):
    max_questions: PositiveInt  # per task
    mmlu_shots: Annotated[int, Field(ge=0)]  # demonstrations of the same subject
    qa_shots: Annotated[int, Field(ge=0)]  # demonstrations for Natural Questions and TriviaQA
    new_tokens: PositiveInt  # at most, of an answer to them


class Report(Section):
    bootstrap: PositiveInt  # resamples of every interval


class Params(Section):
    profile: str  # the name it was composed from
    seed: int  # of every draw, with the id of what is drawn
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
    lm: dict[LMName, LM]
    lms: Annotated[list[LMName], Field(min_length=1)]  # those that run; the first is the main one (lm/open_lm.py)
    lm_text: Literal["raw/c4", "corpus"]  # read by trained language models; corpus: the Pile's, Wikipedia's documents
    retriever: Retriever
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

    @field_validator("lms")
    @classmethod
    def _known_once(cls, value: list[str], info: ValidationInfo) -> list[str]:
        known = info.data.get("lm", {})
        if len(set(value)) < len(value) or not set(value) <= set(known):
            raise ValueError(f"should be names, each once, of the section lm: {', '.join(known)}")
        return value
