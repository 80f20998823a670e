"""The relations: PopQA's sixteen, one entry for a new one, and clear errors for a faulty entry."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.knowledge.term_frequency import build_term_frequency
from pipelines.knowledge.triples import build_triples
from pipelines.language import ENGLISH, Language
from pipelines.questions.popqa import build_popqa
from pipelines.relations import FILE, RELATIONS, Relation, read_relations


def test_there_are_the_sixteen_relations_of_the_paper():
    assert list(RELATIONS) == (
        "P106 P136 P17 P57 P58 P462 P641 P25 P19 P22 P162 P1376 P86 P140 P50 P36".split()  # noqa: SIM905
    )
    assert RELATIONS["P19"].name == "place of birth"
    assert RELATIONS["P19"].question("Ada {} Lovelace") == "In what city was Ada {} Lovelace born?"


def asking(*pids: str) -> Language:
    """A language that asks about these relations alone."""
    return msgspec.structs.replace(ENGLISH, name="More", templates=dict.fromkeys(pids, "Who is the child of {}?"))


def questions(folder: Path, relations: dict[str, Relation]) -> list[dict]:
    """PopQA from a small world's claims, through every stage that relations matter to."""
    asked = {"source": "wikidata", "sampling": "term_frequency", "per_relation": 30, "mix": "drawn", "total": None}
    settings = SimpleNamespace(
        seed=0,
        language="en",
        c4=params.C4(sample_mb=1, match="all"),
        popqa=params.PopQA(**asked, refresh=False, train_share=0.25),
        popularity=SimpleNamespace(month="2021-10"),
        ingest=params.Ingest(max_reject_share=0.0, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000),
        compute=params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu"),
    )
    build_term_frequency(settings, folder / "wikidata", folder / "c4", folder / "term_frequency", relations)
    build_triples(settings, folder, relations)
    build_popqa(settings, folder / "popqa", folder / "triples/triples.parquet", folder / "none.tsv", relations)
    return pq.read_table(folder / "popqa/popqa.parquet").to_pylist()


def test_an_added_entry_adds_its_questions_and_changes_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("wikidata", "popularity", "c4"):
        (tmp_path / name).mkdir()
    ids = range(1, 101)
    names = {"qid": ids, "label": [f"Name{i}" for i in ids], "aliases": [[f"N{i}"] for i in ids]}
    names["wiki_title"] = [f"Name{i}" for i in ids]
    pq.write_table(pa.table(names), tmp_path / "wikidata/entities.parquet")
    claims = sorted((s, p, (s * p) % 100 + 1) for s in ids for p in (19, 40, 106) if s % 3 or p == 40)
    columns = (pa.array(column, pa.int64()) for column in zip(*claims, strict=True))
    pq.write_table(pa.table(dict(zip("spo", columns, strict=True))), tmp_path / "wikidata/claims.parquet")
    views = {"title": ["Name1"], "views": pa.array([7], pa.int64())}
    pq.write_table(pa.table(views), tmp_path / "popularity/views.parquet")
    text = " ".join(f"Name{i}" for i in ids)
    (tmp_path / "c4/c4.json.gz").write_bytes(gzip.compress(json.dumps({"text": text}).encode(), mtime=0))

    (tmp_path / "r.yaml").write_text(FILE.read_text() + "P40: child\n")
    before = questions(tmp_path, RELATIONS)
    after = questions(tmp_path, RELATIONS | read_relations(tmp_path / "r.yaml", asking("P40")))
    assert [row for row in after if row["relation"] != "P40"] == before
    added = [row for row in after if row["relation"] == "P40"]
    assert (len(before), len(added)) == (60, 30)
    assert {row["question"] for row in added} <= {f"Who is the child of Name{i}?" for i in ids}
    assert {row["prop"] for row in added} == {"child"}


@pytest.mark.parametrize("text", ["child: child", "P40: {name: child}", "P40: child\nP41: child", "P41: child of"])
def test_a_faulty_entry_is_named(tmp_path, text):
    """The language has a template of P40."""
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(LongtailError, match=r"r\.yaml: .*(P40|child|two relations)"):
        read_relations(tmp_path / "r.yaml", asking("P40"))


def test_english_has_a_template_of_every_relation(tmp_path):
    (tmp_path / "r.yaml").write_text(FILE.read_text() + "P40: child\n")
    with pytest.raises(LongtailError, match=r"languages/en\.yaml: no template of P40"):
        read_relations(tmp_path / "r.yaml")
