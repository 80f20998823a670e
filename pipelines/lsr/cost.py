"""What a language model behind a paid server will cost LSR, at most, before the first request is sent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.lm.http_model import HttpModel
from pipelines.lsr.training_queries import Side
from pipelines.retrieval import documents
from pipelines.scoring import logprob_table

if TYPE_CHECKING:
    from pipelines.lsr.refresh import Refresher

COUNTED = 1000  # pairs of a corpus whose tokens are counted; the others are taken to be as long


def check(refresher: Refresher, server: params.LMServer, lsr: params.LSR) -> None:
    """Print the most that all rounds may cost, as if each found only new documents; kept scores cost nothing.

    The first round's pairs are those that will be asked. Raises LongtailError where it is more than `lsr.max_cost`.
    """
    lm, order = refresher.lm, refresher.order
    judged = len({order.encoder(number) for number in range(order.rounds)})
    later = [order.rows(number) for number in range(1, order.rounds)]
    pairs = tokens = 0.0
    for i, (side, scores, (rows, found)) in enumerate(
        zip(refresher.sides, refresher.scores, refresher.search(0), strict=True)
    ):
        nothing = np.full((len(rows), 1), logprob_table.NONE)
        first = [logprob_table.unique_pairs(rows, np.concatenate([nothing, found], axis=1))]
        more = sum(len(asked[i]) for asked in later) * (refresher.k + 1)
        if side.pages is None:
            shown, _ = refresher.shown(i)
            first.append(logprob_table.unique_pairs(side.judging, shown))
            more += (judged - 1) * shown.size
        asked = np.concatenate(first)
        new = len(scores.missing(asked)) + more
        pairs += new
        tokens += new * _tokens_of_one(lm, side, asked)
    cost = tokens * server.prompt_price / 1000
    print(f"train_lsr: {lm.name} will be asked for {pairs:,.0f} pairs at most, of {tokens:,.0f} tokens: {cost:.2f}")
    if cost > (math.inf if lsr.max_cost is None else lsr.max_cost):
        raise LongtailError(
            f"lsr.max_cost is {lsr.max_cost:g}, but {pairs:,.0f} pairs of {tokens:,.0f} tokens may cost {cost:.2f}; "
            "raise it, or lower lsr.steps, lsr.lm_queries, lsr.qa_queries or lsr.top_k"
        )


def _tokens_of_one(lm: HttpModel, side: Side, pairs: np.ndarray) -> float:
    """Mean tokens of a request's prompt with its continuation, of pairs spread evenly."""
    if not len(pairs):
        return 0.0
    some = pairs[np.linspace(0, len(pairs) - 1, min(COUNTED, len(pairs))).astype(np.int64)]
    given = some[:, 1] != logprob_table.NONE
    texts = np.full(len(some), None, object)
    texts[given] = documents.read(side.docs, some[given, 1]).texts
    prompts = [side.queries.prompt(query, text) for query, text in zip(some[:, 0], texts, strict=True)]
    return lm.count_tokens(prompts, list(side.queries.continuations[some[:, 0]])) / len(some)
