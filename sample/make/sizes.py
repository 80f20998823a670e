"""How large a world and its models are, and how the models are trained."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class WorldSizes:
    """The sizes of a world and of its texts."""

    entities: int = 400  # each has an article
    lm_documents: int = 28800  # documents of C4, which the language model is trained on
    lm_shards: int = 4  # files of C4
    pile_documents: int = 5  # Pile documents about each entity
    questions: int = 300  # in each of EntityQuestions, MMLU and Natural Questions


@dataclass(frozen=True)
class Phase:
    """A part of the training of a language model, with its own mixture of texts."""

    until: float  # share of all steps after which the phase ends
    weights: dict[str, float]  # kind of text -> share of the phase's tokens


PHASES = (
    Phase(until=0.25, weights={"world": 0.10, "reading": 0.80, "distractor": 0.10}),
    Phase(until=1.0, weights={"world": 0.30, "reading": 0.45, "distractor": 0.25}),
)


@dataclass(frozen=True)
class LMTraining:
    """The size of the language model and its training."""

    hidden_size: int = 128
    layers: int = 4
    heads: int = 4
    intermediate_size: int = 256
    positions: int = 512  # tokens that the model reads at once
    steps: int = 4500
    batch_size: int = 1  # sequences of so many positions in a step
    phases: tuple[Phase, ...] = PHASES


@dataclass(frozen=True)
class RetrieverTraining:
    """The size of the encoder and its training."""

    hidden_size: int = 128
    layers: int = 1
    max_tokens: int = 160  # tokens that the encoder reads at once
    steps: int = 60
    batch_size: int = 96  # pairs of crops of a document in a step


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the sample's bytes, besides the kind of CPU."""

    seed: int = 0
    # of the growing world; the files are of the last two
    months: tuple[str, ...] = ("2021-08", "2021-09", "2021-10", "2021-11")
    growth: int = 8  # entities that a month has more than the month before
    vocabulary: int = 1700
    world: WorldSizes = field(default_factory=WorldSizes)
    lm: LMTraining = field(default_factory=LMTraining)
    retriever: RetrieverTraining = field(default_factory=RetrieverTraining)
