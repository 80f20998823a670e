"""The look before LSR's training: whether the language model can teach the retriever.

A language model that judges documents worse than the retriever makes it worse. Where answers are
known, both are judged by the documents that hold one. On texts, the documents' gains for the
language model say how much there is to learn, and the entropy of Q how much of it Q shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines import draws, intervals
from pipelines.errors import LongtailError
from pipelines.intervals import interval
from pipelines.lsr import objective

if TYPE_CHECKING:
    from pipelines.lsr.lsr_settings import Settings
    from pipelines.lsr.rounds import Refresher
    from pipelines.params.params import LSR

SAMPLE_QUERIES = 64  # training queries of each corpus that are looked at
RESAMPLES = 1000
BETTER = "raise lsr.n_shots, or name a larger model as lsr.lm"
UNIFORM_ENTROPY = 0.97  # of Q, above which there is little to learn
SPIKE_ENTROPY = 0.03  # of Q, below which there is little to learn


def look(refresher: Refresher, settings: Settings) -> list[dict[str, Any]]:
    """A row for each corpus of queries, whose keys data/README.md explains.

    Figures are as Interval.as_json.
    """
    return [look_at_corpus(refresher, number, settings) for number in range(len(refresher.corpora))]


def look_at_corpus(refresher: Refresher, number: int, settings: Settings) -> dict[str, Any]:
    """The row of a corpus, by a sample of its training queries."""
    lsr = settings.lsr
    corpus = refresher.corpora[number]
    ids = list(corpus.queries.ids[: corpus.train])
    sample = draws.sample(settings.seed, "lsr look", ids, SAMPLE_QUERIES)
    row: dict[str, Any] = {
        "corpus": corpus.name,
        "queries": len(sample),
        "documents": refresher.n_candidates,
        "beta": lsr.beta,
    }
    if not len(sample):
        return row

    positions, similarities = refresher.candidates(number, sample)
    scored = refresher.score(number, sample, positions)
    teaches = objective.informative(scored.targets)
    targets = scored.targets[teaches]
    row["uniform"] = 1 - float(teaches.mean())
    if lsr.q_entropy:
        row["beta"] = objective.beta_of_entropy(targets, lsr.q_entropy)
    row["entropy"] = objective.entropy(targets, row["beta"])

    if corpus.answers is None:
        gains = scored.gains
        figures = {
            "gain_first": gains[:, 0],
            "gain_mean": gains.mean(1),
            "gain_best": gains.max(1),
        }
    else:
        holds = refresher.hold_answers(number, sample, positions)
        figures = judged(scored.targets, similarities, holds)
    clusters = corpus.clusters[sample]
    for name, values in figures.items():
        generator = draws.generator(settings.seed, "lsr look", f"{corpus.name} {name}")
        mean = _mean(values, clusters, generator)
        if corpus.answers is not None:  # a share, or a difference of two
            least = -1 if name.endswith("gain") else 0
            mean = mean.within(least, 1)
        row[name] = mean.as_json()
    return row


def judged(lm: np.ndarray, retriever: np.ndarray, holds: np.ndarray) -> dict[str, np.ndarray]:
    """Each question's figures of `look`, (n,) each.

    `lm` and `retriever` are two scores of the same documents, and `holds` says which of these hold
    an answer, (n, k) each. An AUC compares each document that holds an answer with each that does
    not. It leaves out the pairs to which the language model gives equal scores, because they teach
    the retriever nothing, and is NaN if no pair is left. Where documents have the same best score,
    the first counts, which is the one that the retriever ranks highest.
    """
    one_holds = holds[:, :, None] & ~holds[:, None, :]
    differs = lm[:, :, None] != lm[:, None, :]
    pairs = one_holds & differs
    auc_lm = aucs(lm, pairs)
    auc_retriever = aucs(retriever, pairs)
    best_lm = _best_holds(lm, holds)
    best_retriever = _best_holds(retriever, holds)
    return {
        "auc_lm": auc_lm,
        "auc_retriever": auc_retriever,
        "auc_gain": auc_lm - auc_retriever,
        "best_lm": best_lm,
        "best_retriever": best_retriever,
        "best_gain": best_lm - best_retriever,
    }


def aucs(scores: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The share of the pairs (n, k, k) whose first document has the larger score, ties half.

    scores (n, k) -> (n,)
    """
    first = scores[:, :, None]
    second = scores[:, None, :]
    wins = (first > second) + 0.5 * (first == second)
    with np.errstate(invalid="ignore"):
        return (wins * pairs).sum((1, 2)) / pairs.sum((1, 2))


def _best_holds(scores: np.ndarray, holds: np.ndarray) -> np.ndarray:
    """1.0 where the document with the best score holds an answer, else 0.0: (n, k) each -> (n,)."""
    best = scores.argmax(1)
    return holds[np.arange(len(holds)), best].astype(float)


def check(name: str, rows: list[dict[str, Any]], lsr: LSR) -> None:
    """Print what was seen and what to change.

    Raises LongtailError if Q is uniform, to three digits, in every row.
    """
    for row in rows:
        prefix = f"{name}: {row['corpus']}"
        figures = [f"{key} {_shown(value)}" for key, value in row.items() if key != "corpus"]
        print(f"{prefix}: {', '.join(figures)}")
        if lsr.likelihood == "holds_answer":
            continue  # the documents' answers teach, and no language model that could be wrong
        for line in advice(row):
            print(f"warning: {prefix}: {line}")

    entropies = [row["entropy"] for row in rows if "entropy" in row]
    if all(round(entropy, 3) == 1.0 for entropy in entropies):
        change = "use mean_logprob, or lower lsr.beta"
        if lsr.likelihood == "answer_right":
            change = f"its answers are right with all documents or with none; {BETTER}"
        elif lsr.likelihood == "holds_answer":
            change = "all documents of a question hold an answer or none does; raise lsr.top_k"
        raise LongtailError(
            f"Q is uniform over a query's documents (entropy {entropies[0]:.5f} of 1) with "
            f"lsr.likelihood {lsr.likelihood}, so the retriever can learn nothing; {change}"
        )


def advice(row: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a row of `look`, and what to change."""
    if row.get("uniform") == 1:
        yield (
            "to the language model all documents of a query are equal, so it has nothing to teach; "
            f"{BETTER}"
        )
        return
    if _is_no_better(row):
        auc_lm = row["auc_lm"]["value"]
        auc_retriever = row["auc_retriever"]["value"]
        yield (
            "the language model tells documents with an answer from others no better than the "
            f"retriever does (AUC {auc_lm:.2f} against {auc_retriever:.2f}), so it has nothing to "
            f"teach; {BETTER}"
        )

    entropy = row.get("entropy", 0.5)
    figure = f"(entropy {entropy:.3f} of 1)"
    if entropy > UNIFORM_ENTROPY:
        yield f"Q is nearly uniform {figure}; lower lsr.beta, or set lsr.q_entropy"
    elif entropy < SPIKE_ENTROPY:
        yield f"Q is nearly one document's alone {figure}; raise lsr.beta, or set lsr.q_entropy"


def _is_no_better(row: dict[str, Any]) -> bool:
    """Whether the language model judges documents no better than the retriever."""
    return row.get("uniform") == 1 or interval(row.get("auc_gain")).value <= 0


def _mean(
    values: np.ndarray, clusters: np.ndarray, generator: np.random.Generator
) -> intervals.Interval:
    """The mean of the values (n,) that are numbers, with an interval.

    The interval is clustered by subject or source document.
    """
    is_number = np.isfinite(values)
    if not is_number.any():
        return intervals.NOTHING
    return intervals.mean(values[is_number], generator, RESAMPLES, clusters[is_number])


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        figure = interval(value)
        if not np.isfinite(figure.value):
            return "not known"
        return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
