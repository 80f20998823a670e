"""Hostile labels pass from a dump to a release unchanged, and are harmless wherever they are
shown.
"""

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace

import hostile
import knowledge_tables
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import releases

from pipelines import safe_text
from pipelines.errors import LongtailError, Unreachable
from pipelines.knowledge.entities import build_entities
from pipelines.knowledge.triples import build_triples
from pipelines.questions.popqa import build_popqa
from pipelines.questions.published import COLUMNS, read_published
from pipelines.sources.rejects import Rejects

LABELS = hostile.LABELS
PEOPLE = dict(enumerate(LABELS, start=1))  # each with a job of the same label
JOB = 10_000  # a job's number is its person's and this


def test_a_label_neither_steers_nor_deceives():
    """An error with it is one line that ends with what to do."""
    for label in LABELS:
        shown, dumped = safe_text.text(label), safe_text.dumps({label: [label]})
        errors = [
            str(kind(f"dump.json: {label}, expected a name; fetch it again"))
            for kind in (LongtailError, Unreachable)
        ]
        for text in (shown, dumped, *errors):
            assert not re.search(hostile.STEERING, text), label
        assert len(shown) <= len(label)
        assert "\n" not in safe_text.line(label), label
        assert json.loads(dumped) == {label: [label]}
        for said in errors:
            assert said.startswith("dump.json: ")
            assert said.endswith("expected a name; fetch it again")
            assert len(said) <= safe_text.MESSAGE_CHARS
            assert len(said.splitlines()) == 1, label


def test_an_error_has_no_password_of_an_address():
    said = str(
        LongtailError(
            "http://ada:pass@example.org/a@b.csv and postgresql://ada:p@ss@host: no such file"
        )
    )
    assert said == "http://...@example.org/a@b.csv and postgresql://...@host: no such file"


def test_texts_that_are_right_stay_as_they_are():
    """Half of a surrogate pair can be printed."""
    persian = "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    family = "\U0001f469\u200d\U0001f467"
    for text in ("Čapek\n\tþ", persian, family, "a\u0323\u0301"):
        assert safe_text.text(text) == text
    assert safe_text.line("a\ud800b") == "a\ufffdb"
    assert safe_text.dumps("\ud800\x7f").encode() == b'"\\ud800\\u007f"'


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> list[dict]:
    """PopQA's rows, made by the stages from a dump whose labels, aliases and titles are hostile."""
    data = tmp_path_factory.mktemp("hostile")
    chosen = {"popularity": SimpleNamespace(month="2021-10"), "popqa": knowledge_tables.popqa()}
    settings = knowledge_tables.chosen(max_share=0.0, **chosen)
    items = [item(qid, label, title=label, job=JOB + qid) for qid, label in PEOPLE.items()]
    items += [item(JOB + qid, label, alias=label[::-1]) for qid, label in PEOPLE.items()]
    views = {"title": LABELS, "views": list(PEOPLE)}
    counted = {"qid": list(PEOPLE), "term_frequency": [100] * len(PEOPLE)}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data)
        for folder in ("raw/wikidata", "popularity", "term_frequency"):
            Path(folder).mkdir(parents=True)
        dump = "[\n" + ",\n".join(map(json.dumps, items)) + "\n]\n"
        Path("raw/wikidata/dump.json").write_text(dump, encoding="utf-8")
        build_entities(settings, Path("raw"), Path("wikidata"))
        pq.write_table(pa.table(views), "popularity/views.parquet")
        pq.write_table(pa.table(counted), "term_frequency/term_frequency.parquet")
        build_triples(settings, Path(), relations=("P106",))
        build_popqa(settings, Path("popqa"), Path("triples/triples.parquet"), Path("none.tsv"))
    return pq.read_table(data / "popqa/popqa.parquet").to_pylist()


def item(
    qid: int, label: str, alias: str | None = None, title: str | None = None, job: int | None = None
) -> dict:
    value = {"snaktype": "value", "datavalue": {"value": {"id": f"Q{job}"}}}
    return {
        "type": "item",
        "id": f"Q{qid}",
        "labels": {"en": {"language": "en", "value": label}},
        "aliases": {"en": [{"language": "en", "value": alias}]} if alias else {},
        "claims": {"P106": [{"mainsnak": value, "rank": "normal"}]} if job else {},
        "sitelinks": {"enwiki": {"site": "enwiki", "title": title}} if title else {},
    }


def test_questions_have_every_label_as_the_dump_has_it(rows):
    by_subject = {int(row["s_uri"].rsplit("/Q", 1)[1]): row for row in rows}
    assert by_subject.keys() == PEOPLE.keys()
    for qid, label in PEOPLE.items():
        row = by_subject[qid]
        assert (row["subj"], row["obj"], row["s_wiki_title"]) == (label, label, label)
        assert row["question"] == f"What is {label}'s occupation?"
        assert set(row["possible_answers"]) == {label, label[::-1]}


@pytest.fixture(scope="module")
def release(rows, tmp_path_factory):
    data = releases.write_data(
        tmp_path_factory.mktemp("hostile") / "data",
        rows,
        cuts=releases.thresholds(("tiny", "a|b`<x>")),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data)
        return releases.release(data, data / "release")


def test_a_release_has_them_exactly(rows, release):
    """Its card warns of formulas."""
    expected = [{name: row[name] for name in COLUMNS} for row in rows]
    assert pq.read_table(release / "popqa.parquet", columns=COLUMNS).to_pylist() == expected
    assert read_published(release / "popqa.tsv", Rejects(0.0)).to_pylist() == expected
    with (release / "popqa.tsv").open(encoding="utf-8", newline="") as file:
        assert [row["subj"] for row in csv.DictReader(file, delimiter="\t")] == [
            row["subj"] for row in rows
        ]
    card = (release / "README.md").read_text(encoding="utf-8")
    assert not re.search(hostile.STEERING, card)
    assert "import the TSV files with all columns as text" in card
    assert r"| popqa | a\|b\`\<x\> | bm25 |" in card
