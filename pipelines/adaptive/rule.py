"""The rule for when to retrieve, what it does on a question, and its small JSON file, for any program (PopQA, §6).

Thresholds give way to the better of always and never if their gain over it is below 0 by more than chance, which is to
say with its whole interval. They also give way to never if they gain nothing at all, because retrieving has to earn its
price. Otherwise they stay: where no difference is shown they retrieve less than always.

`docs/adaptive.md` describes the file and shows a reader of ten lines; `rule.schema.json` is its JSON schema. Nothing
heavy is imported here.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import LongtailError
from pipelines.intervals import Interval, fixed, plainly
from pipelines.language.relations import RELATIONS

if TYPE_CHECKING:
    from pipelines.adaptive.tuning import Tuned

THRESHOLDS = "thresholds"
ALWAYS = "always"
NEVER = "never"
SCHEMA = "longtail-rule"
VERSION = 1
JSON_SCHEMA = Path(__file__).with_name("rule.schema.json")
VIEWS = "monthly page views"
HELD_OUT = ("adaptive", "always", "never", "oracle", "gain", "retrieved")


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


@dataclass(frozen=True)
class RuleFile:
    """A rule, which two answers it chooses between, and where it comes from."""

    rule: Rule
    popular: str  # the answer from the threshold on: a method's name, closed-book as a rule
    tail: str  # the answer below the threshold, which retrieves
    signal: str = VIEWS  # what the thresholds are cuts of
    month: str | None = None  # of the page views; None if it is not known, or the signal is something else
    search: str = ""  # how the thresholds were searched for
    questions: int = 0  # that they were fitted to
    names: Mapping[str, str] = field(default_factory=dict)  # relation -> its name
    middle: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # relation -> bounds of 95 % of thresholds
    held_out: Mapping[str, Any] = field(default_factory=dict)  # figure -> value, low, high

    def key(self, relation: str | None) -> str:
        """The id of a relation by its id or its name; a relation that the rule does not have, as it is."""
        if relation is None or relation in self.rule.thresholds:
            return relation or ""
        return next((key for key, name in self.names.items() if name == relation), relation)


ABOUT = [field.name for field in fields(RuleFile) if field.name != "rule"]  # what the JSON has beside the rule itself


def choose_policy(gain: Interval, better: str, retrieved: float) -> tuple[str, str]:
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


def make_rule(
    choice: tuple[str, str],
    fitted: Mapping[str, float],
    together: float,
    observed: Mapping[str, tuple[float, float]],
    shared: tuple[str, ...],
) -> Rule:
    """The rule by a chosen policy and the thresholds `fitted` to all questions."""
    policy, verdict = choice
    constant = {ALWAYS: math.inf, NEVER: 0.0}
    cuts = {relation: constant.get(policy, cut) for relation, cut in fitted.items()}
    return Rule(policy, verdict, cuts, observed, shared, constant.get(policy, together))


def decide_by_rule(file: RuleFile, relation: str | None, popularity: float | None) -> Decision:
    """Whether to retrieve for a question about this relation (id or name) whose subject has this popularity.

    A popularity that is not known is None or NaN.
    """
    return file.rule.decide(file.key(relation), math.nan if popularity is None else popularity)


def why(file: RuleFile, relation: str | None, popularity: float | None) -> str:
    """What `decide` says, in words."""
    decision, rule = decide_by_rule(file, relation, popularity), file.rule
    if rule.policy != THRESHOLDS:
        return rule.verdict
    if "unknown" in decision.remarks:
        return f"{file.signal} not known: retrieve, as nothing says whether memory would do"
    whose = "all relations together" if {"untuned", "shared"} & {*decision.remarks} else "its relation"
    whose += ", as the rule has none of its relation" * ("untuned" in decision.remarks)
    beyond = {"above": "; more than was tuned on", "below": "; less than was tuned on"}
    remarks = "".join(beyond.get(remark, "") for remark in decision.remarks)
    if which := {math.inf: "every", -sys.float_info.max: "no"}.get(decision.threshold):
        return f"{which} value of {file.signal} is below the threshold of {whose}{remarks}"
    side = "below" if decision.retrieve else "not below"
    return f"{plainly(popularity)} is {side} the threshold of {whose}, {plainly(decision.threshold)}{remarks}"


def as_json(file: RuleFile) -> dict[str, Any]:
    """The rule as its JSON file has it; a threshold or bound of null means always."""
    about = {name: getattr(file, name) for name in ABOUT}
    about["middle"] = {key: [_finite(bound) for bound in bounds] for key, bounds in file.middle.items()}
    return {"schema": SCHEMA, "version": VERSION} | about | file.rule.as_json()


def parse(value: Any, where: str) -> RuleFile:
    """The rule in a JSON value. Raises LongtailError, with `where` it stands, for another schema or a bad field."""
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise LongtailError(f"{where}: no rule, expected JSON with schema {SCHEMA!r}; `longtail thresholds` writes one")
    if value.get("version") != VERSION:
        raise LongtailError(f"{where}: version {value.get('version')!r} of a rule, expected {VERSION}; update Longtail")
    about = {name: value[name] for name in ABOUT if name in value}
    try:
        about["middle"] = {key: tuple(map(_cut, bounds)) for key, bounds in about.get("middle", {}).items()}
        file = RuleFile(rule=Rule.from_json(value), **about)
        numbers: Sequence[Any] = (*file.rule.thresholds.values(), file.rule.together)
        whole = all(isinstance(number, int | float) and not math.isnan(number) for number in numbers)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LongtailError(f"{where}: not whole ({error!r}), expected the fields of docs/adaptive.md") from None
    if not whole:
        raise LongtailError(f"{where}: a threshold is no number, expected numbers, or null for always")
    return file


def of_tuned(tuned: Tuned, popular: str, tail: str, search: str, month: str | None, **about: Any) -> RuleFile:
    """The rule that was tuned by `search` for these two answers; `about` are further fields of RuleFile."""
    figures, rows = tuned.figures[search], [row for row in tuned.relations if row["search"] == search]
    names = {relation: relation_name(relation) for relation in tuned.rule.thresholds}
    fields = {
        "questions": tuned.questions,
        "names": names,
        "middle": {row["relation"]: (row["threshold_low"], row["threshold_high"]) for row in rows},
        "held_out": {name: {key: figures[name][key] for key in ("value", "low", "high")} for name in HELD_OUT},
    }
    return RuleFile(tuned.rule, popular, tail, search=search, month=month, **fields | about)


def read_rule(path: Path, name: str = "") -> RuleFile:
    """The rule in a file. Of a run's thresholds.json, with many, it is that of `name`, as popqa/opt-13b/bm25.

    Raises LongtailError if the file is missing or has no such rule.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LongtailError(f"{path}: no such file, expected a rule; `longtail thresholds` writes one") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise LongtailError(f"{path}: not JSON ({error}), expected a rule; `longtail thresholds` writes one") from None
    if not isinstance(value, dict) or "rules" not in value:
        if name:
            raise LongtailError(
                f"--name {name}: {path} is a single rule, expected a run's thresholds.json; leave it out"
            )
        return parse(value, str(path))
    rules = named(value)
    if name not in rules and (name or len(rules) != 1):
        raise LongtailError(f"{path}: rules of {', '.join(rules) or 'nothing'}, expected one of them with --name")
    return parse(rules[name] if name else next(iter(rules.values())), str(path))


def named(value: dict[str, Any]) -> dict[str, Any]:
    """The rules of a run's thresholds.json by their names, as popqa/opt-13b/bm25."""
    return {
        f"{dataset}/{lm}/{method}": entry
        for dataset, by_lm in value["rules"].items()
        for lm, by_method in by_lm.items()
        for method, entry in by_method.items()
    }


def relation_name(relation: str) -> str:
    """A relation's name, where it is one of PopQA's; else its id."""
    return RELATIONS[relation].name if relation in RELATIONS else relation


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _cut(number: float | None) -> float:
    return math.inf if number is None else number
