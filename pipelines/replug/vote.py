"""REPLUG's `vote`: one answer from k, each generated with a document of its own (REPLUG §6.3), by any backend."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Generation
from pipelines.questions.matching import normalise


def vote(generations: Sequence[Generation], log_weights: np.ndarray) -> list[str]:
    """The text of each question's answer, as `elect` finds it."""
    return [one.text for one in elect(generations, log_weights)]


def elect(generations: Sequence[Generation], log_weights: np.ndarray) -> list[Generation]:
    """The answer of each question; `generations` are k in a row for each, log_weights (questions, k) are log lambda.

    Answers equal after `normalise` are one. Its weight is the sum of lambda_d * exp(mean token log-prob) over the
    documents that led to it; an empty text has none. The largest wins, of equals the one with the earliest document,
    and is given as that document's text has it; its log takes the place of a mean log-prob, and the tokens are those of
    all k. Raises LongtailError where a mean is not known.
    """
    k = log_weights.shape[1]
    confidence = np.array([one.mean_log_prob for one in generations]).reshape(log_weights.shape)
    if np.isnan(confidence).any():
        raise LongtailError("the server shows no log-probabilities of its answers, which the vote needs; take another")
    votes = np.exp(log_weights + confidence).tolist()
    return [_winner(generations[i * k : (i + 1) * k], own) for i, own in enumerate(votes)]


def _winner(generations: Sequence[Generation], votes: Sequence[float]) -> Generation:
    texts = [one.text.strip() for one in generations]
    own: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        own.setdefault(normalise(text), []).append(place)
    # fsum rounds once, whatever the order: equal votes are equal sums
    weight, first = max((math.fsum(votes[i] for i in places), -places[0]) for places in own.values())
    return Generation(
        texts[-first],
        math.log(weight) if weight else -math.inf,
        sum(one.prompt_tokens for one in generations),
        sum(one.new_tokens for one in generations),
    )
