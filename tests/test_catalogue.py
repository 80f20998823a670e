"""The table of data sets: what follows from an entry."""

from pipelines import catalogue
from pipelines.catalogue import DATASETS


def test_every_reader_and_builder_is_there_and_every_data_set_in_the_guide_to_the_data(root):
    for use in ("documents", "questions", "benchmark"):
        assert all(callable(catalogue.function(name, use)) for name in catalogue.names(use))
    text = (root / "data/README.md").read_text(encoding="utf-8")
    for name, entry in DATASETS.items():
        assert f"| `raw/{name}` | {entry.title.format(language='English')} | {entry.files} | {entry.licence} |" in text


def test_words_for_readers_of_the_report_change_no_result(monkeypatch):
    before = catalogue.facts("pile")
    monkeypatch.setitem(DATASETS, "pile", catalogue.replace(DATASETS["pile"], label="The Pile", title="Texts"))
    assert catalogue.facts("pile") == before
    monkeypatch.setitem(DATASETS, "pile", catalogue.replace(DATASETS["pile"], learn=False))
    assert catalogue.facts("pile") != before
