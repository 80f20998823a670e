"""A port of the notebook that published adaptive retrieval, for tests and benchmarks: the same
steps and numbers.

It works on data frames, a split and a relation at a time: ten equal-width bins of log popularity
over all of a relation's questions, right answers counted per bin and side, and the first of the
eleven edges with the best training accuracy. Two things are not the notebook's: the splits are
given, where it shuffles, and the two answers of a question come in one row, where it sorts two
files by the question's text.
"""

import numpy as np
import pandas as pd


def run(frame: pd.DataFrame, splits: np.ndarray) -> tuple[list[dict[str, int]], pd.DataFrame]:
    """Each split's chosen edge (0 to 10) by relation, and a row of accuracies per split.

    `frame` has a row per question: relation, popularity, closed and augmented (bool); splits
    (splits, n) is true for training.
    """
    edges, rows = [], []
    for train in splits:
        frame["split"] = np.where(train, "train", "test")
        chosen, sides = {}, []
        for relation in frame["relation"].unique():
            own = frame[frame["relation"] == relation].copy()
            own["log_popularity"] = np.log(own["popularity"])
            _, bounds = np.histogram(own["log_popularity"])
            counts = {
                side: _counts(own[own["split"] == side], bounds) for side in ("train", "test")
            }
            accuracies = [_accuracy(counts["train"], edge) for edge in range(len(bounds))]
            edge = int(np.argmax(accuracies))
            chosen[relation] = edge
            side = {"adaptive": edge, "always": len(bounds) - 1, "never": 0}
            side = {policy: _accuracy(counts["test"], at) for policy, at in side.items()}
            side |= {
                "retrieved": sum(counts["test"]["augmented"][1][:edge]),
                "test_questions": sum(counts["test"]["closed"][1]),
            }
            sides.append(side)
        edges.append(chosen)
        rows.append(_over_relations(pd.DataFrame(sides)))
    return edges, pd.DataFrame(rows)


def _counts(side: pd.DataFrame, bounds: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Per bin: right answers and all answers, closed-book and augmented."""
    counts = {}
    for answer in ("closed", "augmented"):
        right, _ = np.histogram(side["log_popularity"][side[answer]], bins=bounds)
        wrong, _ = np.histogram(side["log_popularity"][~side[answer]], bins=bounds)
        counts[answer] = right, right + wrong
    return counts


def _accuracy(counts: dict[str, tuple[np.ndarray, np.ndarray]], edge: int) -> float:
    """The accuracy of retrieving in the bins below `edge`; NaN without questions."""
    (closed, all_closed), (augmented, all_augmented) = counts["closed"], counts["augmented"]
    asked = sum(all_augmented[:edge]) + sum(all_closed[edge:])
    return (sum(augmented[:edge]) + sum(closed[edge:])) / asked if asked else float("nan")


def _over_relations(sides: pd.DataFrame) -> dict[str, float]:
    """Accuracies of all relations together, weighted by their questions; relations without any
    have no say.
    """
    row = {}
    weights = sides["test_questions"]
    asked = weights.sum()
    known = sides[weights > 0]
    for name in ("adaptive", "always", "never"):
        row[name] = np.average(known[name], weights=weights[weights > 0]) if asked else float("nan")
    return row | {"retrieved": sides["retrieved"].sum() / asked if asked else float("nan")}
