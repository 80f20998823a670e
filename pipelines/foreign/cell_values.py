"""Values of cells whose writer nobody knows: texts, ids, judgements, numbers and lists of answers, as they are spelled.

A column of numbers or of lists is read as a whole: most of its cells show how all are written.
"""

import ast
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from html import unescape
from typing import Any

from pipelines.errors import LongtailError
from pipelines.sources.streams import parse_json

WHOLE = re.compile(r"(-?\d+)\.0+")  # an id that a table with empty cells made a fraction
TRUTH = {"true": True, "1": True, "1.0": True, "1,0": True, "yes": True}
TRUTH |= {"false": False, "0": False, "0.0": False, "0,0": False, "no": False}
MARKS = "\"' ?.!"  # which may stand at the ends of a question, or not
QUOTES = str.maketrans(
    "\u2018\u2019\u201b\u2032`\u00b4\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", "'" * 6 + '"' * 7
)
OTHER = {".": ",", ",": "."}
UNKNOWN = (
    "",
    "na",
    "n/a",
    "#n/a",
    "<na>",
    r"\n",
    "null",
    "none",
    "nan",
    "inf",
    "-inf",
    "-",
)  # of R, Excel, MySQL …
READINGS = {  # what begins decimals -> how numbers are written then; the other mark may group thousands
    ".": re.compile(r"[-+]?(?:\d*|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d*)?(?:[eE][-+]?\d+)?"),
    ",": re.compile(r"[-+]?(?:\d*|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d*)?"),
}
SEPARATORS = ("|", ";", "\n", "\t", ",")  # what may separate several answers in one text
COMMON = 20  # a separator in one of so many cells is no part of a single answer; a comma may be
ESCAPES = {r"\n": "\n", r"\t": "\t"}  # as a person types separators
JSON_LISTS = "expected JSON lists, as json.dumps or to_json write them"
FIELDS = ("value", "aliases", "target", "answer", "text")  # of an object that holds answers
CLOSES = {"[": "]", "{": "}", "(": ")"}
QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
ELEMENT = re.compile(rf"({QUOTED})(\s+(?=['\"]))?", re.DOTALL)
PART = re.compile(rf"\s*({QUOTED})\s*,|([^,]*),", re.DOTALL)
SPECIAL = re.compile(r"""[][(){},:="'\\]""")  # what DuckDB puts quotes around, from 1.3 on
STRAY = {
    "[": re.compile(r"""^\[*["']|["']\)?\]*$"""),
    "{": re.compile(r'["\s]'),
}  # no part without quotes has it


def clean_id(value: Any) -> str:
    """An id as text; 4222362.0, as tables with empty cells have it, is 4222362."""
    if type(value) is str and value.isdecimal():  # most are
        return value
    text = as_text(value)
    match = WHOLE.fullmatch(text)
    return match[1] if match else text


def as_text(value: Any) -> str:
    """A cell as NFC without white space around it; "" for none."""
    if type(value) is not str:  # most are
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        value = str(value)
    return composed(value.strip())


def folded(text: str) -> str:
    """A text for comparison: NFC, without capitals, with single blanks."""
    return " ".join(as_text(text).casefold().split())


def text_key(text: str) -> str:
    """A question for comparison: its `plain_text` without MARKS at its ends."""
    return plain_text(text).strip(MARKS)


def plain_text(text: str) -> str:
    """A text as NFC without capitals and HTML's entities, with single blanks and straight quotes."""
    text = unescape(text) if "&" in text else text
    return folded(text if text.isascii() else text.translate(QUOTES))


def as_set(answers: Sequence[str]) -> frozenset[str]:
    """Answers for comparison."""
    return frozenset(map(folded, answers)) - {""}


def composed(text: str) -> str:
    """A text as NFC."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def judgement(value: Any) -> bool | None:
    """Whether a cell says right or wrong; None if it says neither."""
    return TRUTH.get(as_text(value).lower())


def read_numbers(cells: Sequence[Any], where: str, more: str = "") -> list[float]:
    """A column's numbers, NaN where a cell is empty or infinite.

    A text such as 12.345 is 12345 in some languages: other cells of the column say which mark begins decimals. Raises
    LongtailError where none says it, where two contradict each other, and for a cell that is no number; `where` names
    the column in a message, and `more` ends it.
    """
    points, commas = ([number_of(cell, mark) for cell in cells] for mark in READINGS)
    for row, (cell, point, comma) in enumerate(zip(cells, points, commas, strict=True), start=1):
        if point is None and comma is None:
            said = (
                f"{str(cell).strip()[:80]!r}, expected a number, or nothing where it is not known"
            )
            raise LongtailError(f"{where} of row {row} is {said}{more}")
    if None in points and None in commas:
        one, other = sorted((commas.index(None), points.index(None)))
        raise LongtailError(
            f"{where} is {cells[one]} in row {one + 1} and {cells[other]} in row {other + 1}, expected one way to "
            "write numbers; write all as 12345.6"
        )
    if None in points or None in commas:
        return commas if None in points else points
    for row, (cell, point, comma) in enumerate(zip(cells, points, commas, strict=True), start=1):
        if point != comma and not math.isnan(point):
            thousands, decimals = re.sub("[.,]", "", cell.strip()), cell.strip().replace(",", ".")
            raise LongtailError(
                f"{where} of row {row} is {cell}, which is {thousands} in one language and {decimals} in another, "
                f"and no row says which; write {thousands} or {decimals}0"
            )
    return points


def number_of(cell: Any, mark: str = ".") -> float | None:
    """A cell's number where `mark` begins decimals, NaN for none, None for what is no number so."""
    if (
        cell is None
        or isinstance(cell, bool)
        or (isinstance(cell, str) and cell.strip().lower() in UNKNOWN)
    ):
        return math.nan
    if isinstance(cell, str) and not READINGS[mark].fullmatch(cell.strip()):
        return None
    try:
        number = float(
            cell.replace(OTHER[mark], "").replace(mark, ".") if isinstance(cell, str) else cell
        )
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else math.nan


def gold_answers(
    cells: Sequence[Any], where: str, separator: str = "", firsts: Sequence[str] = ()
) -> tuple[list[list[str]], str]:
    """The gold answers of each cell as they are written, and what may surprise about how they are read, in a line.

    A cell that is no list is one answer, or several with the `separator` between them. `where` names the column in a
    message, and `firsts` are the first answers where another column has them. Raises LongtailError as `read_lists`
    does, for a separator that no cell has, and for texts that seem to be several answers if no separator is given.
    """
    separator = ESCAPES.get(separator, separator)
    answers, marked, n = [], Counter[str](), len(cells)
    for texts, cell in zip(read_lists(cells, where, separator, firsts), cells, strict=True):
        if texts is None:
            text = as_text(cell) if isinstance(cell, str) else clean_id(cell)
            text = "" if text in ("nan", "NaN", "<NA>") else text  # no answer, as pandas writes it
            marked.update(
                mark for mark in ((separator,) if separator else SEPARATORS) if mark in text
            )
            texts = [
                part
                for part in map(str.strip, text.split(separator) if separator else [text])
                if part
            ]
        elif (
            separator and isinstance(cell, str) and separator in cell and written_list(cell) is None
        ):
            marked[separator] += 1
        answers.append(texts)
    if separator and not marked[separator]:
        raise LongtailError(
            f"{where}: no cell has --answers-separator {separator!r}, expected some; leave it out"
        )
    if separator:
        return (
            answers,
            f"{marked[separator]:,} of {n:,} cells of answers hold several, separated by {separator!r}",
        )
    notes = []
    for mark, count in marked.most_common():
        holds = f"{count:,} of {n:,} cells of answers hold {mark!r}"
        say = f"if they hold several, say --answers-separator {mark!r}"
        if 2 * count > n or (mark != "," and count * COMMON >= n):
            raise LongtailError(
                f"{where}: {holds}; {say}; if each is one answer, write it as a JSON list of one"
            )
        if mark != "," or count * COMMON >= n:
            notes.append(f"{holds}, and each is read as one answer; {say}")
    return answers, "; ".join(notes)


def are_answer_lists(cells: Sequence[Any]) -> bool:
    """Whether all cells of a column are lists of gold answers, rather than what a model said."""
    for cell in cells:
        value = written_list(cell) if isinstance(cell, str) else cell
        if isinstance(value, dict) and value.keys().isdisjoint(("aliases", "target")):
            return False
        if isinstance(value, list) and any(isinstance(element, dict) for element in value):
            return False
    try:
        return all(read_lists(cells, "", ", "))
    except LongtailError:
        return True


def read_lists(
    cells: Sequence[Any], where: str, separator: str = "", firsts: Sequence[str] = ()
) -> list[list[str] | None]:
    """The texts of each cell that is a list; None for a cell that is one text.

    Raises LongtailError, naming the row, for lists that are damaged, and for lists without quotes whose answers may
    hold commas, unless a `separator` or the answers that come `firsts` say where answers end.
    """
    found: list[list[str] | None] = []
    parts: dict[
        int, list[tuple[str, bool]]
    ] = {}  # of a list that is none beyond doubt: texts, and if in quotes
    texts = [cell.strip() if isinstance(cell, str) else "" for cell in cells]
    kinds = Counter(text[0] for text in texts if text and CLOSES.get(text[0]) == text[-1])
    kind = next((bracket for bracket in "[{" if 2 * kinds[bracket] > sum(map(bool, texts))), "")
    begins = ("['", '["', *kind)  # no answer begins as the first two
    for row, (text, cell) in enumerate(zip(texts, cells, strict=True)):
        value = written_list(text) if text else cell
        try:
            if isinstance(value, list | tuple | dict):
                found.append(_texts(value))
            elif text.startswith(begins):
                parts[row] = _parts(text, separator)
                found.append(
                    [part for part, in_quotes in parts[row] if in_quotes or part.lower() != "null"]
                )
            else:
                found.append([] if as_text(cell) == "" else None)
        except ValueError as error:
            raise _refused(where, row, cell, str(error)) from None
    several = [
        row
        for row, of_row in parts.items()
        if len(of_row) > 1 and not all(quotes for _, quotes in of_row)
    ]
    if kind == "[" and several and not separator:
        bare = [part for of_row in parts.values() for part, in_quotes in of_row if not in_quotes]
        quoted = [part for of_row in parts.values() for part, in_quotes in of_row if in_quotes]
        quoted += [
            text for row, of_row in enumerate(found) if row not in parts for text in of_row or ()
        ]
        confirmed = firsts and all(
            of_row[0][0] == firsts[row] for row, of_row in parts.items() if of_row
        )
        if not (
            all(map(_needs_quotes, quoted))
            if quoted
            else confirmed and not any(map(_needs_quotes, bare))
        ):
            row, say = several[0], "; say --answers-separator ', ' if none does" * (not quoted)
            raise _refused(
                where,
                row,
                cells[row],
                "a list without quotes, in which an answer may hold a comma",
                say,
            )
    return found


def written_list(text: str) -> list | dict | None:
    """The list (or object) that a text is beyond doubt, whatever the rest of its column is; None for another text."""
    text = text.strip()
    if text[:1] in ("[", "{", '"'):
        with suppress(ValueError):
            value = parse_json(text)
            if isinstance(value, str) and value[:1] == "[":  # JSON within JSON
                return written_list(value)
            if isinstance(value, list) or (isinstance(value, dict) and value):
                return value
    if CLOSES.get(text[:1]) != text[-1:] or ("'" not in text and '"' not in text):
        return None
    # texts in quotes as Python writes them, with a comma where another one follows, as NumPy has none
    inner = ELEMENT.sub(
        lambda one: one[1].replace("\n", r"\n").replace("\r", r"\r") + ", " * bool(one[2]),
        text[1:-1],
    )
    for python in (f"[{inner}]", f"{{{inner}}}") if text[0] == "{" else (f"[{inner}]",):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = ast.literal_eval(python)
            certain = any(isinstance(one, str) for one in value) and (
                len(value) > 1 or inner.rstrip()[-1:] == ","
            )
            return value if certain or text[0] == "[" or isinstance(value, dict) else None
    return None


def _texts(value: Any) -> list[str]:
    """The texts of a list or an object. Raises ValueError where it has none though something is in it."""
    if isinstance(value, dict):
        held = [value[field] for field in FIELDS if value.get(field) is not None]
        texts = [
            text
            for inner in held
            for text in ([inner] if isinstance(inner, str) else _texts(inner))
        ]
        if value and not texts:
            raise ValueError(f"an object without {', '.join(FIELDS)}")
        return list(dict.fromkeys(texts))
    if not isinstance(value, list | tuple):
        return [clean_id(value)]
    if len(value) == 1 and isinstance(value[0], list):
        return _texts(value[0])
    if any(isinstance(element, list) for element in value):
        raise ValueError("a list of lists")
    texts = []
    for element in value:
        if isinstance(element, str):
            texts.append(composed(element))
        elif isinstance(element, dict):
            texts += _texts(element) if any(element.get(field) for field in FIELDS) else []
        elif element is not None and not (isinstance(element, float) and math.isnan(element)):
            texts.append(clean_id(element))
    if not texts and any(isinstance(element, dict) for element in value):
        raise ValueError(f"a list of objects without {', '.join(FIELDS)}")
    return texts


def _parts(text: str, separator: str) -> list[tuple[str, bool]]:
    """Each part of a list, and whether it stands in quotes. Raises ValueError for a list that no writer means."""
    kind, inner = text[0], text[1:-1]
    if text[-1] != CLOSES[kind] or len(text) < 2:
        raise ValueError("a list that does not end")
    if re.search(r"(?:^|[\s,])\.\.\.(?:[\s,]|$)", inner):
        raise ValueError("a list that was shortened with ...")
    if separator:
        return [(composed(part), False) for part in map(str.strip, inner.split(separator)) if part]
    parts = []
    for quoted, bare in PART.findall(inner + "," if inner.strip() else ""):
        bare = bare.strip(" ") if kind == "[" else bare
        if not quoted and (not bare or STRAY[kind].search(bare)):
            raise ValueError("a list whose quotes and commas can't be told from its answers")
        parts.append(
            (composed(re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL) or bare), bool(quoted))
        )
    return parts


def _needs_quotes(text: str) -> bool:
    return text != text.strip() or text.lower() in ("", "null") or bool(SPECIAL.search(text))


def _refused(where: str, row: int, cell: Any, what: str, more: str = "") -> LongtailError:
    shown = " ".join(str(cell).split())
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return LongtailError(f"{where} of row {row + 1} is {shown}: {what}, {JSON_LISTS}{more}")
