"""The sections of params.yaml that LSR reads."""

from pipelines.params import params
from pipelines.params.param_types import LMName
from pipelines.retrieval.retriever import RetrievalSettings


class Settings(RetrievalSettings):
    """The sections of params.yaml that the stage `train_lsr` reads."""

    seed: int
    language: str
    lm: dict[LMName, params.LM]
    parts: params.Parts
    lsr: params.LSR
    answer: params.Answer
