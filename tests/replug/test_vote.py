"""The vote is lambda_d * exp(mean token log-prob), summed over the documents that led to an answer."""

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Generation
from pipelines.replug import ensemble
from pipelines.replug.vote import vote

ANSWERS = ["Paris", "paris!", " The Paris", "Rome", "rome", "Oslo", ""]
MERGED = {"Paris": 0, "paris!": 0, " The Paris": 0, "Rome": 1, "rome": 1, "Oslo": 2, "": 3}
ANSWER = st.tuples(st.sampled_from(ANSWERS), st.floats(-5, 0))


def made(*answers):
    return [Generation(text, mean if text else -math.inf, 1) for text, mean in answers]


def test_votes_by_hand():
    answers = made(*((text, 0.0) for text in ("Paris", "the Rome", "rome!", "Oslo")))
    # summed by normalised answer: Paris 0.35, Rome 0.2 + 0.2, Oslo 0.25
    assert vote(answers, np.log([[0.35, 0.2, 0.2, 0.25]])) == ["the Rome"]
    assert vote(answers, np.log([[0.5, 0.2, 0.2, 0.1]])) == ["Paris"]
    unsure = made((" sure", -0.1), (" guess", -3.0))
    assert vote(unsure, np.log([[0.4, 0.6]])) == ["sure"]  # 0.4 * 0.905 against 0.6 * 0.050
    assert vote(unsure * 2, np.log([[0.02, 0.98], [0.4, 0.6]])) == ["guess", "sure"]


def test_of_equal_votes_the_earliest_document_wins_however_they_add_up():
    answers = made(*((text, 0.0) for text in ("b", "a", "b", "a", "b", "a")))
    # floats added one by one differ in the last place: 0.1 + 0.2 + 0.3 is more than 0.3 + 0.2 + 0.1
    assert vote(answers, np.log([[0.3, 0.1, 0.2, 0.2, 0.1, 0.3]])) == ["b"]


def test_empty_places_and_empty_texts_have_no_vote():
    answers = made(("", 0.0), ("Rome", -4.0), ("Oslo", 0.0))
    assert vote(answers, ensemble.log_weights(np.array([[1e4, 1.0, -np.inf]]), 1000.0)) == ["Rome"]
    assert vote(made(("", 0.0), ("", 0.0)), np.log([[0.5, 0.5]])) == [""]


def test_a_backend_that_does_not_tell_log_probs_can_not_vote():
    with pytest.raises(LongtailError, match="which the vote needs"):
        vote(made(("Rome", -9.0), ("Oslo", math.nan)), np.log([[0.5, 0.5]]))


@settings(deadline=None)
@given(answers=st.lists(ANSWER, min_size=1, max_size=6), data=st.data())
def test_the_vote_equals_the_formula_in_plain_loops(answers, data):
    similarities = data.draw(st.lists(st.floats(-1, 1), min_size=len(answers), max_size=len(answers)))
    (found,) = vote(made(*answers), ensemble.log_weights(np.array([similarities]), 0.1))
    total, votes = sum(math.exp(10 * s) for s in similarities), defaultdict(float)
    for (text, mean), similarity in zip(answers, similarities, strict=True):
        votes[MERGED[text]] += math.exp(10 * similarity) / total * (math.exp(mean) if text else 0)
    assert found in {text.strip() for text, _ in answers}
    own = next(merged for text, merged in MERGED.items() if text.strip() == found)
    assert votes[own] == pytest.approx(max(votes.values()), rel=1e-9)


@settings(deadline=None)
@given(answer=ANSWER, others=st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6))
def test_one_answer_many_times_is_that_answer(answer, others):
    weights = ensemble.log_weights(np.array([others]), 1.0)
    assert vote(made(*[answer] * len(others)), weights) == [answer[0].strip()]
