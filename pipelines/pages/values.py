"""How values are shown on pages and terminals: names of methods and relations, figures with their
intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipelines import catalogue
from pipelines.adaptive.pairs import BELOW
from pipelines.intervals import Interval, digits_beside_zero, fixed, plainly, with_bounds
from pipelines.language import words
from pipelines.language.relations import RELATIONS
from pipelines.methods import Method

NONE = "\N{EN DASH}"  # what stands for an unknown figure and an empty text
CELL_CHARACTERS = 2000  # of a text that a page shows in a table; the CSV file has all
LABELS = {  # of methods, and of the policies of adaptive retrieval
    "closed_book": "without retrieval",
    "bm25": "BM25",
    "dense": "dense",
    "lsr": "LSR",
    "hybrid": "BM25 + dense",
    "none": "no document",
    "random": "random documents",
    "genread": "GenRead",
    "replug": "REPLUG",
    "replug_lsr": "REPLUG LSR",
    "given": "given passages",
    "replug_given": "REPLUG, given passages",
    "never": "without retrieval",
    "without_retrieval": "without retrieval",  # as a file may be called
    "always": "always retrieving",
    "adaptive": "adaptive retrieval",
}


@dataclass(frozen=True)
class Percent:
    """An Interval of shares, shown in per cent; `signed` for differences, shown in points."""

    interval: Interval
    signed: bool = False


class Share(float):
    """A share without an interval, shown in per cent; as a Percent, it is a share in CSV files."""


def label(name: str) -> str:
    """The name of a method, a policy, a retriever, a data set or two answers (adaptive/pairs.py).

    A further retriever's name follows its method, as LSR (bert).
    """
    if BELOW in name:
        below, above = name.split(BELOW)
        return f"{_label_of_model(below)} below {_label_of_model(above)}"

    method = Method.of_name(name)
    if method.retriever:
        return f"{LABELS[method.kind]} ({method.retriever})"
    return LABELS.get(name) or catalogue.label(name)


def _label_of_model(name: str) -> str:
    """The label of LM/METHOD, as in dense of llama, or of a method alone."""
    parts = [label(part) for part in name.split("/")]
    return " of ".join(reversed(parts))


def named(relation: str) -> str:
    """A relation as a reader knows it, such as "place of birth (P19)"."""
    if relation not in RELATIONS:
        return relation
    return f"{RELATIONS[relation].name} ({relation})"


def show(value: Any, signed: bool = False, digits: int | None = None) -> str:
    """A value of a table as text: intervals as `value [low, high]`, unknown figures as a dash."""
    if isinstance(value, Percent):
        return show(value.interval.times(100), value.signed, 1)
    if isinstance(value, Share):
        return show(100 * float(value))
    if isinstance(value, Interval):
        return _show_interval(value, signed, digits)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _show_float(value)

    text = "" if value is None else str(value)
    return words.beginning(text, CELL_CHARACTERS) or NONE


def _show_interval(figure: Interval, signed: bool, digits: int | None) -> str:
    if not math.isfinite(figure.value):
        return NONE
    if digits is None:
        digits = digits_of([figure])
    if signed:
        digits = digits_beside_zero(figure, digits)
    return with_bounds(figure, digits, signed=signed)


def _show_float(value: float) -> str:
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞"
    return plainly(value, 3)


def alone(value: Interval | Percent) -> str:
    """A figure in a sentence, as `show` has it, without its interval."""
    return show(value).partition(" [")[0]


def in_percent(share: Interval) -> str:
    """A share in a sentence, in per cent and without its interval."""
    return alone(Percent(share))


def in_points(change: Interval) -> str:
    """A change of a share in a sentence, in points and without its interval."""
    return alone(Percent(change, signed=True))


def saves(saved: Interval, verb: str = "save") -> str:
    """What saves or costs a part that is given in per cent, such as save 3.5 % or cost 3.7 %.

    An interval with 0 is no claim: save no clear part.
    """
    if not saved.sign:
        return f"{verb} no clear part"
    if saved.sign < 0:
        verb = verb.replace("save", "cost")
    digits = digits_beside_zero(saved, 1)
    return f"{verb} {fixed(abs(saved.value), digits)} %"


def percent(share: float, digits: int = 0) -> str:
    """A share in per cent, such as 25 %."""
    return f"{fixed(100 * share, digits)} %"


def points(change: Interval) -> str:
    """A change of a share, in points with its interval."""
    if not math.isfinite(change.value):
        return "an unknown amount"
    return f"{show(Percent(change, signed=True))} points"


def is_number(value: Any) -> bool:
    """Whether a value is shown as a number; a bool is shown as a word."""
    return isinstance(value, (Interval, Percent, int, float)) and not isinstance(value, bool)


def digits_of(figures: Iterable[Interval]) -> int:
    """How many digits after the point to show of figures in one column: fewer for
    larger numbers.
    """
    largest = 0.0
    for figure in figures:
        for bound in (figure.value, figure.low, figure.high):
            if math.isfinite(bound):
                largest = max(largest, abs(bound))

    if largest < 2:
        return 3
    if largest < 10:
        return 2
    return 1 if largest < 1000 else 0
