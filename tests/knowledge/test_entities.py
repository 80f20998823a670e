"""The entities stage: what it keeps of dumps, pages and answers, resuming, and bytes that repeat."""

import gzip
import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from wikimedia_server import Wikidata, Wikimedia

from pipelines import params, shards
from pipelines.errors import LongtailError
from pipelines.knowledge import entities
from pipelines.sources import query_service, wikidata
from pipelines.sources.wikimedia import open_client


def item(qid: int, label: str | None, title: str | None = None, aliases=(), revision: int = 1, **answers) -> dict:
    claims = {
        pid: [{"mainsnak": {"snaktype": "value", "datavalue": {"value": {"id": f"Q{o}"}}}} for o in objects]
        for pid, objects in answers.items()
    }
    return {
        "type": "item",
        "id": f"Q{qid}",
        "labels": {"en": {"value": label}} if label else {},
        "aliases": {"en": [{"value": alias} for alias in aliases]},
        "claims": claims,
        "sitelinks": {"enwiki": {"title": title}} if title else {},
        "lastrevid": revision,
    }


WORLD = [
    item(10, "Ada", "Ada (poet)", ["Ada L."], P106=[21, 20], P20=[30]),
    item(12, None, "Nameless", P106=[20]),
    item(13, "Unknown", None, P106=[22]),
    item(20, "poet", "Poet", ["bard"]),
    item(21, "engineer"),
    item(30, "London"),
]
NAMED = [(10, "Ada", "Ada (poet)"), (12, None, "Nameless"), (20, "poet", "Poet"), (21, "engineer", None)]
CLAIMED = [(10, 106, 20), (10, 106, 21), (12, 106, 20)]


@pytest.fixture(autouse=True)
def raw(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw/wikidata").mkdir(parents=True)
    (tmp_path / "raw/wikidata/.about.md").write_text("# About")
    return tmp_path / "raw"


def dump(raw: Path, items: list, name: str = "d.json.gz") -> Path:
    lines = ",\n".join(e if isinstance(e, str) else json.dumps(e, separators=(",", ":")) for e in items)
    data = f"[\n{lines}\n]\n".encode()
    path = raw / "wikidata" / name
    path.write_bytes(gzip.compress(data, mtime=0) if name.endswith("gz") else data)
    return path


def build(
    raw: Path, out: str = "out", max_share: float = 0.05, workers: int = 1, api: str | None = None, excerpts=False
):
    """Names (qid, label, title), claims, and the counts."""
    settings = SimpleNamespace(
        contact="someone@example.org",
        language="en",
        entities=params.Entities(missing_objects=api is not None, excerpts=excerpts),
        wikidata=SimpleNamespace(api=api),
        ingest=params.Ingest(max_reject_share=max_share, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000),
        compute=params.Compute(threads=1, workers=workers, executor="local", dask=None, device="cpu"),
    )
    counts = entities.build_entities(settings, raw, Path(out))
    names = [(row["qid"], row["label"], row["wiki_title"]) for row in read(out, "entities")]
    return names, [tuple(row.values()) for row in read(out, "claims")], counts


def read(out: str, table: str) -> list[dict]:
    return pq.read_table(Path(out) / f"{table}.parquet").to_pylist()


def digests(out: str) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(out).iterdir()}


def test_items_with_an_article_and_the_objects_of_their_claims_are_kept(raw):
    dump(raw, WORLD)
    names, claims, counts = build(raw)
    assert (names, claims) == (NAMED, CLAIMED)
    assert [row["aliases"] for row in read("out", "entities")] == [["Ada L."], [], ["bard"], []]
    assert (counts["dump_lines"], counts["entities_read"], counts["files"], counts["rejected"]) == (6, 6, 1, 0)
    assert (counts["entities"], counts["entities_without_label"], counts["entities_without_article"]) == (4, 1, 1)
    assert (counts["claims"], counts["objects_missing"]) == (3, 0)


def test_the_relations_of_entityquestions_are_read_where_they_are(raw):
    dump(raw, WORLD)
    (raw / "entityquestions").mkdir()
    (raw / "entityquestions/relation_query_templates.json").write_text('{"P20": "Where did [X] die?"}')
    names, claims, _ = build(raw)
    assert (names, claims) == ([*NAMED, (30, "London", None)], [(10, 20, 30), *CLAIMED])


def test_the_newest_revision_of_an_item_counts_then_the_first_file(raw):
    dump(raw, WORLD, "1.json.gz")
    newer = [item(10, "Ada", "Ada (poet)", revision=2, P106=[21]), item(20, "other", "Other"), item(12, None, None)]
    dump(raw, newer, "2.json.gz")
    names, claims, counts = build(raw)
    assert (names, claims) == (NAMED, [(10, 106, 21), (12, 106, 20)])
    assert counts["duplicate_entities"] == 2


def test_an_answer_of_the_entity_api_is_a_source_too(raw):
    answer = {"entities": {entity["id"]: entity for entity in WORLD}, "success": 1}
    (raw / "wikidata/answer.json").write_text(json.dumps(answer, indent=1))
    assert build(raw)[:2] == (NAMED, CLAIMED)


def test_what_the_query_service_and_the_entity_api_wrote_is_a_source_too(raw, wikimedia: Wikimedia):
    world = Wikidata({"P106": [("Q10", "Q21"), ("Q10", "Q20"), ("Q12", "Q20"), ("Q13", "Q22")]}, {})
    world.articles |= {f"Q{qid}": title for qid, _, title in NAMED if title}
    world.labels |= {f"Q{qid}": {"labels": {"en": {"value": label}} if label else {}} for qid, label, _ in NAMED}
    wikimedia.pages |= {"/sparql": world.sparql, "/api": world.api}
    server = {"query_service": f"{wikimedia.address}/sparql", "api": f"{wikimedia.address}/api"}
    settings = params.Wikidata(source="query_service", **server, page=2)
    with open_client("someone@example.org", Path("kept")) as client:
        query_service.write_pages(client, raw / "wikidata", settings, ["P106"])
    names, claims, counts = build(raw)
    assert (names, claims) == (NAMED, CLAIMED)
    assert counts["entities"] == 4


def test_pages_add_to_a_dump_and_the_dump_comes_first(raw):
    dump(raw, WORLD)
    answer = {"entities": {"Q20": item(20, "versifier", "Poet"), "Q50": item(50, "Eve", "Eve")}}
    (raw / "wikidata/entities-000000000.jsonl.gz").write_bytes(gzip.compress(json.dumps(answer).encode()))
    names, claims, _ = build(raw)
    assert (names, claims) == ([*NAMED, (50, "Eve", "Eve")], CLAIMED)


def test_missing_objects_are_asked_of_the_entity_api(raw, wikimedia: Wikimedia):
    dump(raw, [item(10, "Ada", "Ada", P106=[20, 21, 22, 23]), item(20, "poet")])
    world = Wikidata({}, {"Q21": "Engineer"}, redirects={"Q22": "Q21"}, missing={"Q23"})
    wikimedia.pages["/api"] = world.api
    names, claims, counts = build(raw, api=f"{wikimedia.address}/api")
    assert names == [
        (10, "Ada", "Ada"),
        (20, "poet", None),
        (21, "Label of Q21", "Engineer"),
        (22, "Label of Q21", "Engineer"),
    ]
    assert [o for _, _, o in claims] == [20, 21, 22, 23]
    assert (counts["objects_missing"], counts["objects_fetched"]) == (3, 2)
    assert (counts["skipped.missing"], counts["skipped.redirect"]) == (1, 1)
    assert not list(shards.SCRATCH.rglob("*.sqlite"))


@pytest.mark.parametrize(("workers", "size"), [(1, 300), (2, 1)])
def test_the_same_bytes_however_a_dump_is_cut_and_whoever_parses_it(raw, monkeypatch, workers, size):
    dump(raw, WORLD, "1.json.gz")
    dump(raw, ["bad", *WORLD[:2], "{bad}", item(50, "Eve", "Eve", P106=[21])], "2.json")
    _, _, whole = build(raw, max_share=0.5)
    monkeypatch.setattr(wikidata, "BLOCK", size)
    _, _, counts = build(raw, "blocks", max_share=0.5, workers=workers)
    assert (digests("blocks"), counts) == (digests("out"), whole)


def test_bad_lines_keep_the_dump_and_the_line_they_stand_in(raw, monkeypatch):
    monkeypatch.setattr(wikidata, "BLOCK", 300)
    dump(raw, [*WORLD, "{bad}", item(50, "Eve", "Eve")], "1.json.gz")
    _, _, counts = build(raw, max_share=0.5)
    assert [(row["file"], row["row"], row["reason"]) for row in read("out", "rejects")] == [
        ("1.json.gz", 8, "bad_json")
    ]
    assert (counts["rejected"], counts["rejected.bad_json"]) == (1, 1)


def test_finished_blocks_are_not_parsed_again_while_the_dump_is_the_same(raw, monkeypatch):
    monkeypatch.setattr(wikidata, "BLOCK", 1)  # every line a block
    path, parse, parsed = dump(raw, WORLD, "d.json"), entities.parse_block, []

    def stopping(properties, spoken, file, block, target):
        if len(parsed) == 4:
            raise KeyboardInterrupt
        parsed.append(target.name)
        parse(properties, spoken, file, block, target)

    monkeypatch.setattr(entities, "parse_block", stopping)
    for _ in range(3):  # stopped, and stopped again at once
        with pytest.raises(KeyboardInterrupt):
            build(raw)
    assert parsed == ["000000", "000001", "000002", "000003"]
    parsed.clear()
    monkeypatch.setattr(entities, "parse_block", lambda *args: (parsed.append(args[-1].name), parse(*args)))
    assert build(raw)[:2] == (NAMED, CLAIMED)
    assert parsed == ["000004", "000005", "000006", "000007"]
    assert not any(shards.SCRATCH.glob("shards/*"))

    parsed.clear()
    monkeypatch.setattr(entities, "parse_block", stopping)
    with pytest.raises(KeyboardInterrupt):
        build(raw)
    before, text = path.stat(), path.read_text()
    path.write_text(text.replace("Ada L.", "ADA L."))  # as long and, it says, as old
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    monkeypatch.setattr(entities, "parse_block", parse)
    build(raw)
    assert ["ADA L."] in [row["aliases"] for row in read("out", "entities")]


def test_bad_lines_of_one_dump_are_not_hidden_by_another(raw):
    dump(raw, [*WORLD, *(item(n, "x", "X") for n in range(100, 200))], "1.json.gz")
    dump(raw, ["{bad}", *WORLD], "2.json.gz")
    with pytest.raises(LongtailError, match=r"2\.json\.gz: 1 of 7 rows rejected, expected at most 5%"):
        build(raw)


@pytest.mark.parametrize("size", [1, 1 << 25])
def test_a_damaged_dump_leaves_the_last_result_alone(raw, monkeypatch, size):
    path = dump(raw, WORLD, "d.json")
    build(raw)
    before, whole = digests("out"), path.read_bytes()
    monkeypatch.setattr(wikidata, "BLOCK", size)
    path.write_bytes(whole[:-20])
    with pytest.raises(LongtailError, match=r"d\.json: cut within its last entity"):
        build(raw)
    path.write_bytes(b"[\n]\n")
    with pytest.raises(LongtailError, match=r"d\.json: no entity in it"):
        build(raw)
    packed = raw / "wikidata/e.json.gz"
    packed.write_bytes(gzip.compress(whole)[:-30])
    path.unlink()
    with pytest.raises(LongtailError, match=r"e\.json\.gz: cut in the middle"):
        build(raw)
    assert digests("out") == before


def test_no_file_gives_empty_tables(raw):
    names, claims, counts = build(raw)
    assert (names, claims, counts["files"]) == ([], [], 0)


def test_every_line_of_the_real_excerpts_is_an_entity_or_counted(real, raw):
    for name in ("wikibrain_testDump.json.bz2", "wikibase-dump-filter_entities.json"):
        (raw / "wikidata" / name).write_bytes((real / "wikidata" / name).read_bytes())
    with pytest.raises(LongtailError, match=r"entities\.json: no ] at its end, .*entities\.excerpts"):
        build(raw)
    _, _, counts = build(raw, excerpts=True)
    assert counts["dump_lines"] == counts["entities_read"] + counts["skipped.not_an_item"] == 1753
    assert (counts["rejected"], counts["duplicate_entities"], counts["claims"]) == (0, 8, 718)
    assert counts["entities"] + counts["duplicate_entities"] <= counts["entities_read"]
