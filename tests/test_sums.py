"""Checksums beside a folder's files: what changed since they were written is named when the folder is opened."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from pipelines import sums
from pipelines.errors import LongtailError


@pytest.fixture
def folder(tmp_path) -> Path:
    sums._checked.clear()
    folder = tmp_path / "model"
    (folder / "queries").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "queries/model.safetensors").write_bytes(bytes(range(256)) * 100)
    (folder / "empty").touch()
    sums.write(folder)
    return folder


def flip(folder: Path, place: int) -> None:
    file = folder / "queries/model.safetensors"
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


def test_a_folder_as_it_was_written_or_from_elsewhere_passes(folder):
    before = (folder / sums.SUMS).read_bytes()
    sums.check(folder)
    sums.write(folder)  # the same again: the sums have no sum
    assert (folder / sums.SUMS).read_bytes() == before
    (folder / sums.SUMS).unlink()
    sums.check(folder)


def test_a_missing_file_and_damaged_sums_are_named(folder):
    (folder / "config.json").unlink()
    with pytest.raises(LongtailError, match=r"config\.json: no such file, expected 2 bytes"):
        sums.check(folder)
    for text in ("", "[]", '{"a": 1}', '{"a": {}}', "\0"):
        (folder / sums.SUMS).write_text(text)
        with pytest.raises(LongtailError, match=r"sums\.json: damaged"):
            sums.check(folder)


def test_a_flipped_bit_is_named_and_in_a_larger_file_if_it_is_at_an_end(folder, monkeypatch):
    monkeypatch.setattr(sums, "END", 10_000)
    sums.write(folder)
    named = r"queries/model\.safetensors: not as it was written.*; remove .*model, and"
    for whole, unseen in ((sums.WHOLE, ()), (20_000, (12_800,))):
        monkeypatch.setattr(sums, "WHOLE", whole)
        for place in (0, 9_999, 12_800, 15_601, 25_599):
            sums.check(folder)
            flip(folder, place)
            with nullcontext() if place in unseen else pytest.raises(LongtailError, match=named):
                sums.check(folder)
            sums.check(folder, "config.json")
            flip(folder, place)
