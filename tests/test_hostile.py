"""Hostile labels pass from a dump to a release unchanged, and are harmless wherever they are shown."""

import csv
import json
import re
from types import SimpleNamespace

import hostile
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import releases

from pipelines import neutral, params
from pipelines.errors import LongtailError, Unreachable
from pipelines.knowledge import entities
from pipelines.knowledge.triples import build_triples
from pipelines.questions.popqa import build_popqa
from pipelines.questions.published import COLUMNS, read_published
from pipelines.release.difference import write_difference
from pipelines.sources.rejects import Rejects

LABELS = hostile.LABELS
POPQA = {"source": "wikidata", "sampling": "all", "per_relation": 2000, "mix": "drawn", "total": None}
POPQA |= {"refresh": False, "train_share": 0.25}
JOBS = {10_000 + i: label for i, label in enumerate(LABELS)}
PEOPLE = {1 + i: label for i, label in enumerate(LABELS)}


def test_a_label_neither_steers_nor_deceives():
    for label in LABELS:
        shown = neutral.text(label)
        assert not re.search(hostile.STEERING, shown), label
        assert len(shown) <= len(label)
        assert "\n" not in neutral.line(label), label
        assert not re.search(hostile.STEERING, neutral.dumps({label: [label]})), label
        assert json.loads(neutral.dumps({label: [label]})) == {label: [label]}


def test_texts_that_are_right_stay_as_they_are_and_half_of_a_surrogate_pair_can_be_printed():
    persian, family = "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f469\u200d\U0001f467"
    for text in ("Čapek\n\tþ", persian, family, "a\u0323\u0301"):
        assert neutral.text(text) == text
    assert neutral.line("a\ud800b") == "a\ufffdb"
    assert neutral.dumps("\ud800\x7f").encode() == b'"\\ud800\\u007f"'


@pytest.mark.parametrize("kind", [LongtailError, Unreachable])
def test_an_error_is_one_harmless_line_that_ends_with_what_to_do(kind):
    for label in LABELS:
        said = str(kind(f"dump.json: {label}, expected a name; fetch it again"))
        assert said.startswith("dump.json: ")
        assert said.endswith("expected a name; fetch it again")
        assert len(said) <= neutral.MOST
        assert len(said.splitlines()) == 1, label
        assert not re.search(hostile.STEERING, said), label


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of data sets, made by the stages from a dump whose labels, aliases and titles are hostile."""
    data = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data)
        settings = SimpleNamespace(
            seed=0,
            language="en",
            entities=params.Entities(missing_objects=False, excerpts=False),
            wikidata=SimpleNamespace(api=None),
            ingest=params.Ingest(max_reject_share=0.0, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000),
            compute=params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu"),
            popqa=params.PopQA(**POPQA),
            popularity=SimpleNamespace(month="2021-10"),
        )
        (data / "raw/wikidata").mkdir(parents=True)
        items = [_item(qid, label, [], label) for qid, label in PEOPLE.items()]
        items += [_item(qid, label, [label[::-1]], None) for qid, label in JOBS.items()]
        dump = "[\n" + ",\n".join(json.dumps(item) for item in items) + "\n]\n"
        (data / "raw/wikidata/dump.json").write_text(dump, encoding="utf-8")
        entities.build_entities(settings, data / "raw", data / "knowledge/wikidata")
        views = {"title": LABELS, "views": list(range(1, len(LABELS) + 1))}
        counted = {"qid": list(PEOPLE), "term_frequency": [100] * len(PEOPLE)}
        for name, columns in {"popularity/views": views, "term_frequency/term_frequency": counted}.items():
            (data / "knowledge" / name).parent.mkdir()
            pq.write_table(pa.table(columns), data / "knowledge" / f"{name}.parquet")
        build_triples(settings, data / "knowledge", relations=("P106",))
        triples = data / "knowledge/triples/triples.parquet"
        build_popqa(settings, data / "questions/popqa", triples, data / "none.tsv")
    return data


def _item(qid: int, label: str, aliases: list[str], title: str | None) -> dict:
    claims = {}
    if qid in PEOPLE:
        value = {"snaktype": "value", "datavalue": {"value": {"id": f"Q{10_000 + qid - 1}"}}}
        claims = {"P106": [{"mainsnak": value, "rank": "normal"}]}
    return {
        "type": "item",
        "id": f"Q{qid}",
        "labels": {"en": {"language": "en", "value": label}},
        "aliases": {"en": [{"language": "en", "value": alias} for alias in aliases]},
        "claims": claims,
        "sitelinks": {"enwiki": {"site": "enwiki", "title": title}} if title else {},
    }


def test_questions_have_every_label_as_the_dump_has_it(built):
    rows = pq.read_table(built / "questions/popqa/popqa.parquet").to_pylist()
    by_subject = {row["s_uri"].rsplit("/Q", 1)[1]: row for row in rows}
    assert len(rows) == len(LABELS)
    for qid, label in PEOPLE.items():
        row = by_subject[str(qid)]
        assert (row["subj"], row["obj"], row["s_wiki_title"]) == (label, label, label)
        assert row["question"] == f"What is {label}'s occupation?"
        assert set(row["possible_answers"]) == {label, label[::-1]}


@pytest.fixture(scope="module")
def release(built, tmp_path_factory):
    rows = pq.read_table(built / "questions/popqa/popqa.parquet").to_pylist()
    data = releases.write_data(tmp_path_factory.mktemp("data"), rows, cuts=releases.thresholds(("tiny", "a|b`<x>")))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data)
        return releases.release(data, data / "release")


def test_a_release_has_them_exactly_in_parquet_and_in_tsv(built, release):
    rows = pq.read_table(built / "questions/popqa/popqa.parquet", columns=COLUMNS).to_pylist()
    assert pq.read_table(release / "popqa.parquet", columns=COLUMNS).to_pylist() == rows
    assert read_published(release / "popqa.tsv", Rejects(0.0)).to_pylist() == rows
    with (release / "popqa.tsv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file, delimiter="\t"))
    assert [row["subj"] for row in cells] == [row["subj"] for row in rows]


def test_the_card_warns_of_formulas_and_its_tables_stay_tables(release):
    card = (release / "README.md").read_text(encoding="utf-8")
    assert not re.search(hostile.STEERING, card)
    assert "import the TSV files with all columns as text" in card
    assert r"| popqa | a\|b\`\<x\> | bm25 |" in card


def test_the_page_of_a_difference_is_harmless(release, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = pq.read_table(release / "popqa.parquet").to_pylist()
    for row in rows:
        row["s_pop"], row["possible_answers"] = row["s_pop"] + 7, [row["obj"], "another " + row["obj"]]
    new = releases.write_data(tmp_path / "new", rows[1:]) / "questions/popqa"
    said = write_difference(release, new, tmp_path / "out", ingest=releases.INGEST, threads=1)
    page = (tmp_path / "out/index.html").read_text(encoding="utf-8")
    assert not re.search(hostile.STEERING, page)
    assert "<img" not in page
    assert "<svg/" not in page
    assert len(said) > 2
