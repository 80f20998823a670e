"""Bounds on records, bodies and rejects hold in every reader."""

import tracemalloc
from collections import deque
from itertools import chain
from pathlib import Path

import pytest

from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources import delimited, question_files, streams, wikidata, wikipedia
from pipelines.sources import rejects as rejects_module
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import parse_whole


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module, name, value in (
        (bounds, "RECORD", 1 << 19),
        (bounds, "WHOLE", 1 << 21),
        (rejects_module, "ROWS_KEPT", 7),
    ):
        monkeypatch.setattr(module, name, value)


def test_bad_rows_are_kept_up_to_the_bound():
    """What is read as a whole is refused beyond it."""
    rejects = Rejects(1.0)
    for row in range(20):
        rejects.add("f", row, "bad")
    assert (len(rejects.rows), rejects.metrics()["rejected"]) == (7, 20)
    Path("list.json").write_bytes(b"[\n" + b'{"question": "?"},\n' * 200_000 + b"{}]")
    message = r"^list\.json: more than 2 MB in one piece, expected a short list"
    with pytest.raises(LongtailError, match=message):
        list(question_files.read_records(Path("list.json"), ["question"], Rejects(1.0)))
    Path("short.json").write_bytes(b'"' + b"x" * (bounds.WHOLE - 2) + b'"')
    assert len(parse_whole(Path("short.json"))) == bounds.WHOLE - 2
    Path("d.xml").write_bytes(b'<mediawiki version="' + b"x" * 20_000_000 + b'"></mediawiki>')
    with pytest.raises(LongtailError, match=r"d\.xml: corrupt .*an element longer than 0.5 MB"):
        list(wikipedia.read_articles(wikipedia.Part(Path("d.xml")), Rejects(1.0)))
    with Path("d.json").open("wb") as file:
        file.write(b'[\n{"type":"item","id":"Q1","labels":{"en":{"value":"')
        file.truncate(wikidata.BLOCK_BYTES + 10_000_000)
    with pytest.raises(LongtailError, match=r"d\.json: a line longer than 0\.5 MB"):
        deque(
            chain.from_iterable(streams.open_runs(Path("d.json"), wikidata.BLOCK_BYTES)), maxlen=0
        )


def test_lines_are_not_gathered_for_one_row_of_a_table_beyond_it():
    line = "x" * 100_000
    Path("t.csv").write_text("\n".join(['a,"b', *[line] * 99, 'c"', "1,2"]))
    tracemalloc.start()
    try:
        rows = list(delimited.table_rows(Path("t.csv"), ",", 2))
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
    assert [row[1] for row in rows if row[1] and len(row[1]) == 2] == [["1", "2"]]
