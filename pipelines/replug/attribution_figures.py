"""The figures of an attribution: bits saved and memory's share, over all tokens and in rows."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from pipelines import draws, intervals
from pipelines.intervals import NOTHING, Interval

UNKNOWN = -1  # a study's number of a token of which it knows none
SUMMED = ("tokens", "bits_without", "bits_saved", "memory")


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
            n_rows = len(bounds) + 1
            self._by_row[name] = np.zeros((len(SUMMED), n_rows, clusters))

    def add(
        self,
        nats_without: np.ndarray,
        nats: np.ndarray,
        memory: np.ndarray,
        numbers: Mapping[str, np.ndarray],
        clusters: np.ndarray,
    ) -> None:
        """Add tokens: nats without and with documents, share of memory, and source document.

        All are (tokens,), as are the `numbers` of each study.
        """
        tokens = np.ones(len(nats))
        bits_without = nats_without / np.log(2)
        bits_saved = (nats_without - nats) / np.log(2)
        values = [tokens, bits_without, bits_saved, memory]
        _add_at(self._all, clusters, values)
        for name, numbers_of_tokens in numbers.items():
            has_number = numbers_of_tokens != UNKNOWN
            known_numbers = numbers_of_tokens[has_number]
            rows = np.searchsorted(self._edges[name], known_numbers, side="right")
            places = rows * self._clusters + clusters[has_number]
            _add_at(self._by_row[name], places, [value[has_number] for value in values])

    def figures(self, seed: int, resamples: int) -> dict[str, Any]:
        """The retriever's part of the metrics."""
        ratio = partial(_ratio, seed=seed, resamples=resamples)
        n_tokens, _, all_saved, memory = self._all[:, 0]
        in_all = n_tokens > 0
        memory_share = ratio(memory, n_tokens, in_all)
        figures: dict[str, Any] = {"memory": memory_share.as_json()}
        # A share of nothing, or of a loss, is nothing.
        clearly_saves = ratio(all_saved, n_tokens, in_all).sign == 1

        for name, sums in self._by_row.items():
            edges = self._edges[name].tolist()
            starts = [0, *edges]
            stops = [*edges, None]
            figures[name] = []
            for start, stop, row in zip(starts, stops, sums.swapaxes(0, 1), strict=True):
                tokens, bits_without, saved, memory_of_row = row
                if not tokens.any():
                    continue
                has_tokens = tokens > 0
                ratios = {
                    "none": ratio(bits_without, tokens, has_tokens),
                    "gain": ratio(saved, tokens, has_tokens),
                    "memory": ratio(memory_of_row, tokens, has_tokens),
                    "share_of_gain": NOTHING,
                }
                if clearly_saves:
                    ratios["share_of_gain"] = ratio(saved, all_saved, in_all)
                row_figures = {"least": start, "most": None if stop is None else stop - 1}
                row_figures["tokens"] = int(tokens.sum())
                row_figures |= {name: interval.as_json() for name, interval in ratios.items()}
                figures[name].append(row_figures)

        return figures


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
