"""The report's own sections, as sections.yaml describes them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from pipelines.evaluation import accuracy, answer_sets, examples, retrieval_effects
from pipelines.pages import figures, section, values
from pipelines.pages.section import Link
from pipelines.report import entries, lm_sections, question_sections, run_sections
from pipelines.report.entries import JINJA, Drawn, Entry, Part, Rows, Shown, answered
from pipelines.report.inputs import Inputs

FILE = Path(__file__).parent / "sections.yaml"
NAMES: dict[str, Any] = {  # the functions and constants that sections.yaml may name
    name: value
    for module in (question_sections, lm_sections, run_sections)
    for name, value in vars(module).items()
    if name.isupper() or getattr(value, "__module__", "") == module.__name__
}
WORDS = (
    vars(accuracy)
    | vars(answer_sets)
    | vars(examples)
    | vars(retrieval_effects)
    | vars(section) | vars(values) | vars(entries) | NAMES
)  # what words and `where` may use


def report_sections() -> dict[str, Entry]:
    """Id -> entry, in their order. Raises KeyError if one names a function that is not there."""
    made = []
    for entry in _content()["sections"]:
        texts = (entry.get(key, "") for key in ("says", "missing"))
        functions = (NAMES[words] if words.isidentifier() else _words(words) for words in texts)
        made.append(Entry(entry["id"], entry["title"], [*map(_part, entry["parts"])], *functions))
    return {entry.id: entry for entry in made}


def page_text(name: str, inputs: Inputs) -> str:
    """The page's `introduction` or `footer`."""
    return _words(_content()[name])(inputs)


def _content() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def _words(template: str) -> Callable[..., str]:
    """A function that gives these words for a run, and for some rows or a rule of being right."""
    read = JINJA.from_string(template)
    return lambda inputs, given="": " ".join(
        read.render(WORDS, inputs=inputs, rows=given, rule=given).split()
    )


def _part(part: Mapping[str, Any]) -> Part:
    if "text" in part:
        text = _words(part["text"])
        return lambda inputs: [
            Link(words, part["link"]) if "link" in part else words
            for words in [text(inputs)]
            if words
        ]
    if "blocks" in part:
        return lambda inputs: [*NAMES[part["blocks"]](inputs)]
    words = {"rows": _rows(part), "caption": _words(part["caption"])}
    if "table" in part:
        heads = (
            part.get("heads", {}) if isinstance(part["columns"], list) else NAMES[part["columns"]]
        )
        columns = part["columns"] if isinstance(part["columns"], list) else [*heads]
        return Shown(part["table"], columns=columns, heads=heads, **words)
    options = {key: part[key] for key in ("series", "each", "least") if key in part}
    kind, x = (
        getattr(figures, part["draw"]),
        JINJA.compile_expression(part["x"], undefined_to_none=False),
    )
    return Drawn(kind, part["figure"], x=x, y=part["y"], words=part["axes"], **words, **options)


def _rows(part: Mapping[str, Any]) -> Rows:
    if part["rows"].isidentifier():
        rows = NAMES.get(part["rows"]) or answered(part["rows"])
    else:
        rows = JINJA.compile_expression(part["rows"], undefined_to_none=False)
    if "where" not in part:
        return lambda inputs: rows(inputs=inputs)
    holds = JINJA.compile_expression(part["where"], undefined_to_none=False)
    return lambda inputs: [
        row for row in rows(inputs=inputs) if holds(WORDS, inputs=inputs, row=row)
    ]
