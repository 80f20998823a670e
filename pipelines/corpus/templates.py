"""Write what a reader sees of the templates that are part of a sentence, such as 5 km for
{{convert|5|km}}.

The tables of wikitext.yaml hold for every Wikipedia, those of a language's file for its own. A
template of neither is dropped. A table maps a form to the templates that are shown so.
wikitext.yaml says how a form is written.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import yaml

from pipelines.errors import LongtailError
from pipelines.language.language import MediaWiki

FIELD = re.compile(r"\{([^{}:]+)(?::([a-z_]+))?\}")  # {1}, {lt|1} or {1:ymd}
OPTIONAL = re.compile(r"<([^<>]*)>")
OR_ELSE = re.compile(r"\|(?![^{}]*\})")
# such as 5, -1,5 or 5+1/2, and a range of two
NUMBER = r"[-+~\u2212]?[\d.,/]+(?:\+[\d/]+)?(?:e[-+]?\d+)?"
RANGE = re.compile(rf"{NUMBER}(?: ?(?:[-\u2013x\u00d7\u00b1]|to|by) ?{NUMBER})?")
POWER_OF_TEN = re.compile(r"e(3|6|9|12)(?=\D)")  # before a unit
PLAIN_NUMBER = re.compile(r"([-+\u2212]?)(\d+)(?:\.(\d+))?")
ISO_DATE = re.compile(r"(-?\d{1,4})-(\d{1,2})-(\d{1,2})")
SUPERSCRIPT = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
DAY_FIRST = "{day} {month} {year}|{month} {year}"
ORDINAL_ENDS = {"1": "st", "2": "nd", "3": "rd"}
DIRECTIONS = frozenset("NSEW")

_READ = yaml.safe_load(Path(__file__).with_name("wikitext.yaml").read_text(encoding="utf-8"))


class Parameters:
    """A template's parameters, by name and by place."""

    def __init__(self, template: str, parameters: Iterable[tuple[str | None, str]]) -> None:
        """Each parameter has a name, or None where only its place counts."""
        self._values = {"0": template}
        self.n_places = 0
        for name, value in parameters:
            if name is None:
                self.n_places += 1
                name = str(self.n_places)
            name = name.strip()
            self._values[name] = value.strip()
            if name.isdecimal():
                self.n_places = max(self.n_places, int(name[:3]))

    def get(self, names: str) -> str:
        """The first value that there is of names such as "lt|1"; "" if there is none."""
        for name in names.split("|"):
            if name == "-1":
                name = str(self.n_places)
            value = self._values.get(name)
            if value:
                return value
        return ""

    def places(self, first: str, n: int | None = None) -> list[str]:
        """The values of `n` places, or of all, from a place on."""
        begin = int(first)
        end = self.n_places + 1 if n is None else begin + n
        return [self.get(str(place)) for place in range(begin, end)]


class Wiki:
    """What one Wikipedia shows of its templates, and which links it hides."""

    def __init__(self, media: MediaWiki) -> None:
        self._media = media
        self.form = lru_cache(maxsize=1 << 14)(self._form)  # the same few templates are everywhere
        prefixes = "|".join(map(re.escape, media.hidden_links.split()))
        self.hidden_link = re.compile(rf"\s*({prefixes})\s*:", re.IGNORECASE)
        self.variants = media.variants.split()
        self._months = media.months.split()
        self._forms = _by_name(_READ["shown"]) | _by_name(media.shown)
        self._forms_of_patterns = []
        for form, patterns in [*media.shown_patterns.items(), *_READ["shown_patterns"].items()]:
            self._forms_of_patterns.append((re.compile("|".join(patterns)), form))
        for form in {*self._forms.values(), *(form for _, form in self._forms_of_patterns)}:
            _check(form)

    def _form(self, template: str) -> str | None:
        """How a template is shown, "" if it shows nothing of a sentence, None if it is not known.

        `template` is its name, or as "formatnum:5", a function with its first parameter.
        """
        name = _name(template)
        form = self._forms.get(name)
        if form is None and ":" in name:
            form = self._forms.get(name[: name.index(":") + 1])
        if form is not None:
            return form
        for pattern, pattern_form in self._forms_of_patterns:
            if pattern.fullmatch(name):
                return pattern_form
        return None

    def text(self, template: str, parameters: list[tuple[str | None, str]]) -> str | None:
        """The text that a reader sees of a template with these (name or None, value) parameters;
        None if it is not known or has no parameter that its form asks for.
        """
        form = self.form(template)
        if form is None:
            return None
        if ":" in template and _name(template) not in self._forms:
            template, _, first = template.partition(":")
            parameters = [(None, first), *parameters]
        return self._filled(form, Parameters(" ".join(template.split()), parameters))

    def _filled(self, form: str, parameters: Parameters) -> str | None:
        """The first alternative of a form whose fields all have a value; None if there is none."""
        for alternative in OR_ELSE.split(form):
            text = self._filled_alternative(alternative, parameters)
            if text is not None:
                return text
        return None

    def _filled_alternative(self, alternative: str, parameters: Parameters) -> str | None:
        def optional(match: re.Match[str]) -> str:
            return match[1] if has_values(match[1]) else ""

        def has_values(part: str) -> bool:
            return all(value(field) is not None for field in FIELD.finditer(part))

        def value(field: re.Match[str]) -> str | None:
            if field[2]:
                return KINDS[field[2]](self, parameters, field[1])
            return parameters.get(field[1]) or None

        n_optional = 1
        while n_optional:  # the innermost first
            alternative, n_optional = OPTIONAL.subn(optional, alternative)
        if not has_values(alternative):
            return None
        text = FIELD.sub(lambda field: value(field) or "", alternative)
        return text.removeprefix("; ")

    def date(self, parts: list[str], day_first: bool = False) -> str | None:
        """A date of year, month and day as the language writes it; None without any."""
        values = dict(zip(("year", "month", "day"), parts, strict=True))
        written = [value for value in values.values() if value]
        if len(written) < 2:
            return written[0] if written else None
        if values["day"].isdecimal():
            values["day"] = str(int(values["day"]))
        if values["day"] == "1":
            values["day"] = self._media.first_day
        if values["month"].isdecimal() and 1 <= int(values["month"]) <= len(self._months):
            values["month"] = self._months[int(values["month"]) - 1]
        form = DAY_FIRST if day_first else self._media.date
        return self._filled(form, Parameters("", values.items()))

    def number(self, text: str) -> str:
        """A number with the language's marks for thousands and decimals; other texts as they
        are.
        """
        number = PLAIN_NUMBER.fullmatch(text.replace(",", ""))
        if not number:
            return text
        sign, whole, decimals = number.groups()
        if len(whole) >= self._media.grouped_from:
            whole = f"{int(whole):,}".replace(",", self._media.thousands)
        return sign + whole + (self._media.decimal + decimals if decimals else "")


def _name(template: str) -> str:
    return " ".join(template.replace("_", " ").split()).lower()


def _by_name(names_of: Mapping[str, list[str]]) -> dict[str, str]:
    """Each template of a table -> its form."""
    form_of: dict[str, str] = {}
    for form, names in names_of.items():
        form_of |= dict.fromkeys(map(str, names), form)
    return form_of


def _check(form: str) -> None:
    """Raise LongtailError for a form that can't be read."""
    rest = FIELD.sub("", form)
    kinds = {field[2] for field in FIELD.finditer(form) if field[2]}
    if set(rest) & set("{}") or rest.count("<") != rest.count(">") or not kinds <= KINDS.keys():
        raise LongtailError(
            f"the form {form!r} of a template can't be read, expected fields such as {{1}} or "
            f"{{1:ymd}}, one of {', '.join(KINDS)}, and optional parts between < and >"
        )


def _if(_: Wiki, parameters: Parameters, field: str) -> str | None:
    return "" if parameters.get(field) else None


def _ymd(wiki: Wiki, parameters: Parameters, field: str) -> str | None:
    parts = parameters.places(field, 3)
    day_first = parameters.get("df") not in ("", "n", "no")
    return _whole_date(wiki, parts[0]) or wiki.date(parts, day_first)


def _dmy(wiki: Wiki, parameters: Parameters, field: str) -> str | None:
    parts = parameters.places(field, 3)
    return _whole_date(wiki, parts[0]) or wiki.date(parts[::-1])


def _whole_date(wiki: Wiki, text: str) -> str | None:
    """A date that is one parameter, as "12 March 1850" or "1850-03-12"; None if it has more."""
    date = ISO_DATE.fullmatch(text)
    if date:
        return wiki.date(list(date.groups()))
    return text if " " in text else None


def _age(_: Wiki, parameters: Parameters, field: str) -> str | None:
    """The whole years between two dates of year, month and day, whichever comes first."""
    return _years(parameters.places(field, 3), parameters.places(str(int(field) + 3), 3))


def _age_dmy(_: Wiki, parameters: Parameters, field: str) -> str | None:
    """The whole years between two dates of day, month and year, whichever comes first."""
    second = str(int(field) + 3)
    return _years(parameters.places(field, 3)[::-1], parameters.places(second, 3)[::-1])


def _years(*dates: list[str]) -> str | None:
    if not all(part.isdecimal() for date in dates for part in date):
        return None
    earlier, later = sorted([int(part) for part in date] for date in dates)
    before_birthday = later[1:] < earlier[1:]
    return str(later[0] - earlier[0] - before_birthday)


def _number(wiki: Wiki, parameters: Parameters, field: str) -> str | None:
    number = parameters.get(field)
    if not number:
        return None
    return number if parameters.get("2") in ("R", "NOSEP") else wiki.number(number)


def _measure(_: Wiki, parameters: Parameters, field: str) -> str | None:
    """The measure before its conversion: "5 to 10 km" of {{cvt|5|to|10|km|mi}}, "5 ft 8 in" of
    {{cvt|5|ft|8|in|m}}.
    """
    places = parameters.places(field)
    text = ""
    for number, unit in zip(places[::2], places[1::2], strict=False):
        if not RANGE.fullmatch(number):
            break
        text += number + (BETWEEN.get(unit) or f" {_unit_text(unit)} ")
    return text.strip() or None


def _unit(_: Wiki, parameters: Parameters, field: str) -> str | None:
    unit = parameters.get(field)
    return _unit_text(unit) if unit else None


def _unit_text(unit: str) -> str:
    power = POWER_OF_TEN.match(unit)
    if power:
        return f"{_READ['powers_of_ten'][int(power[1])]} {_unit_text(unit[power.end() :])}"
    return _READ["units"].get(unit, unit)


def _amount(_: Wiki, parameters: Parameters, field: str) -> str | None:
    return _READ["amounts"].get(parameters.get(field))


def _powers(_: Wiki, parameters: Parameters, field: str) -> str | None:
    """Units and their powers in turn: "m·s⁻²" of m||s|-2."""
    places = parameters.places(field)
    units = []
    for place in range(0, len(places), 2):
        power = "".join(places[place + 1 : place + 2])
        units.append(places[place] + power.translate(SUPERSCRIPT))
    return "\u00b7".join(filter(None, units)) or None


def _list(_: Wiki, parameters: Parameters, field: str) -> str | None:
    return ", ".join(filter(None, parameters.places(field))) or None


def _joined(_: Wiki, parameters: Parameters, field: str) -> str | None:
    return "".join(parameters.places(field)) or None


def _upper(_: Wiki, parameters: Parameters, field: str) -> str | None:
    return parameters.get(field).upper() or None


def _lower(_: Wiki, parameters: Parameters, field: str) -> str | None:
    return parameters.get(field).lower() or None


def _unsigned(_: Wiki, parameters: Parameters, field: str) -> str | None:
    return parameters.get(field).lstrip("-") or None


def _word(_: Wiki, parameters: Parameters, field: str) -> str | None:
    text = parameters.get(field)
    return text if any(map(str.isalpha, text)) else None


def _ordinal(_: Wiki, parameters: Parameters, field: str) -> str | None:
    """21st of 21, in English."""
    number = parameters.get(field)
    if not number.isdecimal():
        return number or None
    is_teen = number[-2:-1] == "1"
    return number + ("th" if is_teen else ORDINAL_ENDS.get(number[-1], "th"))


def _coordinates(_: Wiki, parameters: Parameters, field: str) -> str | None:
    """Latitude and longitude in degrees, minutes and seconds; "" where the page shows them
    elsewhere.
    """
    if parameters.get("display") in ("title", "t"):
        return ""
    text = ""
    parts: list[str] = []
    for place in parameters.places(field):
        if place in DIRECTIONS:
            text += _angle(parts) + place + " "
            parts = []
        elif text.count(" ") == 2 or not RANGE.fullmatch(place):
            break
        else:
            parts.append(place)
    if not text and len(parts) == 2:
        return f"{parts[0]}\u00b0, {parts[1]}\u00b0"
    return text.strip() or None


def _angle(parts: list[str]) -> str:
    return "".join(map(str.__add__, parts, "\u00b0\u2032\u2033"))


KINDS: dict[str, Callable[[Wiki, Parameters, str], str | None]] = {
    "if": _if,
    "ymd": _ymd,
    "dmy": _dmy,
    "age": _age,
    "age_dmy": _age_dmy,
    "number": _number,
    "measure": _measure,
    "unit": _unit,
    "amount": _amount,
    "powers": _powers,
    "list": _list,
    "joined": _joined,
    "upper": _upper,
    "lower": _lower,
    "unsigned": _unsigned,
    "word": _word,
    "ordinal": _ordinal,
    "coordinates": _coordinates,
}
BETWEEN = _by_name(_READ["between"])  # word of a range -> text


@lru_cache(maxsize=4)
def read_wiki(media: MediaWiki) -> Wiki:
    """What a language's Wikipedia shows; its tables are read once."""
    return Wiki(media)
