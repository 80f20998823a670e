"""A small logistic regression on columns that may be unknown, such as the learned gate's."""

from __future__ import annotations

import numpy as np

from pipelines.adaptive.searches import PENALTY

STEPS = 100  # of Newton's method, at most
PRECISION = 1e-9  # change of the weights that ends the steps


def standardised(columns: dict[str, np.ndarray], side: np.ndarray) -> np.ndarray:
    """The regression's matrix, (n, weights): an intercept, then the columns.

    Numbers have mean 0 and deviation 1 over the known ones of the training `side`. One that is not known is 0 and has a
    1 in a column of its own. Columns that are constant there are left out.
    """
    made = [np.ones(len(side))]
    for values in columns.values():
        known = np.isfinite(values)
        if values.dtype != bool:
            of_side = values[side & known]
            deviation = of_side.std() if len(of_side) else 0.0
            if deviation > 0:
                made.append(np.where(known, (values - of_side.mean()) / deviation, 0.0))
            values = ~known
        if values[side].any() and not values[side].all():
            made.append(values.astype(float))
    return np.stack(made, axis=1)


def fit_logistic(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weights of the logistic regression of `y` (n,) bool on `x` (n, weights), by Newton's method.

    They minimise the sum of counts x log(1 + exp(-+ x w)) + PENALTY / 2 x the squared weights, where the first weight,
    the intercept, is free. `counts` (n,) are positive.
    """
    penalty = np.full(x.shape[1], PENALTY)
    penalty[0] = 0.0
    weights = np.zeros(x.shape[1])

    def loss(w: np.ndarray) -> float:
        wrong = np.logaddexp(0.0, np.where(y, -1.0, 1.0) * (x @ w))
        return float((counts * wrong).sum() + 0.5 * (penalty * w * w).sum())

    least = loss(weights)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -500, 500)))
        slope = x.T @ (counts * (p - y)) + penalty * weights
        curvature = (x * (counts * p * (1 - p))[:, None]).T @ x + np.diag(penalty)
        step = np.linalg.solve(curvature + 1e-12 * np.eye(len(weights)), slope)
        share = 1.0
        while (reached := loss(weights - share * step)) > least and share > 1e-6:
            share /= 2
        weights, least = weights - share * step, reached
        if np.abs(share * step).max() < PRECISION:
            break
    return weights
