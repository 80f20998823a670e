"""When a Wikidata statement holds: its qualifiers start time (P580), end time (P582) and point in time (P585)."""

from __future__ import annotations

import re

import msgspec

QUALIFIERS = {"start": "P580", "end": "P582", "point": "P585"}
START, END, POINT = (f'"{pid}"'.encode() for pid in QUALIFIERS.values())
TIME = re.compile(r"([+-])0*(\d{1,4})-(\d\d)-(\d\d)T")  # the layout of 2014-15 fills years up with zeros
PARTS = {9: 1, 10: 2, 11: 3, 12: 3, 13: 3, 14: 3}  # precision -> parts of the date that are known: year, month, day


class _Time(msgspec.Struct, gc=False):
    time: str = ""
    precision: int = 0


class _Data(msgspec.Struct, gc=False):
    value: _Time | str | int | float | bool | list | None = None


class _Snak(msgspec.Struct, gc=False):
    datavalue: _Data | None = None  # null: unknown, or no value


_Qualifiers = msgspec.defstruct("_Qualifiers", [(pid, list[_Snak], []) for pid in QUALIFIERS.values()], gc=False)
_decoder = msgspec.json.Decoder(_Qualifiers)


def of_qualifiers(qualifiers: bytes) -> str:
    """A statement's dates, from its qualifiers' JSON, as "START/END/POINT", each as `iso` has it or empty; "" for none.

    Of several dates of one qualifier the last counts.
    """
    if START not in qualifiers and END not in qualifiers and POINT not in qualifiers:
        return ""
    try:
        decoded = _decoder.decode(qualifiers)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    values = [
        [snak.datavalue and snak.datavalue.value for snak in getattr(decoded, pid)] for pid in QUALIFIERS.values()
    ]
    times = [[iso(value.time, value.precision) for value in of if isinstance(value, _Time)] for of in values]
    dates = [max(of, default="") for of in times]
    return "/".join(dates) if any(dates) else ""


def iso(time: str, precision: int) -> str:
    """Wikidata's time as YYYY, YYYY-MM or YYYY-MM-DD (with - before Christ), as far as known; "" if not to the year."""
    match, parts = TIME.match(time), PARTS.get(precision, 0)
    if not match or not parts:
        return ""
    sign, year, month, day = match.groups()
    known = [year.zfill(4), *(part for part in (month, day)[: parts - 1] if part != "00")]
    return sign.strip("+") + "-".join(known)
