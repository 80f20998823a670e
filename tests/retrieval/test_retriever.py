"""A fingerprint tells corpora, encoders and indexes apart without reading all of a large one."""

import numpy as np
import pytest

from pipelines.retrieval import retriever


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Some files of together ten times what is read whole."""
    for name, size in (("WHOLE", 10_000), ("PIECE", 10), ("END", 1000)):
        monkeypatch.setattr(retriever, name, size)
    for i in range(10):
        (tmp_path / f"{i}").write_bytes(np.random.default_rng(i).bytes(10_000))
    return tmp_path


def test_other_content_or_another_length_or_another_name_is_another_fingerprint(folder):
    end = bytearray((folder / "9").read_bytes())
    end[-500] ^= 1  # as in the footer of a Parquet file
    known = {retriever.fingerprint(folder)}
    for change in (
        lambda: (folder / "5").write_bytes(np.random.default_rng(77).bytes(10_000)),
        lambda: (folder / "5").write_bytes((folder / "5").read_bytes() + b"x"),
        lambda: (folder / "9").write_bytes(end),
        lambda: (folder / "3").rename(folder / "3a"),
    ):
        change()
        known.add(retriever.fingerprint(folder))
    assert len(known) == 5


def test_a_small_file_counts_with_every_byte_wherever_it_lies(folder):
    (small := folder / "small").write_bytes(bytes(9000))
    before = retriever.fingerprint(small)
    for place in (0, 4321, 8999):
        changed = bytearray(9000)
        changed[place] = 1
        small.write_bytes(changed)
        assert retriever.fingerprint(small) != before
    (moved := folder / "x" / "small").parent.mkdir()
    moved.write_bytes(bytes(9000))
    assert retriever.fingerprint(moved) == before
