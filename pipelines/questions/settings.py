"""The params that builders of question sets read.

They have a module of their own, so that a changed builder makes only its own question set run
again.
"""

from pipelines.params.param_types import Section
from pipelines.params.params import C4, Compute, Ingest, Parts, PopQA, Popularity


class Settings(Section):
    """The sections of params.yaml that the stage `questions` reads."""

    seed: int
    language: str
    compute: Compute
    ingest: Ingest
    popularity: Popularity
    parts: Parts
    popqa: PopQA
    c4: C4
