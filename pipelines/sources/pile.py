"""Documents of The Pile and C4-like corpora: JSON lines with `text`, and the Pile's subset name where it is given."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from pipelines.sources.rejects import Rejects
from pipelines.sources.text import decode, open_lines


class Document(NamedTuple):
    id: str
    text: str
    subset: str
    row: int  # line of the file, from 1


class _Meta(msgspec.Struct):
    pile_set_name: str = ""


class _Row(msgspec.Struct):
    text: str
    meta: _Meta = msgspec.field(default_factory=_Meta)


def read_documents(path: str | Path, rejects: Rejects) -> Iterator[Document]:
    """Yield the documents of one .jsonl/.json file (compressed or not).

    Bad rows go to `rejects` (bad_json, unexpected_layout, no_text).

    A document's id is a hash of its text, so it depends neither on the file nor on the order of arrival, and exact
    duplicates share it. Raises LongtailError naming the file when it is damaged or not UTF-8 (see `open_lines`).
    """
    parse = msgspec.json.Decoder(_Row).decode
    for number, line in enumerate(open_lines(path), start=1):
        if not line.strip():
            continue
        rejects.read += 1
        try:
            row = parse(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            decode(line, f"{path}: line {number}")
            reason = "unexpected_layout" if isinstance(error, msgspec.ValidationError) else "bad_json"
            rejects.add(path, number, reason, str(error))
            continue
        if row.text.strip():
            yield Document(text_id(row.text), row.text, row.meta.pile_set_name, number)
        else:
            rejects.add(path, number, "no_text", "text is empty")


def text_id(text: str) -> str:
    """128 bits of BLAKE2b of the text, in hexadecimal."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()
