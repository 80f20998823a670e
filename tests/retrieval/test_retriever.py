"""A fingerprint tells corpora, encoders and indexes apart without reading all of a large one."""

import numpy as np
import pytest

from pipelines.retrieval import retriever


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Some files of together ten times what is read whole."""
    monkeypatch.setattr(retriever, "WHOLE", 10_000)
    monkeypatch.setattr(retriever, "PIECE", 10)
    monkeypatch.setattr(retriever, "END", 1000)
    for i in range(10):
        (tmp_path / f"{i}").write_bytes(np.random.default_rng(i).bytes(10_000))
    return tmp_path


def test_other_content_or_another_length_or_another_name_is_another_fingerprint(folder):
    known = {retriever.fingerprint(folder)}
    (folder / "5").write_bytes(np.random.default_rng(77).bytes(10_000))
    known.add(retriever.fingerprint(folder))
    (folder / "5").write_bytes((folder / "5").read_bytes() + b"x")
    known.add(retriever.fingerprint(folder))
    end = bytearray((folder / "9").read_bytes())
    end[-500] ^= 1  # as in the footer of a Parquet file
    (folder / "9").write_bytes(end)
    known.add(retriever.fingerprint(folder))
    (folder / "3").rename(folder / "3a")
    known.add(retriever.fingerprint(folder))
    assert len(known) == 5


def test_a_small_file_counts_with_every_byte_wherever_it_lies(folder, tmp_path):
    small = tmp_path / "small"
    small.write_bytes(bytes(9000))
    before = retriever.fingerprint(small)
    for place in (0, 4321, 8999):
        changed = bytearray(9000)
        changed[place] = 1
        small.write_bytes(changed)
        assert retriever.fingerprint(small) != before
    (moved := tmp_path / "x" / "small").parent.mkdir()
    small.write_bytes(bytes(9000))
    small.rename(moved)
    assert retriever.fingerprint(moved) == before
