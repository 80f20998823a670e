"""Which subjects are set apart for tuning the retriever: one rule for all question sets, so that none leaks."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines import draws

ENTITY = "http://www.wikidata.org/entity/"  # the prefix of subject URIs


def split_of(seed: int, uris: Iterable[str], train_share: float) -> list[str]:
    """For each subject URI "train" or "test", by a hash of (seed, URI): all questions on a subject fall on one side."""
    return ["train" if draw < train_share else "test" for draw in draws.uniforms(seed, "popqa.train", uris)]
