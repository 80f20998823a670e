"""The figures of an attribution: bits saved and memory's share, over all tokens and by
the frequency of their words."""

import math
from functools import partial
from typing import Any

import numpy as np

from pipelines import draws, intervals
from pipelines.intervals import Interval
from pipelines.replug.word_frequency import UNKNOWN

SUMMED = ("tokens", "bits_without", "bits_saved", "memory")
EDGES = 10 ** np.arange(18)  # where each row of frequencies begins but the first: 1, 10, 100 ...


class TokenSums:
    """Sums over the tokens of one retriever, by source document: of all tokens, and in rows by the
    frequency of their words.
    """

    def __init__(self, clusters: int) -> None:
        self._clusters = clusters
        self._all = np.zeros((len(SUMMED), 1, clusters))
        self._by_row = np.zeros((len(SUMMED), len(EDGES) + 1, clusters))

    def add(
        self,
        nats_without: np.ndarray,
        nats: np.ndarray,
        memory: np.ndarray,
        frequency: np.ndarray,
        clusters: np.ndarray,
    ) -> None:
        """Add tokens: nats without and with documents, share of memory, frequency of the word, and
        source document.

        All are (tokens,).
        """
        tokens = np.ones(len(nats))
        bits_without = nats_without / np.log(2)
        bits_saved = (nats_without - nats) / np.log(2)
        values = [tokens, bits_without, bits_saved, memory]
        _add_at(self._all, clusters, values)

        has_word = frequency != UNKNOWN
        rows = np.searchsorted(EDGES, frequency[has_word], side="right")
        places = rows * self._clusters + clusters[has_word]
        _add_at(self._by_row, places, [value[has_word] for value in values])

    def figures(self, seed: int, resamples: int) -> dict[str, Any]:
        """The retriever's part of the metrics."""
        ratio = partial(_ratio, seed=seed, resamples=resamples)
        n_tokens, _, _, memory = self._all[:, 0]
        in_all = n_tokens > 0
        memory_share = ratio(memory, n_tokens, in_all).within(0, 1)

        by_frequency = []
        edges = EDGES.tolist()
        starts = [0, *edges]
        stops = [*edges, None]
        for start, stop, row in zip(starts, stops, self._by_row.swapaxes(0, 1), strict=True):
            tokens, bits_without, saved, memory_of_row = row
            if not tokens.any():
                continue
            has_tokens = tokens > 0
            ratios = {
                "none": ratio(bits_without, tokens, has_tokens).within(0, math.inf),
                "gain": ratio(saved, tokens, has_tokens),
                "memory": ratio(memory_of_row, tokens, has_tokens).within(0, 1),
            }
            row_figures: dict[str, Any] = {"least": start, "most": None}
            if stop is not None:
                row_figures["most"] = stop - 1
            row_figures["tokens"] = int(tokens.sum())
            row_figures |= {name: interval.as_json() for name, interval in ratios.items()}
            by_frequency.append(row_figures)

        return {"memory": memory_share.as_json(), "by_frequency": by_frequency}


def _ratio(
    sums: np.ndarray, to: np.ndarray, drawn: np.ndarray, seed: int, resamples: int
) -> Interval:
    """The ratio of two sums over source documents, of which those `drawn` are resampled.

    All ratios have the same resamples, so that they can be compared.
    """
    generator = draws.generator(seed, "attribution")
    columns = np.stack([sums, to], axis=1)[drawn]
    return intervals.bootstrap(columns, intervals.ratio, generator, resamples)


def _add_at(sums: np.ndarray, places: np.ndarray, values: list[np.ndarray]) -> None:
    """Add values (tokens,) at the places (tokens,) of each array in `sums`.

    Token is added after token, so that blocks of any size give the same sums.
    """
    for array, value in zip(sums, values, strict=True):
        np.add.at(array.ravel(), places, value)
