"""The params of models, of tuning and of answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pipelines.params.param_types import (
    Address,
    Count,
    LMName,
    Section,
    Share,
    Template,
)


class LMServer(Section):
    """A server with OpenAI's completions or chat interface; its key, if it wants one, is
    $LONGTAIL_API_KEY.
    """

    # base address, as https://host/v1; without a password, which ~/.netrc may have
    url: Annotated[Address, Field(pattern=r"^https?://\S+$")]
    # tokens of prompt and continuation; one less than the model reads at once
    max_tokens: PositiveInt
    # local folder or Hub name (at lm.<name>.revision); null: prompts are sent as text, uncut
    tokenizer: str | None
    # requests at the same time, of a prompt each, by each stage
    concurrency: PositiveInt
    # likeliest next tokens to ask for, to choose an option or to answer under replug.mixture
    logprobs: PositiveInt
    # further fields of each request, which the server understands; null: a field that it refuses
    extra: dict[str, bool | int | float | str | None]
    # for all stages together; null: no limit
    requests_per_minute: PositiveInt | None
    # for all stages together; null: no limit
    tokens_per_minute: PositiveInt | None
    # price of 1,000 prompt tokens, in any currency
    prompt_price: Annotated[float, Field(ge=0)]
    # price of 1,000 generated tokens, in the same currency
    completion_price: Annotated[float, Field(ge=0)]
    # limit on the cost of all requests to this model, over all runs; null: none
    max_cost: PositiveFloat | None


class LM(Section):
    """A language model."""

    # local folder or Hub name; the model's name on a server
    path: str | None
    # commit on the Hub of the model, or of a server's tokenizer
    revision: str | None
    # the server; null: local weights
    http: LMServer | None
    # number format of the weights (docs/language-models.md)
    dtype: Literal["auto", "fp32", "bf16", "int8"]
    # tokens in one forward pass, at most; null: 4,096 on a CPU, as many as fit on a GPU
    batch_tokens: PositiveInt | None
    # answers: prompts are a user's message, by the model's own template or the server's chat
    # interface
    chat: bool
    # demonstrations before a question; null: answer.n_shots
    n_shots: Count | None


class Retriever(Section):
    """Any BERT-like encoder; docs/retrievers.md shows what Contriever, DPR, BERT and E5 need."""

    # local folder or Hub name
    path: str | None
    # commit of path on the Hub
    revision: str | None
    # another encoder for queries (DPR); null: the same as for documents
    query_path: str | None
    # commit of query_path on the Hub
    query_revision: str | None
    # of last hidden states: their mean, or the first or last token's
    pooling: Literal["mean", "cls", "lasttoken"]
    # how a query's and a document's vectors are compared
    similarity: Literal["cosine", "dot"]
    # goes before every query, as E5 and BGE need
    query_prefix: str
    # how a document's {title} and {text} are read; where there is no title, what stands from
    # {title} to {text} falls away
    document: Template
    # number format; auto: bf16 if the device has it and it is as good as fp32
    dtype: Literal["auto", "bf16", "fp32"]
    # tokens of a text that are read
    max_tokens: PositiveInt
    # tokens of a query of language modelling that are read; null: max_tokens
    text_query_tokens: PositiveInt | None = None
    # corpus -> file or folder of its published vectors, which are read in place of embedding it
    vectors: dict[str, str] = Field(default_factory=dict)
    # whether the next run embeds new texts only (docs/retrievers.md)
    keep_vectors: bool = False


# figure by which tuned encoders are compared -> the best of its values; of equal ones the first
BETTER: dict[str, Callable[..., Any]] = {"recall_at_1": max, "bits_per_byte": min}


def best_by(queries: str) -> str:
    """The figure by which encoders are compared that learn from `lsr.queries`.

    It is the share of questions whose first document holds an answer or, without questions, the
    bits per byte of texts.
    """
    return "bits_per_byte" if queries == "lm" else "recall_at_1"


class LSR(Section):
    """How retrievers are tuned to a language model (REPLUG LSR)."""

    # the language model that is learnt from, one of lms; null where parts.tuned is empty
    lm: LMName | None
    # what LSR learns from: language-modelling queries, questions, or both
    queries: Literal["lm", "qa", "mixed"]
    # language-modelling queries of the train split, at most; 0 where queries is qa
    lm_queries: Count
    # questions of the train split, at most; 0 where queries is lm
    qa_queries: Count
    # validation queries of each kind, at most; never learnt from; 0 only where keep is last
    validation_queries: Count
    # demonstrations before a question that the language model reads; null: as in answers
    n_shots: Count | None
    # documents of a query; both distributions are over them
    top_k: PositiveInt
    # temperature of the retriever's P_R
    gamma: PositiveFloat
    # temperature of the language model's Q
    beta: PositiveFloat
    # the entropy that Q has on training queries, 1 is uniform: beta is chosen for it, for questions
    # and texts apart; null: beta is as given
    q_entropy: Annotated[float, Field(gt=0, lt=1)] | None
    # KL(Q || P_R) or KL(P_R || Q)
    kl: Literal["q_p", "p_q"]
    # likelihood of a continuation, whose softmax over the documents is Q; answer_right: 1 where the
    # generated answer is right, else 0; holds_answer: 1 where the document holds an answer, else 0,
    # which no language model is asked for (docs/tune-retriever.md)
    likelihood: Literal["mean_logprob", "sum_logprob", "prob", "answer_right", "holds_answer"]
    # Adam's learning rate after warm-up
    learning_rate: PositiveFloat
    # share of the steps in which the learning rate rises, to stay there
    warmup: Share
    # queries in a step
    batch_size: PositiveInt
    # training steps
    steps: PositiveInt
    # steps after which the corpora are embedded and indexed anew
    refresh_steps: PositiveInt
    # the encoder that is kept: the best by the validation queries, be it untuned, or the last
    keep: Literal["best", "last"]

    @property
    def best_by(self) -> str:
        """The figure of the validation queries by which encoders are compared."""
        return best_by(self.queries)

    def shots(self, answer: Answer, dataset: str, lm: LM) -> int:
        """The demonstrations before a question of a set that `lm` reads as the teacher."""
        return answer.of(dataset, lm).n_shots if self.n_shots is None else self.n_shots


class Datastore(Section):
    """The curve of bits per byte over parts of a corpus, with the untuned dense retriever."""

    # shares of the documents; smaller ones lie within larger ones
    shares: list[Annotated[float, Field(gt=0, lt=1)]]
    # scored queries that the curve is measured on
    max_queries: PositiveInt


class Logprobs(Section):
    """The log-probabilities that language models give to test queries, with as many documents as
    ensembles may need.
    """

    # documents by each retriever, and as many random ones
    top_k: PositiveInt
    # test queries of each corpus, drawn by hash
    max_queries: PositiveInt
    # the curve over sizes of the corpus
    datastore: Datastore


class Replug(Section):
    """REPLUG's ensemble, for scored texts and for answers alike."""

    # documents in an ensemble; at most logprobs.top_k
    top_k: PositiveInt
    # temperature of lambda, the softmax of the documents' similarities
    temperature: PositiveFloat
    # mixes probabilities of each next token, or of whole texts
    mixture: Literal["token_mixture", "sequence_mixture"]
    # answers: true generates one with each document and elects one of them, as a chat on a server
    # must
    vote: bool


class AnswerOfSet(Section):
    """What differs in how language models answer one question set."""

    # questions, in place of answer.max_questions
    max_questions: PositiveInt | None = None
    # demonstrations, in place of answer.n_shots
    n_shots: Count | None = None


class Answer(Section):
    """How language models answer questions."""

    # per data set, drawn by hash
    max_questions: PositiveInt
    # demonstrations before the question, where lm.<name>.n_shots is null
    n_shots: Count
    # question set -> what differs there
    sets: dict[str, AnswerOfSet] = Field(default_factory=dict)
    # tokens of an answer, at most
    new_tokens: PositiveInt
    # bm25, dense, lsr: passages in a prompt, the best first
    passages: PositiveInt
    # how the language model reads a retrieved passage's {title} and {text}; as in
    # retriever.document
    passage: Template
    # kinds of ways, as dense, and ways, as given_contriever, whose passages end at their last ". ",
    # as PopQA's authors clip Contriever's
    clipped: list[str] = Field(default_factory=list)
    # in ways with a passage, each demonstration has one of its own
    shot_passages: bool = True
    # genread: tokens of the passage that the language model writes itself, at most
    passage_tokens: PositiveInt

    def of(self, dataset: str, lm: LM) -> Answer:
        """These settings as they are for a question set and a language model, which may have a
        number of demonstrations of its own.
        """
        differing = {"sets": {}}
        if dataset in self.sets:
            differing |= self.sets[dataset].model_dump(exclude_none=True)
        if lm.n_shots is not None:
            differing["n_shots"] = lm.n_shots
        return self.model_copy(update=differing)
