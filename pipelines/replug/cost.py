"""What a language model behind a paid server will cost LSR, at most, before the first request is sent."""

from __future__ import annotations

import math

import numpy as np

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.lm.http import HttpModel
from pipelines.replug import table, tuning
from pipelines.retrieval import documents

COUNTED = 1000  # pairs of a corpus whose tokens are counted; the others are taken to be as long


def check(lm: HttpModel, tuner: tuning.Tuner, server: params.LMServer) -> None:
    """Print the most that all rounds may cost, as if each found only new documents; kept scores cost nothing.

    The first round's pairs are those that will be asked. Raises LongtailError where it is more than `lsr.max_cost`.
    """
    lsr = tuner.settings
    rounds = range(0, lsr.steps, lsr.refresh_steps)
    later = [tuner.owners[tuner.needed(first), 0] for first in rounds[1:]]
    pairs = tokens = 0.0
    for i, (side, (rows, found)) in enumerate(zip(tuner.sides, tuner.search(0), strict=True)):
        nothing = np.full((len(rows), 1), table.NONE)
        first = [table.unique_pairs(rows, np.concatenate([nothing, found], axis=1))]
        more = sum(int((sides == i).sum()) for sides in later) * (tuner.k + 1)
        if side.pages is None:
            held = np.arange(side.train, len(side.queries))
            first.append(table.unique_pairs(held, tuner.search_of(side, held, tuning.SHOWN)[0]))
            more += len(rounds) * len(held) * tuning.SHOWN
        asked = np.concatenate(first)
        new = len(side.scores.missing(asked)) + more
        pairs += new
        tokens += new * _tokens_of_one(lm, side, asked)
    cost = tokens * server.prompt_price / 1000
    print(f"train_lsr: {lm.name} will be asked for {pairs:,.0f} pairs at most, of {tokens:,.0f} tokens: {cost:.2f}")
    if cost > (math.inf if lsr.max_cost is None else lsr.max_cost):
        raise LongtailError(
            f"lsr.max_cost is {lsr.max_cost:g}, but {pairs:,.0f} pairs of {tokens:,.0f} tokens may cost {cost:.2f}; "
            "raise it, or lower lsr.steps, lsr.lm_queries, lsr.qa_queries or lsr.top_k"
        )


def _tokens_of_one(lm: HttpModel, side: tuning.Side, pairs: np.ndarray) -> float:
    """Mean tokens of a request's prompt with its continuation, of pairs spread evenly."""
    if not len(pairs):
        return 0.0
    some = pairs[np.linspace(0, len(pairs) - 1, min(COUNTED, len(pairs))).astype(np.int64)]
    given = some[:, 1] != table.NONE
    texts = np.full(len(some), None, object)
    texts[given] = documents.read(side.docs, some[given, 1]).texts
    prompts = [side.queries.prompt(query, text) for query, text in zip(some[:, 0], texts, strict=True)]
    return lm.count_tokens(prompts, list(side.queries.continuations[some[:, 0]])) / len(some)
