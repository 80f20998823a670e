"""What the kinds of fields make of a template's parameters: dates, numbers, measures.

Each function returns None where the parameters have no value for its field.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pipelines import yaml_files
from pipelines.corpus.template_forms import Parameters, filled
from pipelines.language.language import MediaWiki

# such as 5, -1,5 or 5+1/2, and a range of two
NUMBER = r"[-+~\u2212]?[\d.,/]+(?:\+[\d/]+)?(?:e[-+]?\d+)?"
RANGE = re.compile(rf"{NUMBER}(?: ?(?:[-\u2013x\u00d7\u00b1]|to|by) ?{NUMBER})?")
POWER_OF_TEN = re.compile(r"e(3|6|9|12)(?=\D)")  # before a unit
PLAIN_NUMBER = re.compile(r"([-+\u2212]?)([0-9]{1,40})(?:\.([0-9]+))?")
WHOLE_NUMBER = re.compile("[0-9]{1,15}")
ISO_DATE = re.compile(r"(-?\d{1,4})-(\d{1,2})-(\d{1,2})")
DAY_FIRST = "{day} {month} {year}|{month} {year}"
NO = ("", "n", "no")
MINUS_AND_DIGITS = "-0123456789"
SUPERSCRIPT = str.maketrans(
    MINUS_AND_DIGITS, "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
ORDINAL_ENDS = {"1": "st", "2": "nd", "3": "rd"}
DIRECTIONS = frozenset("NSEW")
DEGREES = "\u00b0"
ANGLE_UNITS = (DEGREES, "\u2032", "\u2033")  # degrees, minutes, seconds

WIKITEXT = yaml_files.read(Path(__file__).with_name("wikitext.yaml"))
BETWEEN: dict[str, str] = {}  # word of a range -> text
for text, words in WIKITEXT["between"].items():
    BETWEEN |= dict.fromkeys(words, text)


class Field(NamedTuple):
    """A field of a form, and what it takes its value from."""

    media: MediaWiki  # how the language writes
    parameters: Parameters
    names: str  # of parameters, or the number of a place

    @property
    def text(self) -> str:
        return self.parameters.get(self.names)

    def places(self, begin: int = 0, end: int | None = None) -> list[str]:
        """The values from the field's place on, or a part of them; "" for missing ones."""
        first = int(self.names)
        last = None if end is None else first + end - 1
        return self.parameters.places(first + begin, last)


def _if(field: Field) -> str | None:
    return "" if field.text else None


def _upper(field: Field) -> str | None:
    return field.text.upper() or None


def _lower(field: Field) -> str | None:
    return field.text.lower() or None


def _letters(field: Field) -> str | None:
    text = field.text
    return text if any(map(str.isalpha, text)) else None


def _word(field: Field) -> str | None:
    return field.media.words.get(field.text)


def _list(field: Field) -> str | None:
    values = filter(None, field.places())
    return ", ".join(values) or None


def _joined(field: Field) -> str | None:
    return "".join(field.places()) or None


def _ymd(field: Field) -> str | None:
    day_first = field.parameters.get("df") not in NO
    return _date(_date_parts(field), field.media, DAY_FIRST if day_first else field.media.date)


def _dmy(field: Field) -> str | None:
    return _date(_date_parts(field)[::-1], field.media, field.media.date)


def _date_parts(field: Field) -> list[str]:
    """A date's three parameters, "" for what is missing; only the first where it is a whole date,
    such as "12 March 1850".
    """
    parts = field.places(0, 3)
    is_whole = " " in parts[0] or ISO_DATE.fullmatch(parts[0])
    return [parts[0], "", ""] if is_whole else parts


def _date(parts: Sequence[str], media: MediaWiki, form: str) -> str | None:
    """A date of year, month and day as the language writes it; None without any."""
    written = list(filter(None, parts))
    if not written:
        return None
    if len(written) == 1:
        iso_date = ISO_DATE.fullmatch(written[0])
        if not iso_date:
            return written[0]
        parts = iso_date.groups()

    year, month, day = parts
    months = media.months.split()
    if WHOLE_NUMBER.fullmatch(month) and 1 <= int(month) <= len(months):
        month = months[int(month) - 1]
    day = re.sub("^0+", "", day)
    if day == "1":
        day = media.first_day
    values = {"year": year, "month": month, "day": day}
    return filled(form, lambda name, _: values.get(name) or None)


def _age(field: Field) -> str | None:
    """The whole years between two dates of year, month and day, whichever comes first."""
    return _years(field.places(0, 3), field.places(3, 6))


def _age_dmy(field: Field) -> str | None:
    """The whole years between two dates of day, month and year, whichever comes first."""
    return _years(field.places(0, 3)[::-1], field.places(3, 6)[::-1])


def _years(date: list[str], other: list[str]) -> str | None:
    if not all(map(WHOLE_NUMBER.fullmatch, date + other)):
        return None
    dates = [list(map(int, date)), list(map(int, other))]
    earlier, later = sorted(dates)
    years = later[0] - earlier[0]
    if later[1:] < earlier[1:]:
        years -= 1
    return str(years)


def _number(field: Field) -> str | None:
    """A number with the language's marks for thousands and decimals; other texts as they are."""
    text = field.text
    number = PLAIN_NUMBER.fullmatch(text.replace(",", ""))
    if not number or field.parameters.get("2") in ("R", "NOSEP"):
        return text or None
    sign, whole, decimals = number.groups()
    if len(whole) >= field.media.grouped_from:
        whole = f"{int(whole):,}".replace(",", field.media.thousands)
    if decimals:
        whole += field.media.decimal + decimals
    return sign + whole


def _unsigned(field: Field) -> str | None:
    return field.text.lstrip("-") or None


def _ordinal(field: Field) -> str | None:
    """21st of 21, in English."""
    number = field.text
    if not number.isdecimal():
        return number or None
    is_teen = number[-2:-1] == "1"
    ending = "th" if is_teen else ORDINAL_ENDS.get(number[-1], "th")
    return number + ending


def _percentage(field: Field) -> str | None:
    """A part and the whole as per cent, with as many decimals as the third parameter says."""
    numbers = field.places(0, 3)
    numbers[2] = numbers[2] or "0"
    if not all(map(WHOLE_NUMBER.fullmatch, numbers)):
        return None
    part, whole, decimals = map(int, numbers)
    return f"{100 * part / whole:.{min(decimals, 9)}f}%" if whole else None


def _measure(field: Field) -> str | None:
    """The measure before its conversion: "5 to 10 km" of {{cvt|5|to|10|km|mi}}, "5 ft 8 in" of
    {{cvt|5|ft|8|in|m}}.
    """
    places = field.places()
    text = ""
    for number, unit in zip(places[::2], places[1::2], strict=False):
        if not RANGE.fullmatch(number):
            break
        text += number + (BETWEEN.get(unit) or f" {_unit_text(unit)} ")
    return text.strip() or None


def _unit(field: Field) -> str | None:
    return _unit_text(field.text) or None


def _unit_text(unit: str) -> str:
    power = POWER_OF_TEN.match(unit)
    if not power:
        return WIKITEXT["units"].get(unit, unit)
    word = WIKITEXT["powers_of_ten"][int(power[1])]
    unit = unit[power.end() :]
    return f"{word} {WIKITEXT['units'].get(unit, unit)}"


def _powers(field: Field) -> str | None:
    """Units and their powers in turn: m\u00b7s\u207b\u00b2 of m||s|-2."""
    places = field.places()
    places.append("")
    units = []
    for unit, power in zip(places[::2], places[1::2], strict=False):
        if unit:
            units.append(unit + power.translate(SUPERSCRIPT))
    return "\u00b7".join(units) or None


def _coordinates(field: Field) -> str | None:
    """Latitude and longitude in degrees, minutes and seconds; "" where the page shows them
    elsewhere.
    """
    if field.parameters.get("display") in ("title", "t"):
        return ""
    angles = []
    numbers: list[str] = []
    for place in field.places():
        if place in DIRECTIONS:
            angle = map(str.__add__, numbers, ANGLE_UNITS)
            angles.append("".join(angle) + place)
            numbers = []
        elif RANGE.fullmatch(place):
            numbers.append(place)
        else:
            break
    if not angles:
        angles = [f"{number}{DEGREES}" for number in numbers]
    return " ".join(angles[:2]) or None


KINDS: dict[str, Callable[[Field], str | None]] = {
    "if": _if,
    "upper": _upper,
    "lower": _lower,
    "letters": _letters,
    "word": _word,
    "list": _list,
    "joined": _joined,
    "ymd": _ymd,
    "dmy": _dmy,
    "age": _age,
    "age_dmy": _age_dmy,
    "number": _number,
    "unsigned": _unsigned,
    "ordinal": _ordinal,
    "percentage": _percentage,
    "measure": _measure,
    "unit": _unit,
    "powers": _powers,
    "coordinates": _coordinates,
}
