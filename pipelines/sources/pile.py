"""Documents of The Pile and of C4-like corpora: JSON lines with `text`, and the Pile's subset name where it is given."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from pipelines.sources.text import decode, open_lines

Reject = Callable[[int, str, str], None]  # (row, reason, detail)


class Document(NamedTuple):
    id: str
    text: str
    subset: str


class _Meta(msgspec.Struct):
    pile_set_name: str = ""


class _Row(msgspec.Struct):
    text: str
    meta: _Meta = msgspec.field(default_factory=_Meta)


def read_documents(path: str | Path, reject: Reject) -> Iterator[Document]:
    """Yield the documents of one .jsonl/.json file (compressed or not); hand bad rows to `reject`.

    A document's id is a hash of its text, so it depends neither on the file nor on the order of arrival, and exact
    duplicates share it. Raises LongtailError naming the file when it is damaged or not UTF-8 (see `open_lines`).
    """
    parse = msgspec.json.Decoder(_Row).decode
    for number, line in enumerate(open_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = parse(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            decode(line, f"{path}: line {number}")
            reject(number, "not_a_document", f'{error}; expected {{"text": "…"}}')
            continue
        if row.text.strip():
            yield Document(text_id(row.text), row.text, row.meta.pile_set_name)
        else:
            reject(number, "no_text", "text is empty")


def text_id(text: str) -> str:
    """128 bits of BLAKE2b of the text, in hexadecimal."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()
