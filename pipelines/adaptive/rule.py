"""The rule for when to retrieve, what it does on a question, and its small JSON file, for any
program (PopQA, §6).

Adaptive retrieval, by thresholds, is advised if it is clearly better held out than the better of
always retrieving and not retrieving. It is also advised if it is not clearly worse and clearly
retrieves less. Otherwise the better of the two others is advised. Within a budget, not retrieving
is the only other. `choose_policy` has this rule and its words for all pages, commands and files.
Nothing heavy is imported here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, ValidationError

from pipelines.errors import LongtailError
from pipelines.intervals import Interval, digits_beside_zero, plainly, with_bounds
from pipelines.language.relations import name_of
from pipelines.storage.atomic import read_json

if TYPE_CHECKING:
    from pipelines.adaptive.tuning import Tuned

THRESHOLDS = "thresholds"
ALWAYS = "always"
NEVER = "never"
POLICY_NAMES = {  # policy in files -> its name in sentences
    NEVER: "without retrieval",
    ALWAYS: "always retrieving",
    THRESHOLDS: "adaptive retrieval",
}
SCHEMA = {"schema": "longtail-rule", "version": 2}
JSON_SCHEMA = Path(__file__).with_name("rule.schema.json")
VIEWS = "monthly page views"
FEWEST = 10  # questions that have to be right, and that a perfect choice has to win, for a claim
HELD_OUT = ("adaptive", "always", "never", "oracle", "gain", "retrieved")


def _of_json(cut: Any) -> Any:
    return math.inf if cut is None else cut


def _to_json(cut: float) -> float | None:
    return cut if math.isfinite(cut) else None


Cut = Annotated[  # a threshold; in JSON null stands for infinity
    float,
    BeforeValidator(_of_json),
    Field(ge=-sys.float_info.max),
    PlainSerializer(_to_json),
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

    above: str = ""  # the answer from the threshold on: a method's name, closed-book as a rule
    below: str = ""  # the answer below the threshold, which retrieves
    signal: str = VIEWS  # what the thresholds are cuts of
    # of the page views; None if it is not known, or the signal is something else
    month: str | None = None
    search: str = ""  # how the thresholds were searched for
    questions: int = 0  # number of questions that the thresholds were fitted to
    # the share of these that may retrieve; a rule without a budget does not have the field
    budget: float | None = Field(None, gt=0, le=1, exclude_if=lambda budget: budget is None)
    names: dict[str, str] = {}  # relation -> its name
    # relation -> bounds of the thresholds that are not clearly worse
    as_good: dict[str, tuple[Cut, Cut]] = {}
    held_out: dict[str, dict[str, float | None]] = {}  # figure -> value, low, high
    policy: str  # thresholds, always or never
    verdict: str  # the policy in words, with the points that thresholds gain or lose
    # relation -> retrieve below it; infinity throughout for always, 0 for never
    thresholds: dict[str, Cut]
    together: Cut  # the threshold of all relations together
    # relations with too few questions for a threshold of their own, which use `together`
    shared: tuple[str, ...]
    # relation -> the least and the largest signal tuned on
    observed: dict[str, tuple[float, float]]

    def key(self, relation: str | None) -> str:
        """The id of a relation by its id or its name; a relation that the rule does not have, as it
        is.
        """
        if relation is None:
            return ""
        if relation in self.thresholds:
            return relation
        ids = [key for key, name in self.names.items() if name == relation]
        return ids[0] if ids else relation

    def decide(self, relation: str | None, signal: float | None) -> Decision:
        """Retrieve below the threshold of the relation (id or name); an unknown relation takes
        `together`.

        Nothing is known beyond the signals that were tuned on. There the nearest side decides: what
        is best for the most popular subjects known is the best guess for still more popular ones. A
        signal that is not known (None or NaN) retrieves, unless the rule is never to retrieve.
        """
        key = self.key(relation)
        threshold = self.thresholds.get(key, self.together)
        if signal is None or math.isnan(signal):
            retrieve = self.policy != NEVER
            why = f"{self.signal} not known: retrieve, as nothing says whether memory would do"
        else:
            retrieve = signal < threshold
            why = self._why(key, signal, threshold)
        if self.policy != THRESHOLDS:
            why = self.verdict
        return Decision(retrieve, threshold, why)

    def _why(self, key: str, signal: float, threshold: float) -> str:
        """In words, on which side of whose threshold a known signal lies."""
        side = "below" if signal < threshold else "not below"
        if key not in self.thresholds:
            whose = "all relations together, as the rule has none of its relation"
        elif key in self.shared:
            whose = "all relations together"
        else:
            whose = "its relation"
        cut = plainly(threshold) if math.isfinite(threshold) else "which is always to retrieve"
        why = f"{plainly(signal)} is {side} the threshold of {whose}, {cut}"

        least, most = self.observed.get(key, (signal, signal))
        if signal > most:
            why += "; more than was tuned on"
        if signal < least:
            why += "; less than was tuned on"
        return why


def untestable(oracle: float, better: float, questions: int) -> str:
    """Why it can't be told whether thresholds are more accurate; "" if it can.

    `oracle` and `better` are the accuracies of the oracle and of the better constant policy.
    """
    right = round(better * questions)
    won = round((oracle - better) * questions)
    if min(right, won) >= FEWEST:
        return ""
    return f"{right:,} of {questions:,} questions are right, and an oracle would win {won:,} more"


def choose_policy(
    gain: Interval, better: str, retrieved: Interval, untestable: str = ""
) -> tuple[str, str]:
    """The advised policy, and the verdict: its name and the reason, in words.

    `gain` is the held-out accuracy of thresholds less that of the `better` constant policy, which
    is always or never. `retrieved` is the share of the questions that thresholds retrieve for, and
    `untestable` says why the gain can't be told, if so. A gain whose interval holds 0 is no proof
    that both are equally accurate, so the verdict ends with the figures and their intervals, in
    parentheses.
    """
    gained = gain.times(100)
    points = with_bounds(gained, digits_beside_zero(gained, 1), " points", signed=True)
    saved = retrieved.rest
    percent = saved.times(100)
    fewer = with_bounds(percent, digits_beside_zero(percent, 0), " % fewer")
    constant = POLICY_NAMES[better]
    adaptive = POLICY_NAMES[THRESHOLDS]
    if untestable:
        why = f"it can't be told whether {adaptive} is more accurate, as {untestable}"
        return better, f"{constant}: {why} ({points})"
    if gain.low > 0:
        return THRESHOLDS, f"{adaptive}: clearly more accurate than {constant} ({points})"
    if gain.high < 0:
        return better, f"{constant}: {adaptive} is clearly less accurate ({points})"
    if better == NEVER:
        why = f"{adaptive} costs more and is not clearly more accurate ({points})"
        return NEVER, f"{constant}: {why}"
    if saved.low > 0:
        why = f"no clear difference to {constant}, with clearly fewer retrievals"
        return THRESHOLDS, f"{adaptive}: {why} ({points}, {fewer})"
    why = f"{adaptive} is not clearly more accurate and saves no clear share of retrievals"
    return ALWAYS, f"{constant}: {why} ({points}, {fewer})"


def make_rule(
    policy: str, verdict: str, fitted: Mapping[str, float], together: float, **fields: Any
) -> Rule:
    """The rule by a chosen policy and the thresholds `fitted` to all questions; `fields` are
    further ones of a Rule.
    """
    constant = {ALWAYS: math.inf, NEVER: 0.0}
    cuts = {relation: constant.get(policy, cut) for relation, cut in fitted.items()}
    return Rule(
        policy=policy,
        verdict=verdict,
        thresholds=cuts,
        together=constant.get(policy, together),
        **fields,
    )


def of_tuned(
    tuned: Tuned,
    above: str,
    below: str,
    search: str,
    month: str | None,
    *,
    signal: str = VIEWS,
    names: Mapping[str, str] | None = None,
) -> Rule:
    """The rule that was tuned by `search`; `above` answers from the threshold on, `below` below it.

    `names` are those of relations; without them they are Wikidata's.
    """
    figures = tuned.figures[search]
    if names is None:
        names = {relation: name_of(relation) for relation in tuned.rule.thresholds}
    as_good = {}
    for row in tuned.relations:
        if row["search"] == search:
            as_good[row["relation"]] = (row["threshold_low"], row["threshold_high"])
    held_out = {}
    for name in HELD_OUT:
        figure = figures[name]
        held_out[name] = {key: figure[key] for key in ("value", "low", "high")}

    about = {
        "above": above,
        "below": below,
        "signal": signal,
        "month": month,
        "search": search,
        "questions": len(tuned.pairs.signal),
        "names": names,
        "as_good": as_good,
        "held_out": held_out,
    }
    return tuned.rule.model_copy(update=about)


def as_json(rule: Rule) -> dict[str, Any]:
    """The rule as its JSON file has it; a threshold or bound of null means always."""
    return SCHEMA | rule.model_dump(mode="json")


def parse(value: Any, where: str) -> Rule:
    """The rule in a JSON value.

    Raises LongtailError, with `where` it stands, for another schema or a bad field.
    """
    if not isinstance(value, dict) or value.get("schema") != SCHEMA["schema"]:
        expected = f"expected JSON with schema {SCHEMA['schema']!r}"
        raise LongtailError(f"{where}: no rule, {expected}; `longtail thresholds` writes one")
    version = value.get("version")
    if version != SCHEMA["version"]:
        change = "write it again by `longtail thresholds`" if version == 1 else "update Longtail"
        expected = f"expected {SCHEMA['version']}; {change}"
        raise LongtailError(f"{where}: version {version!r} of a rule, {expected}")
    try:
        return Rule.model_validate(value)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(key) for key in fault["loc"])
        raise LongtailError(
            f"{where}: not whole ({field}: {fault['msg']}), "
            "expected the fields of docs/thresholds.md"
        ) from None


def read_rule(path: Path, name: str = "") -> Rule:
    """The rule in a file.

    In a run's thresholds.json, which has many, it is the rule `name`, as popqa/opt-13b/bm25.
    """
    try:
        value = read_json(path)
    except (FileNotFoundError, ValueError, RecursionError) as error:
        fault = "no such file" if isinstance(error, FileNotFoundError) else "not JSON"
        raise LongtailError(
            f"{path}: {fault}, expected a rule; `longtail thresholds` writes one"
        ) from None

    rules = {"": value}
    if isinstance(value, dict) and "rules" in value:
        rules = named(value)
    if name in rules:
        return parse(rules[name], str(path))
    if not name and len(rules) == 1:
        return parse(next(iter(rules.values())), str(path))

    missing = f"no rule {name}, but " if name else ""
    names = ", ".join(rules) or "nothing that has a name"
    raise LongtailError(f"{path}: {missing}rules of {names}, expected one with --name")


def named(value: dict[str, Any]) -> dict[str, Any]:
    """The rules of a run's thresholds.json by their names, as popqa/opt-13b/bm25."""
    rules = {}
    for dataset, by_lm in value["rules"].items():
        for lm, by_method in by_lm.items():
            for method, rule in by_method.items():
                rules[f"{dataset}/{lm}/{method}"] = rule
    return rules
