"""Damaged files of every layout end in rows, in rejects, or in one line that names the file."""

import json
import tempfile
from pathlib import Path

import pytest
from fetching import PACK, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from test_spoilt_files import ITEM, PASSAGES, READERS

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects

# NUL, a terminal's escapes, marks of direction, a byte order mark, ends of lines, half a character
ODD = ["\x00", "\x1b[31m", "\u202e", "\ufeff", "\r", "\n", "\u2028", "\t", '"', "'", "\\", "{", "]"]
PIECES = st.one_of(
    st.sampled_from([text.encode() for text in ODD] + [b"\xff", b"\xc3", b"\xed\xa0\x80"]),
    st.binary(max_size=40),
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
        st.sampled_from(ODD),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
RECORDS = {  # reader -> a good record
    "wikidata": ITEM,
    "c4": {"text": "a", "url": "b"},
    "pile": {"text": "a", "meta": {"pile_set_name": "b"}},
    "questions": {"question": "a", "answer": ["b"]},
    "questions with passages": json.loads(PASSAGES),
    "prediction list": {"id": 1, "pred": "a"},
}


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """Some bytes of the content flipped, lost, said twice, or with others between them."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(len(content), start + 60)))
        part = content[start:end]
        middle = draw(
            st.sampled_from(
                [b"", part + part, part[::-1], bytes(byte ^ 1 for byte in part), draw(PIECES)]
            )
        )
        content = content[:start] + middle + content[end:]
    return content


@st.composite
def with_another_value(draw, record: dict) -> dict:
    """The record with another value somewhere in it, or without one of its fields."""
    copy = json.loads(json.dumps(record))
    place = copy
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        inside = place[key]
        if not inside or not isinstance(inside, dict | list) or draw(st.booleans()):
            break
        place = inside
    if draw(st.booleans()):
        place[key] = draw(VALUES)
    else:
        del place[key]
    return copy


def read_or_name(reader: str, content: bytes) -> tuple[int, Rejects]:
    """How many rows a reader gives of a file; a refusal must be one line that names the file."""
    name, _, read = READERS[reader]
    rejects = Rejects(1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "raw", name)
        path.parent.mkdir()
        path.write_bytes(content)
        try:
            rows = read(path, rejects)
        except LongtailError as error:
            message = str(error)
        else:
            return len(rows), rejects
    assert name in message
    assert "\n" not in message
    return 0, rejects


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=40, derandomize=True)
@given(st.data())
def test_damaged_bytes_give_rows_rejects_or_one_line(reader, data):
    name, good, _ = READERS[reader]
    with tempfile.TemporaryDirectory() as folder:
        stored = saved(Path(folder) / name, good).read_bytes()
    pack = PACK.get(Path(name).suffix)
    if pack and data.draw(st.booleans()):  # what a reader sees once it has decompressed the file
        plain = good if isinstance(good, bytes) else good.encode()
        read_or_name(reader, pack(data.draw(damaged(plain))))
    else:
        read_or_name(reader, data.draw(damaged(stored)))


@pytest.mark.parametrize("reader", RECORDS)
@settings(max_examples=60, derandomize=True)
@given(st.data())
def test_a_record_with_odd_values_is_read_or_rejected(reader, data):
    name, _, _ = READERS[reader]
    records = [RECORDS[reader], data.draw(with_another_value(RECORDS[reader])), RECORDS[reader]]
    if reader == "prediction list":
        content = json.dumps(records).encode()
    else:
        content = "".join(f"{json.dumps(record)}\n" for record in records).encode()
    pack = PACK.get(Path(name).suffix)
    rows, rejects = read_or_name(reader, pack(content) if pack else content)
    if rows and reader != "prediction list":  # which is one table
        assert rows + len(rejects.rows) + rejects.skipped.total() >= 2, "the others count"
