"""The table of data sets: what follows from an entry."""

from __future__ import annotations

import pytest

from pipelines import catalogue
from pipelines.catalogue import DATASETS


@pytest.mark.parametrize("use", ["documents", "questions", "benchmark"])
def test_every_reader_and_builder_is_there(use):
    assert all(callable(catalogue.function(name, use)) for name in catalogue.names(use))


def test_every_data_set_has_its_row_in_the_guide_to_the_data(root):
    text = (root / "data/README.md").read_text(encoding="utf-8")
    assert [
        n
        for n, d in DATASETS.items()
        if f"| `raw/{n}` | {d.title.format(language='English')} | {d.files} | {d.licence} |" not in text
    ] == []


def test_words_for_readers_of_the_report_change_no_result(monkeypatch):
    before = catalogue.facts("pile")
    monkeypatch.setitem(DATASETS, "pile", catalogue.replace(DATASETS["pile"], label="The Pile", title="Texts"))
    assert catalogue.facts("pile") == before
    monkeypatch.setitem(DATASETS, "pile", catalogue.replace(DATASETS["pile"], learn=False))
    assert catalogue.facts("pile") != before
