"""The look before training: on a sample of training queries, whether the language model can teach the retriever.

A language model that judges documents worse than the retriever makes the retriever worse. Where answers are known, both
are judged by the documents that hold one. On texts, the documents' gains for the language model say how much there is
to learn, and the entropy of Q how much of it Q shows.
"""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from pipelines import draws, intervals
from pipelines.errors import LongtailError
from pipelines.intervals import interval
from pipelines.lsr import objective
from pipelines.lsr.rounds import Refresher
from pipelines.params.params import LSR

SAMPLE = 64  # training queries of each corpus
RESAMPLES = 1000
BETTER = "raise lsr.n_shots, or name a larger model as lsr.lm"
UNIFORM, SPIKE = 0.97, 0.03  # entropies of Q beyond which there is little to learn


def look(refresher: Refresher, params: SimpleNamespace) -> list[dict[str, Any]]:
    """A row for each corpus of queries, whose keys data/README.md explains; figures are as Interval.as_json."""
    lsr, rows = params.lsr, []
    for i, corpus in enumerate(refresher.corpora):
        drawn = draws.sample(params.seed, "lsr look", list(corpus.queries.ids[: corpus.train]), SAMPLE)
        row = {"corpus": corpus.name, "queries": len(drawn), "documents": len(refresher.ranks), "beta": lsr.beta}
        rows.append(row)
        if not len(drawn):
            continue
        positions, similarities = refresher.candidates(i, drawn)
        scored = refresher.score(i, drawn, positions)
        teach = objective.informative(scored.targets)
        row["uniform"] = 1 - float(teach.mean())
        if lsr.q_entropy:
            row["beta"] = objective.beta_of_entropy(scored.targets[teach], lsr.q_entropy)
        row["entropy"] = objective.entropy(scored.targets[teach], row["beta"])
        if corpus.answers is None:
            gains = scored.gains
            figures = {"gain_first": gains[:, 0], "gain_mean": gains.mean(1), "gain_best": gains.max(1)}
        else:
            holds = refresher.hold_answers(i, drawn, positions)
            figures = judged(scored.targets, similarities, holds)
        mean = partial(_mean, params.seed, corpus.name, corpus.clusters[drawn])
        row |= {name: mean(name, values).as_json() for name, values in figures.items()}
    return rows


def judged(lm: np.ndarray, retriever: np.ndarray, holds: np.ndarray) -> dict[str, np.ndarray]:
    """Each question's figures of `look` from two scores and which documents hold an answer, (n, k) each.

    Both AUCs are over the pairs that the language model tells apart, NaN without one: from others the retriever learns
    nothing. Of equal documents the best is the retriever's.
    """
    pairs = holds[:, :, None] & ~holds[:, None, :] & (lm[:, :, None] != lm[:, None, :])
    by_lm, by_retriever = aucs(lm, pairs), aucs(retriever, pairs)
    best_lm, best_retriever = (
        np.take_along_axis(holds, scores.argmax(1)[:, None], 1)[:, 0].astype(float) for scores in (lm, retriever)
    )
    return {
        "auc_lm": by_lm,
        "auc_retriever": by_retriever,
        "auc_gain": by_lm - by_retriever,
        "best_lm": best_lm,
        "best_retriever": best_retriever,
        "best_gain": best_lm - best_retriever,
    }


def aucs(scores: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The share of the pairs (n, k, k) whose first document has the larger score, ties half: scores (n, k) -> (n,)."""
    first, second = scores[:, :, None], scores[:, None, :]
    wins = (first > second) + 0.5 * (first == second)
    with np.errstate(invalid="ignore"):
        return (wins * pairs).sum((1, 2)) / pairs.sum((1, 2))


def check(name: str, rows: list[dict[str, Any]], lsr: LSR) -> None:
    """Print what was seen and what to change.

    Raises LongtailError if Q is uniform, to three digits, for all kinds of queries, and if a better teacher is required
    and missing.
    """
    for row in rows:
        seen = ", ".join(f"{key} {_shown(value)}" for key, value in row.items() if key != "corpus")
        print(f"{name}: {row['corpus']}: {seen}", flush=True)
        for said in advice(row):
            print(f"warning: {name}: {row['corpus']}: {said}", flush=True)
    worse = [row for row in rows if _no_better(row)]
    if lsr.require_better_teacher and worse:
        raise LongtailError(f"lsr.require_better_teacher: {worse[0]['corpus']}: {next(advice(worse[0]))}")
    entropies = [row["entropy"] for row in rows if "entropy" in row]
    if all(round(entropy, 3) == 1.0 for entropy in entropies):
        same = f"its answers are right with all documents or with none; {BETTER}"
        way = same if lsr.likelihood == "answer_right" else "use mean_logprob, or lower lsr.beta"
        raise LongtailError(
            f"the language model's distribution over documents is uniform (entropy {entropies[0]:.5f} of 1) with "
            f"lsr.likelihood {lsr.likelihood}, so the retriever can learn nothing; {way}"
        )


def advice(row: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a row of `look`, and what to change."""
    if row.get("uniform") == 1:
        yield f"to the language model all documents of a query are equal, so it has nothing to teach; {BETTER}"
        return
    if _no_better(row):
        yield (
            "the language model tells documents with an answer from others no better than the retriever does (AUC "
            f"{row['auc_lm']['value']:.2f} against {row['auc_retriever']['value']:.2f}), so it has nothing to teach; "
            f"{BETTER}"
        )
    entropy = row.get("entropy", 0.5)
    if entropy > UNIFORM or entropy < SPIKE:
        shape, way = ("nearly uniform", "lower") if entropy > UNIFORM else ("nearly one document's alone", "raise")
        yield f"Q is {shape} (entropy {entropy:.3f} of 1); {way} lsr.beta, or set lsr.q_entropy"


def _no_better(row: dict[str, Any]) -> bool:
    return row.get("uniform") == 1 or interval(row.get("auc_gain")).value <= 0


def _mean(seed: int, corpus: str, clusters: np.ndarray, name: str, values: np.ndarray) -> intervals.Interval:
    """The mean of the values (n,) that are known, with an interval clustered by subject or source document."""
    known = np.isfinite(values)
    if not known.any():
        return intervals.NOTHING
    generator = draws.generator(seed, "lsr look", f"{corpus} {name}")
    return intervals.mean(values[known], generator, RESAMPLES, clusters[known])


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        figure = interval(value)
        known = np.isfinite(figure.value)
        return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]" if known else "not known"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
