"""The rule that is put to use: thresholds, or always or never to retrieve where thresholds lose accuracy (PopQA, §6).

Thresholds give way to the better of always and never if their gain over it is below 0 by more than chance, which is to
say with its whole interval. They also give way to never if they gain nothing at all, because retrieving has to earn its
price. Otherwise they stay: where no difference is shown they retrieve less than always.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.intervals import Interval, fixed

THRESHOLDS = "thresholds"
ALWAYS = "always"
NEVER = "never"


@dataclass(frozen=True)
class Decision:
    """Whether to retrieve; the threshold, infinity for always; and what is unusual about it, for people."""

    retrieve: bool
    threshold: float
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """What to do with a question by its relation and its signal, such as its subject's popularity."""

    policy: str  # thresholds, always or never
    verdict: str  # the same in words, with what thresholds gain or lose
    thresholds: Mapping[str, float]  # relation -> retrieve below it; infinity throughout for always, 0 for never
    observed: Mapping[str, tuple[float, float]]  # relation -> the least and the largest signal tuned on
    shared: tuple[str, ...]  # relations too small for a threshold of their own
    together: float  # the threshold of all relations together, which these share

    def decide(self, relation: str, signal: float) -> Decision:
        """Retrieve below the relation's threshold; a relation that was not tuned on takes that of all together.

        Nothing is known beyond the signals that were tuned on. There the nearest side decides: what is best for the
        most popular subjects known is the best guess for still more popular ones. A signal that is not known (NaN)
        retrieves, but where the rule is never to.
        """
        threshold = self.thresholds.get(relation, self.together)
        if signal != signal:
            return Decision(self.policy != NEVER, threshold, ("unknown",))
        remarks = ["untuned"] if relation not in self.thresholds else ["shared"] if relation in self.shared else []
        least, most = self.observed.get(relation, (signal, signal))
        remarks += ["above"] if signal > most else ["below"] if signal < least else []
        return Decision(signal < threshold, threshold, tuple(remarks))

    def as_json(self) -> dict:
        """What `from_json` reads; null is a threshold of infinity."""
        return {
            "policy": self.policy,
            "verdict": self.verdict,
            "thresholds": {relation: _finite(cut) for relation, cut in self.thresholds.items()},
            "together": _finite(self.together),
            "shared": list(self.shared),
            "observed": {relation: list(bounds) for relation, bounds in self.observed.items()},
        }

    @classmethod
    def from_json(cls, made: Mapping) -> Rule:
        return cls(
            policy=made["policy"],
            verdict=made["verdict"],
            thresholds={relation: _cut(cut) for relation, cut in made["thresholds"].items()},
            observed={relation: (least, most) for relation, (least, most) in made["observed"].items()},
            shared=tuple(made["shared"]),
            together=_cut(made["together"]),
        )


def choose(gain: Interval, better: str, retrieved: float) -> tuple[str, str]:
    """The policy, and the verdict in words, from the held-out `gain` of thresholds over the `better` constant policy.

    `better` is always or never; `retrieved` is the share of the questions that thresholds retrieve for.
    """
    low, value, high = (fixed(100 * number, 1, signed=True) for number in (gain.low, gain.value, gain.high))
    bounds = f"[{low}, {high}]"
    if gain.high < 0 or (better == NEVER and gain.value <= 0):
        return better, f"{better} retrieve: thresholds lose {abs(100 * gain.value):.1f} points here {bounds}"
    if gain.low > 0:
        return THRESHOLDS, f"thresholds: {100 * gain.value:.1f} points better than to {better} retrieve {bounds}"
    return THRESHOLDS, (
        f"thresholds: no worse than to {better} retrieve ({value} points {bounds}), and "
        f"{100 * retrieved:.0f} % of the questions retrieve"
    )


def make(
    choice: tuple[str, str],
    fitted: Mapping[str, float],
    together: float,
    observed: Mapping[str, tuple[float, float]],
    shared: tuple[str, ...],
) -> Rule:
    """The rule by a `choose`n policy and the thresholds `fitted` to all questions."""
    policy, verdict = choice
    constant = {ALWAYS: math.inf, NEVER: 0.0}
    cuts = {relation: constant.get(policy, cut) for relation, cut in fitted.items()}
    return Rule(policy, verdict, cuts, observed, shared, constant.get(policy, together))


def _finite(threshold: float) -> float | None:
    return threshold if math.isfinite(threshold) else None


def _cut(threshold: float | None) -> float:
    return math.inf if threshold is None else threshold
