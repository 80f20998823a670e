"""The templates that are part of a sentence, and the text that a reader sees of them.

All other templates (infoboxes, citations, notices, pronunciations) are dropped.
"""

from __future__ import annotations

import re

# Template -> number of the parameter whose text is shown, counted from 1; -1 is the last one.
SHOWN = {
    **dict.fromkeys(("lang", "langx"), 2),
    **dict.fromkeys(("transl", "transliteration"), -1),
    **dict.fromkeys(("nowrap", "nobr", "nobold", "small", "smaller", "big", "larger", "em", "strong"), 1),
    **dict.fromkeys(("abbr", "tooltip", "sic", "vanchor", "visible anchor", "mvar", "var", "sc", "smallcaps"), 1),
    **dict.fromkeys(("nihongo", "quote", "blockquote", "cquote", "quotation", "val", "num", "keypress"), 1),
}
FIXED = {
    **dict.fromkeys(("nbsp", "space"), " "),
    **dict.fromkeys(("snd", "spaced ndash", "spnd"), " \u2013 "),
    **dict.fromkeys(("ndash", "en dash"), "\u2013"),
    **dict.fromkeys(("mdash", "em dash"), "\u2014"),
    "'s": "'s",
    "'": "'",
}
CIRCA = ("circa", "c.", "ca.")
CONVERT = ("convert", "cvt")
LANGUAGE = re.compile(r"lang-[a-z]{2,3}(-[a-z]+)*")  # such as lang-de, which shows its first parameter
BETWEEN = {  # what convert shows between the two numbers of a range
    **{word: f" {word} " for word in ("to", "and", "or", "by")},
    **dict.fromkeys(("-", "\u2013", "to(-)"), "\u2013"),
    **dict.fromkeys(("x", "\u00d7", "*"), " \u00d7 "),
    **dict.fromkeys(("+/-", "\u00b1"), " \u00b1 "),
}
UNITS = {"sqmi": "sq mi", "sqft": "sq ft", "cuft": "cu ft", "C": "\u00b0C", "F": "\u00b0F", "K": "K"}
UNITS |= {"km2": "km\u00b2", "m2": "m\u00b2", "m3": "m\u00b3", "km3": "km\u00b3"}
UNITS |= {"long ton": "long tons", "impgal": "imp gal"}
NUMBER = re.compile(r"[-+\u2212]?[\d.,/]+(e[-+]?\d+)?")


def is_kept(begin: str) -> bool:
    """Whether a template is shown; `begin` has its first characters, without the braces."""
    name = _name(re.split(r"[|{}]", begin, maxsplit=1)[0])
    return name in SHOWN or name in FIXED or name in CIRCA or name in CONVERT or LANGUAGE.fullmatch(name) is not None


def template_text(name: str, parameters: list[tuple[str | None, str]]) -> str:
    """The text that a reader sees of a template with these (name or None, value) parameters; "" for a dropped one."""
    name, by_place = _name(name), {}
    for key, value in parameters:
        place = str(len(by_place) + 1) if key is None else key.strip()
        if place.isdecimal():
            by_place[int(place)] = value.strip()
    places = [by_place[place] for place in sorted(by_place)]
    if name in SHOWN or LANGUAGE.fullmatch(name):
        place = SHOWN.get(name, 1)
        named = [value.strip() for key, value in parameters if key and key.strip() in ("text", "quote")]
        return (places[-1] if place < 0 else places[place - 1]) if len(places) >= abs(place) else "".join(named[:1])
    if name in FIXED:
        return FIXED[name]
    if name in CIRCA:
        return " \u2013 ".join(f"c. {year}" for year in places[:2])
    return _measure(places) if name in CONVERT else ""


def _measure(places: list[str]) -> str:
    """The measure before its conversion: "5 to 10 km" of {{cvt|5|to|10|km|mi}}, "5 ft 8 in" of {{cvt|5|ft|8|in|m}}."""
    text, at = "", 0
    while at + 1 < len(places) and NUMBER.fullmatch(places[at]):
        text += places[at]
        if (between := BETWEEN.get(places[at + 1])) is not None:
            text += between
        else:
            text += f" {UNITS.get(places[at + 1], places[at + 1])} "
        at += 2
    return text.strip()


def _name(name: str) -> str:
    return name.replace("_", " ").strip().lower()
