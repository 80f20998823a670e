"""Fill the forms of wikitext.yaml, such as "{1}< ({2})>", with a template's parameters."""

import re
from collections.abc import Callable, Collection, Iterable

from pipelines.errors import LongtailError

FIELD = re.compile(r"\{([^{}:]+)(?::([a-z_]+))?\}")  # {1}, {lt|1} or {1:ymd}
OPTIONAL = re.compile(r"<([^<>]*)>")
OR_ELSE = re.compile(r"\|(?![^{}]*\})")
# A parameter: its name, or None where only its place counts, and its text.
Named = tuple[str | None, str]
# (names of a field, its kind or None) -> text, None where the field has no value
Value = Callable[[str, str | None], str | None]


class Parameters:
    """A template's parameters, by name and by place."""

    def __init__(self, template: str, parameters: Iterable[Named]) -> None:
        """Each parameter has a name, or None where only its place counts."""
        self._values = {"0": template}
        self.n_places = 0
        for name, value in parameters:
            if name is None:
                self.n_places += 1
                name = str(self.n_places)
            self._add(name.strip(), value.strip())

    def _add(self, name: str, value: str) -> None:
        self._values[name] = value
        if re.fullmatch("[0-9]{1,3}", name):
            self.n_places = max(self.n_places, int(name))

    def get(self, names: str) -> str:
        """The first value that there is of names such as "lt|1"; "" if there is none."""
        for name in names.split("|"):
            if name == "-1":
                name = str(self.n_places)
            value = self._values.get(name)
            if value:
                return value
        return ""

    def places(self, first: int, last: int | None = None) -> list[str]:
        """The values from a place to another one, or to the end."""
        if last is None:
            last = self.n_places
        return [self.get(str(place)) for place in range(first, last + 1)]


def filled(form: str, value: Value) -> str | None:
    """The first alternative of a form whose fields all have a value; None if there is none."""
    for alternative in OR_ELSE.split(form):
        text = _filled_alternative(alternative, value)
        if text is not None:
            return text
    return None


def _filled_alternative(alternative: str, value: Value) -> str | None:
    def optional(match: re.Match[str]) -> str:
        return match[1] if has_values(match[1]) else ""

    def has_values(part: str) -> bool:
        return all(value(field[1], field[2]) is not None for field in FIELD.finditer(part))

    def field_text(field: re.Match[str]) -> str:
        return value(field[1], field[2]) or ""

    while "<" in alternative:  # the innermost first
        alternative = OPTIONAL.sub(optional, alternative)
    if not has_values(alternative):
        return None
    text = FIELD.sub(field_text, alternative)
    return text.removeprefix("; ")  # of a list without its first part


def check(form: str, kinds: Collection[str]) -> None:
    """Raise LongtailError for a form that can't be read, or has a field of another kind."""
    text = FIELD.sub("", form)
    is_balanced = text.count("<") == text.count(">")
    has_braces = "{" in text or "}" in text
    unknown = {kind for _, kind in FIELD.findall(form)} - {"", *kinds}
    if has_braces or unknown or not is_balanced:
        raise LongtailError(
            f"the form {form!r} of a template can't be read, expected fields such as {{1}} or "
            f"{{1:ymd}}, one of {', '.join(kinds)}, and optional parts between < and >"
        )
