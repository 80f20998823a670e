"""Answer lists in cells, as JSON, Python, NumPy, pandas, DuckDB, Spark and PostgreSQL write them.

Most tools write a list into a cell without saying how to read it again. A column is read as a whole: most of its cells
show how all are written.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pipelines.errors import LongtailError
from pipelines.sources.cell_values import as_text, clean_id, composed
from pipelines.sources.streams import parse_json

# What may separate several answers in one text; Hive's is \x02 or \x01. A few single answers hold commas.
SEPARATORS = ("|", ";", "\n", "\t", " / ", "<br>", "###", "\x01", "\x02", ",")
COMMON = 20  # a separator in one of so many cells is no part of a single answer
ESCAPES = {r"\n": "\n", r"\t": "\t", r"\x01": "\x01", r"\x02": "\x02"}  # as a person types separators
ESCAPED = "\n\\'\"abfnrtvxuUN01234567"  # what a backslash stands before in Python
JSON_LISTS = "expected JSON lists, as json.dumps or to_json write them"
FIELDS = ("value", "aliases", "target", "answer", "text")  # of an object that holds answers
CLOSES = {"[": "]", "{": "}", "(": ")"}
NOTHING = ("nan", "NaN", "<NA>", "None", "null", "NULL")  # the first three are not even a single answer
QUOTED = r"""(?:np\.str_\()?[bu]?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)?"""
VALUE = rf"(?:{QUOTED}|[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?!\w)|{'|'.join((*NOTHING, 'True', 'False'))})"
VALUES = re.compile(VALUE, re.DOTALL)
LITERALS = re.compile(rf"\s*(?:{VALUE}(?:\s*,\s*{VALUE})*,?|{VALUE}(?:\s+{VALUE})*)\s*", re.DOTALL)
JOINED = re.compile(rf"{QUOTED}\s+{QUOTED}", re.DOTALL)  # Python reads these as one text
PART = re.compile(rf"\s*({QUOTED})\s*,|([^,]*),", re.DOTALL)
CALLS = "array|list|tuple|set|frozenset|deque|dict_keys|dict_values|c|List|WrappedArray|ArraySeq|ArrayBuffer|Vector"
WRAPPED = re.compile(  # what stands around a list -> the list, or what stands in it
    rf"(?:np\.|numpy\.)?(?:{CALLS})\((.*?)(?:,\s*dtype=[^(),]*)?\)|(?:Any|String|ARRAY|Array)(\[.*\])"
    r"|<\w+>\s*(\[.*\])\s*Length: .*",
    re.DOTALL,
)
SPECIAL = re.compile(r"""[][(){},:="'\\]""")  # what DuckDB puts quotes around, from 1.3 on
STRAY = {"[": re.compile(r"""^\[*["']|["']\]*$"""), "{": re.compile(r'["\s]')}  # no part without quotes has it


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
            text = "" if text in NOTHING[:3] else text
            marked.update(mark for mark in ((separator,) if separator else SEPARATORS) if mark in text)
            marked["in brackets"] += CLOSES.get(text[:1]) == text[-1:]
            texts = [part for part in map(str.strip, text.split(separator) if separator else [text]) if part]
        elif separator and isinstance(cell, str) and separator in cell and written_list(cell) is None:
            marked[separator] += 1
        answers.append(texts)
    if separator and not marked[separator]:
        raise LongtailError(f"{where}: no cell has --answers-separator {separator!r}, expected some; leave it out")
    if separator:
        return answers, f"{marked[separator]:,} of {n:,} cells of answers hold several, separated by {separator!r}"
    bracketed, notes = marked.pop("in brackets", 0), []
    for mark, count in marked.most_common():
        holds = f"{count:,} of {n:,} cells of answers hold {mark!r}"
        say = f"if they hold several, say --answers-separator {mark!r}"
        if 2 * count > n or (mark != "," and count * COMMON >= n):
            raise LongtailError(f"{where}: {holds}; {say}; if each is one answer, write it as a JSON list of one")
        if mark != "," or count * COMMON >= n:
            notes.append(f"{holds}, and each is read as one answer; {say}")
    if bracketed:
        notes.append(f"{bracketed:,} of {n:,} cells of answers stand in brackets, and each is read as one answer")
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
    loose: dict[int, str] = {}  # row -> a text that begins as a list and is none beyond doubt
    kinds, filled = Counter[str](), 0
    for row, cell in enumerate(cells):
        text = _unwrapped(cell) if isinstance(cell, str) else ""
        value = written_list(text) if text else cell
        try:
            found.append(_texts(value) if isinstance(value, list | tuple | dict) else None)
        except ValueError as error:
            raise _refused(where, row, cell, str(error)) from None
        if text:
            filled += 1
            closed = text[0] != "(" and CLOSES.get(text[0]) == text[-1]
            kinds[text[0]] += closed or found[row] is not None
            if found[row] is None:
                loose[row] = text
        elif found[row] is None and as_text(value) == "":
            found[row] = []
    if 2 * sum(texts is not None for texts in found) > len(found):  # a text in quotes is one of a list, then
        found = [
            [_literal(loose.pop(row))] if re.fullmatch(QUOTED, loose.get(row, ""), re.DOTALL) else texts
            for row, texts in enumerate(found)
        ]
    kind = max(CLOSES, key=lambda bracket: kinds[bracket])
    starts = ["['", '["']  # whatever the others are
    starts += [] if 2 * kinds[kind] <= filled else ["('", '("'] if kind == "(" else [kind]
    parts: dict[int, list[tuple[str, bool]]] = {}
    for row, text in loose.items():
        if text.startswith(tuple(starts)):
            try:
                parts[row] = _parts(text, separator)
            except ValueError as error:
                raise _refused(where, row, cells[row], str(error)) from None
            found[row] = [part for part, in_quotes in parts[row] if in_quotes or part not in ("NULL", "null")]
    several = [row for row, of_row in parts.items() if len(of_row) > 1 and not all(quotes for _, quotes in of_row)]
    if kind == "[" and several and not separator:
        bare = [part for of_row in parts.values() for part, in_quotes in of_row if not in_quotes]
        quoted = [part for of_row in parts.values() for part, in_quotes in of_row if in_quotes]
        quoted += [text for row, texts in enumerate(found) if row not in parts for text in texts or ()]
        confirmed = firsts and all(of_row[0][0] == firsts[row] for row, of_row in parts.items() if of_row)
        if not (all(map(_needs_quotes, quoted)) if quoted else confirmed and not any(map(_needs_quotes, bare))):
            row, say = several[0], "; say --answers-separator ', ' if none does" * (not quoted)
            raise _refused(where, row, cells[row], "a list without quotes, in which an answer may hold a comma", say)
    return found


def written_list(text: str) -> list | dict | None:
    """The list (or object) that a text is beyond doubt, whatever the rest of its column is; None for another text."""
    text = _unwrapped(text)
    if text[:1] in ("[", "{", '"'):
        try:
            value = parse_json(text)
        except ValueError:
            value = None
        if isinstance(value, str):  # JSON within JSON
            return written_list(value) if value[:1] == "[" else None
        if isinstance(value, list) or (isinstance(value, dict) and value):
            return value
    if CLOSES.get(text[:1]) != text[-1:]:
        return None
    inner = text[1:-1]
    if LITERALS.fullmatch(inner):
        values = list(map(_literal, VALUES.findall(inner)))
        certain = any(isinstance(value, str) for value in values) and (len(values) > 1 or inner.rstrip()[-1] == ",")
        return values if certain or text[0] == "[" else None
    if "{" in text and not JOINED.search(text):  # objects, as Python writes them
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None
        return value if isinstance(value, list | dict) and value else None
    return None


def _unwrapped(text: str) -> str:
    text = text.strip()
    if (text[-1:] not in CLOSES.values() and text[:1] != "<") or not (match := WRAPPED.fullmatch(text)):
        return text
    inner = next(group for group in match.groups() if group is not None).strip()
    return inner if inner and CLOSES.get(inner[0]) == inner[-1] else f"[{inner}]"


def _literal(token: str) -> Any:
    """The value of a quoted text, a number or a null."""
    token = token.removeprefix("np.str_(").removesuffix(")") if token[:3] == "np." else token
    if token in NOTHING:
        return None
    if token[0] in "'\"" and "\\" not in token:  # most are
        return token[1:-1]
    python = re.sub(r"\\(.)", lambda pair: pair[0] if pair[1] in ESCAPED else "\\" + pair[0], token)
    try:
        value = ast.literal_eval(python.replace("\n", "\\n").replace("\r", "\\r"))
        return value.decode() if isinstance(value, bytes) else value
    except (ValueError, SyntaxError):
        return token


def _texts(value: Any) -> list[str]:
    """The texts of a list or an object. Raises ValueError where it has none though something is in it."""
    if isinstance(value, float):
        return [] if math.isnan(value) else [clean_id(value)]
    if isinstance(value, dict):
        held = [value[field] for field in FIELDS if value.get(field) is not None]
        texts = [text for inner in held for text in ([inner] if isinstance(inner, str) else _texts(inner))]
        if value and not texts:
            raise ValueError(f"an object without {', '.join(FIELDS)}")
        return list(dict.fromkeys(texts))
    elements = list(value)
    if len(elements) == 1 and isinstance(elements[0], str | list):  # a list within a list
        inner = written_list(elements[0]) if isinstance(elements[0], str) else elements[0]
        if isinstance(inner, list):
            return _texts(inner)
    texts, odd = [], ""
    for element in elements:
        if isinstance(element, str):
            texts.append(composed(element))
        elif isinstance(element, dict):
            with_answer = any(element.get(field) for field in FIELDS)
            texts += _texts(element) if with_answer else []
            odd = odd or ("" if with_answer else f"a list of objects without {', '.join(FIELDS)}")
        elif isinstance(element, list):
            raise ValueError("a list of lists")
        elif element is not None and element == element:
            texts.append(clean_id(element))
    if odd and not texts:
        raise ValueError(odd)
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
    for token, bare in PART.findall(inner + "," if inner.strip() else ""):
        bare = bare.strip(" ") if kind == "[" else bare
        if not token and (not bare or kind == "(" or STRAY[kind].search(bare)):
            raise ValueError("a list whose quotes and commas can't be told from its answers")
        parts.append((composed(_literal(token) if token else bare), bool(token)))
    return parts


def _needs_quotes(text: str) -> bool:
    return text != text.strip() or text.lower() in ("", "null") or bool(SPECIAL.search(text))


def _refused(where: str, row: int, cell: Any, what: str, more: str = "") -> LongtailError:
    shown = " ".join(str(cell).split())
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return LongtailError(f"{where} of row {row + 1} is {shown}: {what}, {JSON_LISTS}{more}")
