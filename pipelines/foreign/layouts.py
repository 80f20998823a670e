"""What columns of predictions are called, and where known systems have them: layouts.yaml says both."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipelines.foreign.cell_values import written_list
from pipelines.foreign.records import plain

_SAID = yaml.safe_load(
    Path(__file__).with_name("layouts.yaml").read_text(encoding="utf-8")
)
_NAMES: dict[str, tuple[str, ...]] = {}


def _names(said: str) -> tuple[str, ...]:
    return tuple(name for word in said.split() for name in _NAMES.get(word, (word,)))


for _name, _said in _SAID["names"].items():
    _NAMES[_name] = _names(_said)
# in the order of the file
(
    PREDICTION,
    CONVERSATION,
    JUDGED,
    SCORES,
    IDS,
    QUESTION,
    ANSWERS,
    PROMPT,
    RETRIEVED,
    TELLING,
    ASKED,
) = _NAMES.values()
DOUBT = _SAID["doubt"]
ROLES = {"prediction": PREDICTION + CONVERSATION, "correct": JUDGED + SCORES}
ROLES |= {"question": QUESTION, "answers": ANSWERS, "prompt": PROMPT}
FILTER = "harness_filter"  # rows with other filters repeat the question: only the first filter's rows are read


class Layout(NamedTuple):
    """A known system's layout. A place is a field, or a path as `output.pred`, `output.0` (the first of a list), or
    `output.#` (how long a list is).

    Of `a|b` the first counts that has something. Without `within`, all fields of the record are taken.
    """

    name: str
    needs: Sequence[str]  # places that a record has
    within: Mapping[
        str, Collection[str]
    ] = {}  # object, "" for the record -> the columns that are taken of it
    columns: Mapping[str, str] = {}  # column -> its place
    prompt: Sequence[str] = (
        "",
        "",
    )  # place of a prompt, and the pattern whose group is the question


def _layout(said: dict[str, Any]) -> Layout:
    within = {place: _names(names) for place, names in said.get("within", {}).items()}
    return Layout(**said | {"needs": said["needs"].split(), "within": within})


LAYOUTS = tuple(map(_layout, _SAID["layouts"]))
PLACES = [
    place
    for layout in LAYOUTS
    for place in (*layout.needs, *layout.within, *layout.columns.values())
]
KNOWN = {*ROLES["prediction"], *JUDGED, *SCORES, *ASKED, FILTER}
FIELDS = {
    plain(path.partition(".")[0]) for place in PLACES for path in place.split("|")
}  # in some layout


def layout_of(records: Sequence[Mapping[str, Any]]) -> Layout:
    """The layout of the file that begins with these records, some of which may lack an answer."""
    return next(
        layout
        for layout in LAYOUTS
        if any(all(values_at(one, place) for place in layout.needs) for one in records)
    )


def flattened(record: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """The columns of a record."""
    row = {
        name: value
        for name, value in record.items()
        if not layout.within or plain(name) not in KNOWN
    }
    for place, names in layout.within.items():
        for fields in values_at(record, place) if place else [record]:
            if isinstance(fields, dict):
                row |= {name: value for name, value in fields.items() if plain(name) in names}
    for name, place in layout.columns.items():
        values = values_at(record, place)
        if values or name != "prediction":  # a record without its place is of another layout
            instead = row.get(name) if name == "retrieved" else None
            row[name] = next((value for value in values if value not in (None, [])), instead)
    if (
        "answers" in layout.columns
        and isinstance(one := row["answers"], str)
        and written_list(one) is None
    ):
        row["answers"] = [one]
    place, pattern = layout.prompt
    if place and isinstance(prompt := record.get(place), str):
        match = re.match(pattern, prompt)
        row["question"] = match and match[1]
    for name in row.keys() & {"question", *PROMPT}:
        row[name] = " ".join(_strings(row[name])) if isinstance(row[name], list) else row[name]
    return row


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inside = (
        [value.get(name) for name in ("content", "prompt", "text")]
        if isinstance(value, dict)
        else value
    )
    return [text for one in inside for text in _strings(one)] if isinstance(inside, list) else []


def values_at(record: Mapping[str, Any], place: str) -> list[Any]:
    """What stands at a place, for each of its paths that the record has."""
    values = []
    for path in place.split("|"):
        value: Any = record
        try:
            for field in path.split("."):
                is_list = isinstance(value, list)
                value = (
                    len(value)
                    if is_list and field == "#"
                    else value[int(field) if is_list else field]
                )
        except (KeyError, IndexError, TypeError, ValueError):
            continue
        values.append(value)
    return values
