"""Characters of a file that can't be read: U+FFFD stands for them, and their rows are counted.

Such a character is half of a surrogate pair, as of a model's text that was cut within an emoji, or
a byte that is not UTF-8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.safe_text import mended
from pipelines.storage.file_kinds import other_encoding

MAX_SHARE = 0.05  # of rows that are not UTF-8; as ingest.max_reject_share for the sources
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
    then for a file that seems to be in another encoding.
    """
    damage = Damage()
    for number, record in enumerate(records, start=1):
        text = json.dumps(record, ensure_ascii=False)
        whole = _whole(text)
        damage.count(number, text, whole)
        yield record if whole == text else json.loads(whole)

    damage.check(path)
    notes += damage.described(path)


@dataclass
class Damage:
    """Counts of the rows of a file, and of characters that can't be read."""

    rows: int = 0
    mended: list[int] = field(default_factory=list)  # numbers of rows
    rows_not_utf8: int = 0
    bytes_not_utf8: int = 0
    characters: int = 0  # that are not ASCII, and can be read

    def count(self, number: int, text: str, whole: str) -> None:
        """Count what stands in a row's text, which is `whole` once it is mended."""
        self.rows = number
        if whole != text:
            self.mended.append(number)
        if text.isascii():
            return
        n_bytes = len(NOT_UTF8.findall(text))
        self.rows_not_utf8 += n_bytes > 0
        self.bytes_not_utf8 += n_bytes
        self.characters += len(text) - len(text.encode("ascii", "ignore")) - n_bytes

    @property
    def may_be_encoding(self) -> bool:
        """Whether there are more bytes that are not UTF-8 than characters that are."""
        return self.bytes_not_utf8 > self.characters

    def check(self, path: Path) -> None:
        """Raise LongtailError for a file that seems to be in another encoding."""
        most = max(1, MAX_SHARE * self.rows)
        if self.rows_not_utf8 > most and self.may_be_encoding:
            raise LongtailError(
                f"{path}: row {self.mended[0]}: not UTF-8, as {self.rows_not_utf8:,} of "
                f"{self.rows:,} rows; {other_encoding(path)}"
            )

    def described(self, path: Path) -> list[str]:
        """A line that counts the rows with characters that can't be read, if there are any."""
        if not self.mended:
            return []
        line = (
            f"{path.name}: {len(self.mended):,} of {self.rows:,} rows have characters that can't "
            f"be read, as row {self.mended[0]}; U+FFFD stands for each"
        )
        if self.may_be_encoding:
            line += f"; if the file is in another encoding, {other_encoding(path)}"
        return [line]


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
