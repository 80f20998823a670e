"""The triples stage from small dumps: subjects, objects, popularity, term frequency, and bytes that repeat."""

import gzip
import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.popqa.triples import build_triples


def item(
    qid: int, label: str | None, title: str | None = None, aliases=(), revision: int = 1, **answers: list[int]
) -> dict:
    claims = {
        pid: [
            {
                "mainsnak": {"snaktype": "value", "datavalue": {"value": {"entity-type": "item", "numeric-id": o}}},
                "rank": "normal",
            }
            for o in objects
        ]
        for pid, objects in answers.items()
    }
    return {
        "type": "item",
        "id": f"Q{qid}",
        "lastrevid": revision,
        "labels": {"en": {"value": label}} if label else {},
        "aliases": {"en": [{"value": alias} for alias in aliases]},
        "sitelinks": {"enwiki": {"title": title}} if title else {},
        "claims": claims,
    }


WORLD = [
    item(10, "Ada", "Ada (poet)", ["Ada L."], P106=[20, 21], P19=[30], P22=[40, 41]),
    item(11, "Bob", "Bob", P106=[20]),
    item(12, None, "Nameless", P106=[20]),
    item(13, "Unknown", None, P106=[20]),
    item(20, "poet", "Poet", ["bard"]),
    item(21, "engineer"),
    item(30, "London", "London"),
    item(40, None, "Byron"),
]


def raw(root: Path, *dumps: list[dict], views: str | None = None, texts=("Ada met Ada L. and Bob.",)) -> Path:
    for name in ("wikidata", "pageviews", "c4"):
        (root / name).mkdir(parents=True)
    for number, entities in enumerate(dumps):
        lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entities)
        (root / f"wikidata/dump{number}.json.gz").write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))
    if views is not None:
        (root / "pageviews/month.txt").write_text(views, encoding="utf-8")
    shard = "\n".join(json.dumps({"text": text}) for text in texts)
    (root / "c4/c4.json.gz").write_bytes(gzip.compress(shard.encode(), mtime=0))
    return root


def build(
    raw: Path, out: Path, max_reject_share: float = 0.05, **change
) -> tuple[list[dict], dict[str, dict], dict[str, int]]:
    options = {
        "source": "wikidata",
        "sample_mb": 1,
        "ingest": params.Ingest(max_reject_share=max_reject_share, memory_gb=1.0),
        "compute": params.Compute(threads=1, workers=1, device="cpu"),
    }
    counts = build_triples(raw, out, **(options | change))
    entities = {row["qid"]: row for row in pq.read_table(out / "entities.parquet").to_pylist()}
    return pq.read_table(out / "triples.parquet").to_pylist(), entities, counts


@pytest.fixture(autouse=True)
def _workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


VIEWS = """en.wikipedia Ada_(poet) 1 desktop 7 A7
en.wikipedia Ada_(poet) 1 mobile-web 3 A3
en.wikipedia Poet 2 desktop 2 A2
"""


def test_triples_carry_names_popularity_and_term_frequency(tmp_path):
    triples, entities, _ = build(raw(tmp_path / "raw", WORLD, views=VIEWS), tmp_path / "out")
    assert [(t["s_qid"], t["p_pid"], t["o_qid"]) for t in triples] == [
        ("Q10", "P19", "Q30"),
        ("Q10", "P106", "Q20"),
        ("Q10", "P106", "Q21"),
        ("Q11", "P106", "Q20"),
    ]
    assert triples[1] == {
        "s_qid": "Q10",
        "p_pid": "P106",
        "o_qid": "Q20",
        "s_label": "Ada",
        "o_label": "poet",
        "s_aliases": ["Ada L."],
        "o_aliases": ["bard"],
        "s_wiki_title": "Ada (poet)",
        "o_wiki_title": "Poet",
        "s_pop": 10,
        "o_pop": 2,
        "term_frequency": 3,  # Ada twice, Ada L. once
    }
    assert (triples[2]["o_wiki_title"], triples[2]["o_pop"]) == (None, 0)
    assert set(entities) == {"Q10", "Q11", "Q13", "Q20", "Q21", "Q30"}
    assert (entities["Q11"]["popularity"], entities["Q11"]["term_frequency"]) == (0, 1)
    assert entities["Q20"]["term_frequency"] is None


def test_what_falls_out_is_counted_by_reason(tmp_path):
    _, _, counts = build(raw(tmp_path / "raw", WORLD), tmp_path / "out")
    assert counts["dropped.subject_without_label"] == 1
    assert counts["dropped.object_without_label"] == 1
    assert counts["dropped.object_not_in_dump"] == 1
    assert counts["entities_without_article"] == 2
    assert (counts["claims"], counts["triples"], counts["subjects"], counts["rejected"]) == (7, 4, 2, 0)


def test_the_newest_revision_of_an_item_counts(tmp_path):
    newer = [item(10, "Ada", "Ada (poet)", revision=2, P106=[21])]
    triples, _, counts = build(raw(tmp_path / "raw", WORLD, newer), tmp_path / "out")
    assert [t["o_qid"] for t in triples if t["s_qid"] == "Q10"] == ["Q21"]
    assert counts["duplicate_entities"] == 1


def test_the_same_dumps_give_the_same_bytes_whatever_memory_and_workers(tmp_path, monkeypatch):
    folder = raw(tmp_path / "raw", WORLD, [item(50, "Carl", "Carl", ["C."], P106=[20])], views=VIEWS)
    build(folder, tmp_path / "a")
    monkeypatch.setattr("pipelines.popqa.triples.NAMES_PER_GB", 1)  # a pass over the texts for every name
    monkeypatch.setattr("pipelines.popqa.triples.BATCH", 2)
    build(folder, tmp_path / "b", compute=params.Compute(threads=2, workers=2, device="cpu"))
    for file in ("triples", "entities", "rejects"):
        a, b = (hashlib.sha256((tmp_path / x / f"{file}.parquet").read_bytes()).hexdigest() for x in "ab")
        assert a == b, file


def test_no_dump_is_an_error_unless_questions_come_from_the_published_file(tmp_path):
    folder = raw(tmp_path / "raw")
    with pytest.raises(LongtailError, match=r"wikidata: no dump in it"):
        build(folder, tmp_path / "out")
    triples, entities, _ = build(folder, tmp_path / "out", source="published")
    assert (triples, entities) == ([], {})


def test_bad_rows_of_one_source_are_not_hidden_by_good_rows_of_another(tmp_path):
    folder = raw(tmp_path / "raw", WORLD, views="en.wikipedia Poet 2 desktop 2 A2\nen.wikipedia Poet broken\n")
    with pytest.raises(LongtailError, match=r"month\.txt: 1 of 2 rows rejected"):
        build(folder, tmp_path / "out", 0.3)
    assert not (tmp_path / "out").exists()
    _, _, counts = build(folder, tmp_path / "out", 0.5)
    assert counts["rejected.bad_line"] == 1
    assert pq.read_table(tmp_path / "out/rejects.parquet").to_pylist() == [
        {"file": "month.txt", "row": 2, "reason": "bad_line", "detail": "en.wikipedia Poet broken"}
    ]


def test_a_damaged_dump_leaves_the_last_result_alone(tmp_path):
    folder = raw(tmp_path / "raw", WORLD)
    build(folder, tmp_path / "out")
    before = (tmp_path / "out/triples.parquet").read_bytes()
    dump = folder / "wikidata/dump0.json.gz"
    dump.write_bytes(dump.read_bytes()[:-20])
    with pytest.raises(LongtailError, match=r"dump0\.json\.gz"):
        build(folder, tmp_path / "out")
    assert (tmp_path / "out/triples.parquet").read_bytes() == before
