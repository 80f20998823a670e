"""The sections of params.yaml that LSR reads."""

from pipelines.lm.open_lm import SupervisingSettings
from pipelines.params import params
from pipelines.retrieval.retriever import RetrievalSettings


class Settings(RetrievalSettings, SupervisingSettings):
    """The sections of params.yaml that the stage `train_lsr` reads."""

    seed: int
    language: str
    parts: params.Parts
    answer: params.Answer
