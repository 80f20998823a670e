"""The types of params, which are checked when params.yaml is read, and the params of models, tuning and answers."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from pipelines import methods

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Month = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]
LMName = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
]  # of a folder, and of a key of DVC: no dots
RetrieverName = Annotated[str, AfterValidator(methods.check_name)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


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
            raise ValueError(
                "should have no password or token, which files would keep; put it into ~/.netrc"
            )
    return address


SECRET = re.compile(  # names in a query
    r"token|secret|passw|signature|credential|^(sig|auth|authorization)$|key(id)?$", re.IGNORECASE
)
Address = Annotated[str, AfterValidator(_without_a_secret)]
Template = Annotated[str, AfterValidator(_filled_by_a_document)]  # filled by retrieval/documents.py


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
    phases: list[Phase]  # what is learnt when


class LMServer(Section):
    """A server with OpenAI's completions or chat interface; its key, if it wants one, is $LONGTAIL_API_KEY."""

    url: Annotated[
        Address, Field(pattern=r"^https?://\S+$")
    ]  # base address, as https://host/v1; without a password
    max_tokens: (
        PositiveInt  # tokens of prompt and continuation; one less than the model reads at once
    )
    tokenizer: (
        str | None
    )  # local folder or Hub name (at lm.<name>.revision); null: prompts are sent as text, uncut
    batch_size: PositiveInt  # prompts in a request; a chat's request has one
    concurrency: PositiveInt  # requests at the same time, by each stage
    logprobs: PositiveInt  # likeliest next tokens to ask for, to choose an option or to answer under replug.mixture
    extra: dict[
        str, bool | int | float | str
    ]  # further fields of each request, which the server understands
    requests_per_minute: PositiveInt | None  # for all stages together; null: no limit
    tokens_per_minute: PositiveInt | None  # for all stages together; null: no limit
    prompt_price: Annotated[float, Field(ge=0)]  # price of 1,000 prompt tokens, in any currency
    completion_price: Annotated[
        float, Field(ge=0)
    ]  # price of 1,000 generated tokens, in the same currency
    max_cost: (
        PositiveFloat | None
    )  # limit on the cost of all requests to this model, over all runs; null: none


class LM(Section):
    source: Literal["train", "pretrained", "http"]  # trained here, local weights, or a server
    path: str | None  # pretrained: local folder or Hub name; http: model name
    revision: str | None  # commit on the Hub, of a pretrained model or of a server's tokenizer
    http: LMServer | None  # http: the server
    dtype: Literal[
        "fp32", "bf16", "int8"
    ]  # of the weights; bf16: fp16 on GPUs without it; first compared with fp32
    batch_tokens: PositiveInt  # tokens in one forward pass, at most
    training: LMTraining | None  # train: how
    chat: bool  # answers: prompts are a user's message, by the model's own template or the server's chat interface
    n_shots: Count | None  # demonstrations before a question; null: answer.n_shots


class RetrieverTraining(Section):
    hidden_size: PositiveInt  # width of the BERT-like encoder
    layers: PositiveInt  # layers
    steps: PositiveInt  # steps of AdamW on pairs of crops of a document
    batch_size: PositiveInt  # pairs in a step; crops of other documents are the negatives


class Retriever(Section):
    """Any BERT-like encoder; docs/retrievers.md shows what Contriever, DPR, BERT and E5 need."""

    source: Literal["train", "pretrained"]  # trained here, or read
    path: str | None  # pretrained: local folder or Hub name
    revision: str | None  # commit of path on the Hub
    query_path: (
        str | None
    )  # pretrained: another encoder for queries (DPR); null: the same as for documents
    query_revision: str | None  # commit of query_path on the Hub
    pooling: Literal[
        "mean", "cls", "lasttoken"
    ]  # of last hidden states: their mean, or the first or last token's
    similarity: Literal["cosine", "dot"]  # how a query's and a document's vectors are compared
    query_prefix: str  # goes before every query, as E5 and BGE need
    document: Template  # how a document's {title} and {text} are read; where there is no title, what stands from
    # {title} to {text} falls away
    dtype: Literal[
        "auto", "bf16", "fp32"
    ]  # number format; auto: bf16 if the device has it and it is as good as fp32
    batch_tokens: PositiveInt  # tokens in one forward pass, at most
    max_tokens: PositiveInt  # tokens of a text that are read
    training: RetrieverTraining | None  # train: how


class Reranker(Section):
    """A cross-encoder, as MS MARCO's MiniLM: a sequence classifier of a query and a document with one or two logits."""

    path: str  # local folder or Hub name
    revision: str | None  # commit of path on the Hub
    max_tokens: PositiveInt  # tokens of query and document together that are read
    batch_tokens: PositiveInt  # tokens in one forward pass, at most
    candidates: PositiveInt  # the best documents of the main retriever, untuned, that it reads for each query


class Index(Section):
    """Vector indexes and BM25."""

    kind: Literal[
        "auto", "flat", "ivf"
    ]  # ivf: lists of 4-bit codes; auto: by the number of documents
    memory_gb: PositiveFloat  # GiB that building or searching an index may take
    recall_target: Annotated[
        float, Field(gt=0, lt=1)
    ]  # share of the exact top 10 that a search must find
    bm25_k1: PositiveFloat  # how soon more occurrences of a term stop counting
    bm25_b: Share  # how much a document's length counts


class LSR(Section):
    lm: (
        LMName | None
    )  # of lms: the language model that is learnt from; null where parts.tuned is empty
    queries: Literal[
        "lm", "qa", "mixed"
    ]  # what LSR learns from: language-modelling queries, questions, or both
    lm_queries: (
        Count  # language-modelling queries of the train split, at most; 0 where queries is qa
    )
    qa_queries: Count  # questions of the train split, at most; 0 where queries is lm
    validation_queries: Count  # validation queries of each kind, at most; never learnt from; 0 only where keep is last
    n_shots: (
        Count | None
    )  # demonstrations before a question that the language model reads; null: as in answers
    top_k: PositiveInt  # documents of a query; both distributions are over them
    further_k: (
        Count  # how many of these come from further down, at even steps as far as rank 10 * top_k
    )
    gamma: PositiveFloat  # temperature of the retriever's P_R
    beta: PositiveFloat  # temperature of the language model's Q
    q_entropy: (
        Annotated[float, Field(gt=0, lt=1)] | None
    )  # the entropy that Q has on training queries, 1 is uniform:
    # beta is chosen for it, for questions and texts apart; null: beta is as given
    require_better_teacher: (
        bool  # stop before training where the language model tells documents with an answer from
    )
    # others no better than the retriever does
    kl: Literal["q_p", "p_q"]  # KL(Q || P_R) or KL(P_R || Q)
    likelihood: Literal[
        "mean_logprob", "sum_logprob", "prob", "answer_right"
    ]  # of a continuation; answer_right: 1
    # where the answer that the language model generates is right, else 0, for models that give no log-probabilities
    # and questions alone; Q is its softmax over the documents
    learning_rate: PositiveFloat  # Adam's learning rate after warm-up
    warmup: Share  # share of the steps in which the learning rate rises, to stay there
    batch_size: PositiveInt  # queries in a step
    steps: PositiveInt  # training steps
    refresh_steps: PositiveInt  # steps after which the corpora are embedded and indexed anew
    keep: Literal[
        "best", "last"
    ]  # the encoder that is kept: the one that validates best, be it untuned, or the last
    checkpoint_steps: PositiveInt  # steps between checkpoints, which a killed run goes on from
    dtype: Literal["fp32", "bf16"]  # number format of matrix products; weights and Adam stay fp32
    micro_batch: (
        PositiveInt | None
    )  # texts of a step that are embedded with gradients at once; null: all of them

    def shots(self, answer: Answer, lm: LM) -> int:
        """The demonstrations before a question that `lm` reads as the teacher."""
        return answer.of(lm).n_shots if self.n_shots is None else self.n_shots


class Datastore(Section):
    """The curve of bits per byte over parts of a corpus, with the untuned dense retriever."""

    shares: list[
        Annotated[float, Field(gt=0, lt=1)]
    ]  # shares of the documents; smaller ones lie within larger ones
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
    mixture: Literal[
        "token_mixture", "sequence_mixture"
    ]  # mixes probabilities of each next token, or of whole texts
    vote: bool  # answers: true generates one with each document and elects one of them, as a chat on a server must


class Answer(Section):
    max_questions: PositiveInt  # per data set, drawn by hash
    n_shots: Count  # demonstrations before the question, where lm.<name>.n_shots is null
    new_tokens: PositiveInt  # at most, of an answer
    passages: PositiveInt  # bm25, dense, lsr: passages in a prompt, the best first
    passage: Template  # how the language model reads a retrieved passage's {title} and {text}; as in retriever.document
    clipped: list[str] = Field(
        default_factory=list
    )  # kinds of ways, as dense, whose passages' texts end at their last
    # ". ", so that they have whole sentences alone, as PopQA's authors clip Contriever's
    shot_passages: bool = True  # in ways with a passage, each demonstration has one of its own
    passage_tokens: (
        PositiveInt  # genread: of the passage that the language model writes itself, at most
    )

    def of(self, lm: LM) -> Answer:
        """These settings with the language model's own number of demonstrations, if it has one."""
        return self if lm.n_shots is None else self.model_copy(update={"n_shots": lm.n_shots})
