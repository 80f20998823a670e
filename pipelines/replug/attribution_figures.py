"""The figures of an attribution: bits saved and memory's share, over all tokens and in rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines import draws, intervals
from pipelines.intervals import NOTHING

UNKNOWN = -1  # a study's number of a token of which it knows none
SUMMED = ("tokens", "none", "gain", "memory")  # tokens, bits without documents, bits saved, share


class TokenSums:
    """Sums over the tokens of one retriever, by source document: of all tokens, and in rows.

    `edges` say for each study's numbers where each row begins, but the first.
    """

    def __init__(self, clusters: int, edges: Mapping[str, np.ndarray]) -> None:
        self._edges = edges
        self._clusters = clusters
        self._all = np.zeros((len(SUMMED), 1, clusters))
        self._by_row = {}  # (summed, rows, clusters)
        for name, bounds in edges.items():
            self._by_row[name] = np.zeros((len(SUMMED), len(bounds) + 1, clusters))

    def add(
        self,
        nats_none: np.ndarray,
        nats: np.ndarray,
        memory: np.ndarray,
        numbers: Mapping[str, np.ndarray | None],
        clusters: np.ndarray,
    ) -> None:
        """Add tokens: nats without and with documents, share of memory, and source document.

        All are (tokens,), as are the `numbers` of each study, which are None where it has none.
        """
        values = [
            np.ones(len(nats_none)),
            nats_none / np.log(2),
            (nats_none - nats) / np.log(2),
            memory,
        ]
        _add_at(self._all, clusters, values)
        for name, numbers_of_tokens in numbers.items():
            if numbers_of_tokens is None:
                continue
            has_number = numbers_of_tokens != UNKNOWN
            rows = np.searchsorted(self._edges[name], numbers_of_tokens[has_number], side="right")
            places = rows * self._clusters + clusters[has_number]
            _add_at(self._by_row[name], places, [value[has_number] for value in values])

    def figures(self, seed: int, resamples: int) -> dict[str, Any]:
        """The retriever's part of the metrics."""

        def ratio(sums: np.ndarray, to: np.ndarray, drawn: np.ndarray) -> dict[str, Any]:
            # All means have the same resamples, so that they can be compared.
            generator = draws.generator(seed, "attribution")
            columns = np.stack([sums, to], axis=1)[drawn]
            interval = intervals.bootstrap(columns, intervals.ratio, generator, resamples)
            return interval.as_json()

        def row_figures(least: int, stop: int | None, row: np.ndarray) -> dict[str, Any]:
            tokens, nats_none, gain, memory_of_row = row
            has_tokens = tokens > 0
            share = NOTHING.as_json()
            if saves:
                share = ratio(gain, saved, in_all)
            return {
                "least": least,
                "most": None if stop is None else stop - 1,
                "tokens": int(tokens.sum()),
                "none": ratio(nats_none, tokens, has_tokens),
                "gain": ratio(gain, tokens, has_tokens),
                "memory": ratio(memory_of_row, tokens, has_tokens),
                "share_of_gain": share,
            }

        n_tokens, _, saved, memory = self._all[:, 0]
        in_all = n_tokens > 0
        # A share of nothing, or of a loss, is nothing.
        saves = (ratio(saved, n_tokens, in_all)["low"] or 0) > 0
        figures: dict[str, Any] = {"memory": ratio(memory, n_tokens, in_all)}
        for name, sums in self._by_row.items():
            edges = [int(edge) for edge in self._edges[name]]
            rows = zip([0, *edges], [*edges, None], sums.swapaxes(0, 1), strict=True)
            figures[name] = []
            for least, stop, row in rows:
                if row[0].any():
                    figures[name].append(row_figures(least, stop, row))
        return figures


def _add_at(sums: np.ndarray, places: np.ndarray, values: list[np.ndarray]) -> None:
    """Add values (tokens,) at the places (tokens,) of each array in `sums`.

    Token is added after token, so that blocks of any size give the same sums.
    """
    for array, value in zip(sums, values, strict=True):
        np.add.at(array.ravel(), places, value)
