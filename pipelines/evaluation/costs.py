"""What an answer costs by method, and what retrieving only below the thresholds saves (PopQA, Figures 11 and 12)."""

from __future__ import annotations

import math

import numpy as np

from pipelines.evaluation.accuracy import Answers, Method


def costs(answers: Answers) -> list[dict]:
    """A question's mean prompts, tokens and, for 1,000 of them, money, by method; NaN where a file does not say."""
    return [
        {"method": method, "questions": len(answers.ids)}
        | {name: _mean(getattr(own, name)) for name in ("calls", "prompt_tokens", "new_tokens")}
        | {"cost_per_1000": 1000 * _mean(own.cost)}
        for method, own in answers.of.items()
    ]


def savings(answers: Answers, thresholds: dict[str, dict[str, float | None]], seed: int, resamples: int) -> list[dict]:
    """What retrieving below `thresholds` (method -> relation -> cut, None: always) saves against always, in per cent.

    Over the questions whose popularity is known and whose relation has a threshold. `retrieved` is the share of these
    that does retrieve.
    """
    if "closed_book" not in answers.of:
        return []
    closed, rows, asked = answers.of["closed_book"], [], {}
    for method in (method for method in answers.of if method in thresholds):
        limits = {relation: math.inf if cut is None else cut for relation, cut in thresholds[method].items()}
        own_limits = np.array([limits.get(relation, math.nan) for relation in answers.relations], float)
        judged = np.isfinite(answers.popularity) & ~np.isnan(own_limits)
        retrieves = judged & (answers.popularity < own_limits)
        rows.append({"method": method, "questions": int(judged.sum()), "retrieved": _mean(retrieves[judged])})
        for name, always, never in _spent(answers.of[method], closed):
            known = judged & np.isfinite(always) & np.isfinite(never)
            adaptive = np.where(retrieves, always, never)
            asked[method, name] = _saved, [np.where(known, column, 0.0) for column in (adaptive, always)]
    found = answers.bootstraps(asked, seed, resamples)
    return [row | {f"{name}_saved": found[row["method"], name] for name in ("calls", "tokens", "cost")} for row in rows]


def _spent(augmented: Method, closed: Method) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(what, with retrieval, without), of each question."""
    tokens = [own.prompt_tokens + own.new_tokens for own in (augmented, closed)]
    return [("calls", augmented.calls, closed.calls), ("tokens", *tokens), ("cost", augmented.cost, closed.cost)]


def _saved(sums: np.ndarray) -> np.ndarray:
    return 100 * (1 - sums[:, 0] / sums[:, 1])


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan
