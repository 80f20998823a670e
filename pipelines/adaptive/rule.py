"""The rule for when to retrieve, what it does on a question, and its small JSON file, for any program (PopQA, §6).

Thresholds give way to the better of always and never if their gain over it is below 0 with its whole interval. They
also give way to never if they gain nothing at all, because retrieving has to earn its price. Otherwise they stay: where
no difference is shown they retrieve less than always. Nothing heavy is imported here.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, ValidationError

from pipelines.errors import LongtailError
from pipelines.intervals import Interval, fixed, plainly
from pipelines.language.relations import RELATIONS

if TYPE_CHECKING:
    from pipelines.adaptive.tuning import Tuned

THRESHOLDS = "thresholds"
ALWAYS = "always"
NEVER = "never"
SCHEMA = {"schema": "longtail-rule", "version": 1}
JSON_SCHEMA = Path(__file__).with_name("rule.schema.json")
VIEWS = "monthly page views"
HELD_OUT = ("adaptive", "always", "never", "oracle", "gain", "retrieved")

Cut = Annotated[  # a threshold; in JSON null stands for infinity
    float,
    BeforeValidator(lambda cut: math.inf if cut is None else cut),
    Field(ge=-sys.float_info.max),
    PlainSerializer(lambda cut: cut if math.isfinite(cut) else None),
]


class Decision(NamedTuple):
    """Whether to retrieve; the threshold, infinity for always; and why, in words."""

    retrieve: bool
    threshold: float
    why: str


class Rule(BaseModel, frozen=True):
    """What to do with a question by its relation and its signal, such as its subject's popularity.

    The fields are those of the JSON file, in its order.
    """

    popular: str = ""  # the answer from the threshold on: a method's name, closed-book as a rule
    tail: str = ""  # the answer below the threshold, which retrieves
    signal: str = VIEWS  # what the thresholds are cuts of
    month: str | None = (
        None  # of the page views; None if it is not known, or the signal is something else
    )
    search: str = ""  # how the thresholds were searched for
    questions: int = 0  # number of questions that the thresholds were fitted to
    names: dict[str, str] = {}  # relation -> its name
    as_good: dict[
        str, tuple[Cut, Cut]
    ] = {}  # relation -> bounds of the thresholds that are not clearly worse
    held_out: dict[str, dict[str, float | None]] = {}  # figure -> value, low, high
    policy: str  # thresholds, always or never
    verdict: str  # the policy in words, with the points that thresholds gain or lose
    thresholds: dict[
        str, Cut
    ]  # relation -> retrieve below it; infinity throughout for always, 0 for never
    together: Cut  # the threshold of all relations together
    shared: tuple[
        str, ...
    ]  # relations with too few questions for a threshold of their own, which use `together`
    observed: dict[
        str, tuple[float, float]
    ]  # relation -> the least and the largest signal tuned on

    def key(self, relation: str | None) -> str:
        """The id of a relation by its id or its name; a relation that the rule does not have, as it is."""
        if relation is None or relation in self.thresholds:
            return relation or ""
        return next((key for key, name in self.names.items() if name == relation), relation)

    def decide(self, relation: str | None, signal: float | None) -> Decision:
        """Retrieve below the threshold of the relation (id or name); an unknown relation takes `together`.

        Nothing is known beyond the signals that were tuned on. There the nearest side decides: what is best for the
        most popular subjects known is the best guess for still more popular ones. A signal that is not known (None or
        NaN) retrieves, but where the rule is never to.
        """
        key = self.key(relation)
        threshold = self.thresholds.get(key, self.together)
        if signal is None or math.isnan(signal):
            retrieve = self.policy != NEVER
            why = f"{self.signal} not known: retrieve, as nothing says whether memory would do"
        else:
            retrieve = signal < threshold
            whose = "all relations together" if key in self.shared else "its relation"
            if key not in self.thresholds:
                whose = "all relations together, as the rule has none of its relation"
            why = f"{plainly(signal)} is {'below' if retrieve else 'not below'} the threshold of {whose}, "
            why += plainly(threshold) if math.isfinite(threshold) else "which is always to retrieve"
            least, most = self.observed.get(key, (signal, signal))
            why += "; more than was tuned on" * (signal > most) + "; less than was tuned on" * (
                signal < least
            )
        return Decision(retrieve, threshold, why if self.policy == THRESHOLDS else self.verdict)


def choose_policy(gain: Interval, better: str, retrieved: float) -> tuple[str, str]:
    """The policy, and the verdict in words, from the held-out `gain` of thresholds over the `better` constant policy.

    `better` is always or never; `retrieved` is the share of the questions that thresholds retrieve for.
    """
    low, value, high = (
        fixed(100 * number, 1, signed=True) for number in (gain.low, gain.value, gain.high)
    )
    bounds = f"[{low}, {high}]"
    if gain.high < 0 or (better == NEVER and gain.value <= 0):
        return (
            better,
            f"{better} retrieve: thresholds lose {abs(100 * gain.value):.1f} points here {bounds}",
        )
    if gain.low > 0:
        return (
            THRESHOLDS,
            f"thresholds: {100 * gain.value:.1f} points better than to {better} retrieve {bounds}",
        )
    return THRESHOLDS, (
        f"thresholds: no worse than to {better} retrieve ({value} points {bounds}), and "
        f"{100 * retrieved:.0f} % of the questions retrieve"
    )


def make_rule(
    policy: str, verdict: str, fitted: Mapping[str, float], together: float, **about: Any
) -> Rule:
    """The rule by a chosen policy and the thresholds `fitted` to all questions; `about` are further fields."""
    constant = {ALWAYS: math.inf, NEVER: 0.0}
    cuts = {relation: constant.get(policy, cut) for relation, cut in fitted.items()}
    return Rule(
        policy=policy,
        verdict=verdict,
        thresholds=cuts,
        together=constant.get(policy, together),
        **about,
    )


def as_json(rule: Rule) -> dict[str, Any]:
    """The rule as its JSON file has it; a threshold or bound of null means always."""
    return SCHEMA | rule.model_dump(mode="json")


def parse(value: Any, where: str) -> Rule:
    """The rule in a JSON value. Raises LongtailError, with `where` it stands, for another schema or a bad field."""
    if not isinstance(value, dict) or value.get("schema") != SCHEMA["schema"]:
        wanted = f"expected JSON with schema {SCHEMA['schema']!r}; `longtail thresholds` writes one"
        raise LongtailError(f"{where}: no rule, {wanted}")
    if value.get("version") != SCHEMA["version"]:
        wanted = f"expected {SCHEMA['version']}; update Longtail"
        raise LongtailError(f"{where}: version {value.get('version')!r} of a rule, {wanted}")
    try:
        return Rule.model_validate(value)
    except ValidationError as error:
        fault = error.errors()[0]
        said = f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        raise LongtailError(
            f"{where}: not whole ({said}), expected the fields of docs/adaptive.md"
        ) from None


def of_tuned(
    tuned: Tuned, popular: str, tail: str, search: str, month: str | None, **about: Any
) -> Rule:
    """The rule that was tuned by `search` for these two answers; `about` are further fields."""
    figures, rows = (
        tuned.figures[search],
        [row for row in tuned.relations if row["search"] == search],
    )
    made = {
        "popular": popular,
        "tail": tail,
        "search": search,
        "month": month,
        "questions": tuned.questions,
    }
    made["names"] = {
        key: RELATIONS[key].name if key in RELATIONS else key for key in tuned.rule.thresholds
    }
    made["as_good"] = {
        row["relation"]: (row["threshold_low"], row["threshold_high"]) for row in rows
    }
    made["held_out"] = {
        name: {key: figures[name][key] for key in ("value", "low", "high")} for name in HELD_OUT
    }
    return Rule(**vars(tuned.rule) | made | about)


def read_rule(path: Path, name: str = "") -> Rule:
    """The rule in a file. In a run's thresholds.json, which has many, it is the rule `name`, as popqa/opt-13b/bm25."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError) as error:
        lacks = "no such file" if isinstance(error, FileNotFoundError) else "not JSON"
        raise LongtailError(
            f"{path}: {lacks}, expected a rule; `longtail thresholds` writes one"
        ) from None
    rules = named(value) if isinstance(value, dict) and "rules" in value else {"": value}
    if name not in rules and (name or len(rules) != 1):
        has = ", ".join(rules) or "nothing that has a name"
        raise LongtailError(
            f"{path}: {f'no rule {name}, but ' * bool(name)}rules of {has}, expected one with --name"
        )
    return parse(rules[name] if name else next(iter(rules.values())), str(path))


def named(value: dict[str, Any]) -> dict[str, Any]:
    """The rules of a run's thresholds.json by their names, as popqa/opt-13b/bm25."""
    return {
        f"{dataset}/{lm}/{method}": entry
        for dataset, by_lm in value["rules"].items()
        for lm, by_method in by_lm.items()
        for method, entry in by_method.items()
    }
