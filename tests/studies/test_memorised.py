"""The halves of the sample's subjects, by whether the language model's text asks about them as the evaluation does."""

from types import SimpleNamespace

import answer_tables
import numpy as np
import pytest

from pipelines.studies import memorised
from pipelines.world.facts import World

N = 20
NUMBER = np.arange(N)


def test_halves_are_the_worlds_own(tmp_path):
    """The report's halves are those that the offline world drew when it wrote the language model's text."""
    right = {"closed_book": NUMBER >= 10, "dense": NUMBER < 15}
    answers = answer_tables.read(tmp_path, [10 * (i + 1) for i in range(N)], ["P1"] * N, **right)
    world = SimpleNamespace(seed=3, item=lambda entity: entity, qid=lambda item: f"Q{item}")
    drawn = np.array([World.asked_as_evaluated(world, i) for i in range(N)])
    asked, never = memorised.compare_halves(answers, 3, 20)
    assert 0 < drawn.sum() < N
    assert (asked["questions"], never["questions"]) == (drawn.sum(), (~drawn).sum())
    assert asked["substring"].value == pytest.approx((NUMBER >= 10)[drawn].mean())
