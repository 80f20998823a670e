"""Characters of a file that can't be read: U+FFFD stands for them, and their rows are counted.

Such a character is half of a surrogate pair, as of a model's text that was cut within an emoji, or
a byte that is not UTF-8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.safe_text import mended
from pipelines.storage.file_kinds import other_encoding

MAX_SHARE = 0.05  # of rows that are not UTF-8; as ingest.max_reject_share for the sources
NOT_ASCII = re.compile(r"[^\x00-\x7f]")
NOT_UTF8 = re.compile("[\udc80-\udcff]")  # bytes, as `open_escaped` reads them
# Escapes in a text that is JSON itself, such as a cell with a list of answers. In the JSON around
# it their backslash is doubled. An escaped backslash and a whole pair (group 1) stay as they are.
HIGH = r"\\\\u[dD][89abAB][0-9a-fA-F]{2}"
LOW = r"\\\\u[dD][c-fC-F][0-9a-fA-F]{2}"
ESCAPES = re.compile(rf"(\\{{4}}|{HIGH}{LOW})|{HIGH}|{LOW}")


def replace_unreadable(
    path: Path, records: Iterable[dict[str, Any]], notes: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield the records of a file, with U+FFFD for each character that can't be read.

    At their end `notes` gets a line that counts the rows with such characters. Raises LongtailError
    then for a file with more bytes that are not UTF-8 than characters that are: it seems to be in
    another encoding.
    """
    number = 0
    damaged = []  # numbers of rows
    rows_not_utf8 = 0
    n_bytes = 0  # that are not UTF-8
    n_characters = 0  # that are not ASCII, and can be read
    for number, record in enumerate(records, start=1):
        text = json.dumps(record, ensure_ascii=False)
        whole = _whole(text)
        if not text.isascii():
            n_bytes_of_row = len(NOT_UTF8.findall(text))
            rows_not_utf8 += n_bytes_of_row > 0
            n_bytes += n_bytes_of_row
            n_characters += len(NOT_ASCII.findall(text)) - n_bytes_of_row
        if whole == text:
            yield record
        else:
            damaged.append(number)
            yield json.loads(whole)

    if not damaged:
        return
    first = damaged[0]
    advice = other_encoding(path) if n_bytes > n_characters else ""
    if advice and rows_not_utf8 > max(1, MAX_SHARE * number):
        count = f"{rows_not_utf8:,} of {number:,} rows"
        raise LongtailError(f"{path}: row {first}: not UTF-8, as {count}; {advice}")
    line = (
        f"{path.name}: {len(damaged):,} of {number:,} rows have characters that can't be read, "
        f"as row {first}; U+FFFD stands for each"
    )
    if advice:
        line += f"; if the file is in another encoding, {advice}"
    notes.append(line)


def _whole(text: str) -> str:
    """The text with U+FFFD for each character that can't be read. Most texts have none, and are
    told fast.
    """
    if not text.isascii():
        text = mended(text)
    if "\\u" in text:
        text = ESCAPES.sub(_whole_escape, text)
    return text


def _whole_escape(match: re.Match) -> str:
    return match[1] or r"\\ufffd"
