"""The parts of the pipeline that a run can be for."""

from enum import StrEnum


class Part(StrEnum):
    """A part of the pipeline, with all stages that it needs; graph.PARTS has its last stages."""

    refresh = "refresh"  # everything
    popqa = "popqa"
    corpus = "corpus"
    retriever = "retriever"
    thresholds = "thresholds"
