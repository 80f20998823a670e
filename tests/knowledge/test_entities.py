"""The entities stage: what it keeps of dumps, pages and answers, and resuming."""

import gzip
import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from knowledge_tables import chosen
from wikimedia_server import Wikidata, Wikimedia

from pipelines.errors import LongtailError
from pipelines.knowledge import entities
from pipelines.params import params
from pipelines.sources import query_service, wikidata
from pipelines.sources.wikimedia_client import open_client
from pipelines.storage.atomic import SCRATCH


def statement(qid: int, rank: str = "normal") -> dict:
    value = {"snaktype": "value", "datavalue": {"value": {"id": f"Q{qid}"}}}
    return {"mainsnak": value, "rank": rank}


def item(qid: int, label: str | None, title: str | None = None, aliases=(), **answers) -> dict:
    return {
        "type": "item",
        "id": f"Q{qid}",
        "labels": {"en": {"value": label}} if label else {},
        "aliases": {"en": [{"value": alias} for alias in aliases]},
        "claims": {pid: list(map(statement, objects)) for pid, objects in answers.items()},
        "sitelinks": {"enwiki": {"title": title}} if title else {},
    }


WORLD = [
    item(10, "Ada", "Ada (poet)", ["Ada L."], P106=[21, 20], P20=[30]),
    item(12, None, "Nameless", P106=[20]),
    item(13, "Unknown", None, P106=[22]),
    item(20, "poet", "Poet", ["bard"]),
    item(21, "engineer"),
    item(30, "London"),
]
NAMED = [
    (10, "Ada", "Ada (poet)"),
    (12, None, "Nameless"),
    (20, "poet", "Poet"),
    (21, "engineer", None),
]
CLAIMED = [(10, 106, 20), (10, 106, 21), (12, 106, 20)]


@pytest.fixture(autouse=True)
def raw(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw/wikidata").mkdir(parents=True)
    (tmp_path / "raw/wikidata/.about.md").write_text("# About")
    return tmp_path / "raw"


def dump(raw: Path, items: list, name: str = "d.json.gz") -> Path:
    lines = ",\n".join(
        e if isinstance(e, str) else json.dumps(e, separators=(",", ":")) for e in items
    )
    data = f"[\n{lines}\n]\n".encode()
    path = raw / "wikidata" / name
    path.write_bytes(gzip.compress(data, mtime=0) if name.endswith("gz") else data)
    return path


def build(raw: Path, out: str = "out", **compute):
    """Names (qid, label, title), claims, and the counts."""
    counts = entities.build_entities(chosen(**compute), raw, Path(out))
    names = [(row["qid"], row["label"], row["wiki_title"]) for row in read(out, "entities")]
    return names, [tuple(row.values()) for row in read(out, "claims")], counts


def read(out: str, table: str) -> list[dict]:
    return pq.read_table(Path(out) / f"{table}.parquet").to_pylist()


def written(out: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(out).iterdir()}


def test_items_with_an_article_are_kept(raw):
    """The objects of their claims are kept too."""
    dump(raw, WORLD)
    names, claims, counts = build(raw)
    assert (names, claims) == (NAMED, CLAIMED)
    assert [row["aliases"] for row in read("out", "entities")] == [["Ada L."], [], ["bard"], []]
    assert (counts["dump_lines"], counts["entities_read"], counts["files"], counts["rejected"]) == (
        6,
        6,
        1,
        0,
    )
    assert (
        counts["entities"],
        counts["entities_without_label"],
        counts["entities_without_article"],
    ) == (4, 1, 1)
    assert (counts["claims"], counts["objects_missing"]) == (3, 0)
    (raw / "entityquestions").mkdir()  # the relations of EntityQuestions are read where they are
    (raw / "entityquestions/relation_query_templates.json").write_text(
        '{"P20": "Where did [X] die?"}'
    )
    assert build(raw)[:2] == ([*NAMED, (30, "London", None)], [(10, 20, 30), *CLAIMED])


def test_of_an_item_that_occurs_twice_the_first_counts(raw):
    dump(raw, WORLD, "1.json.gz")
    other = [item(10, "Ada", "Ada", P106=[30]), item(20, "other", "Other"), item(12, None, None)]
    dump(raw, other, "2.json.gz")
    names, claims, counts = build(raw)
    assert (names, claims) == (NAMED, CLAIMED)
    assert counts["duplicate_entities"] == 2


def test_of_an_old_and_a_new_dump_the_new_one_counts(raw, capsys):
    dump(raw, [item(10, "Ada", "Old title", P106=[30])], "wikidata-20240701-all.json.gz")
    dump(raw, [item(10, "Ada", "Ada", P106=[20])], "wikidata-20240801-all.json.gz")
    names, claims, counts = build(raw)
    assert (names, claims) == ([(10, "Ada", "Ada")], [(10, 106, 20)])
    assert counts["duplicate_entities"] == 1
    said = "1 lines repeat an item; the item's first line counts, in this order of files:\n"
    said += "  wikidata-20240801-all.json.gz\n  wikidata-20240701-all.json.gz\n"
    assert said in capsys.readouterr().out


def test_without_a_dump_the_tables_are_empty(raw):
    assert build(raw)[:2] == ([], [])


def test_what_the_query_service_wrote_is_a_source_too(raw, wikimedia: Wikimedia, monkeypatch):
    world = Wikidata({"P106": [("Q10", "Q21"), ("Q10", "Q20"), ("Q12", "Q20"), ("Q13", "Q22")]}, {})
    world.articles |= {f"Q{qid}": title for qid, _, title in NAMED if title}
    world.labels |= {
        f"Q{qid}": {"labels": {"en": {"value": label}} if label else {}} for qid, label, _ in NAMED
    }
    wikimedia.pages |= {"/sparql": world.sparql, "/api": world.api}
    server = {"query_service": f"{wikimedia.address}/sparql", "api": f"{wikimedia.address}/api"}
    settings = params.Wikidata(source="query_service", **server)
    monkeypatch.setattr(query_service, "STATEMENTS_PER_PAGE", 2)
    with open_client("someone@example.org", Path("kept")) as client:
        query_service.write_statements(client, raw / "wikidata/q.json.gz", settings, ["P106"])
    names, claims, counts = build(raw)
    assert (names, claims, counts["entities"]) == (NAMED, CLAIMED, 4)


@pytest.mark.parametrize(("workers", "size"), [(1, 300), (2, 1)])
def test_the_bytes_are_the_same_however_a_dump_is_cut(raw, monkeypatch, workers, size):
    dump(raw, WORLD, "1.json.gz")
    dump(raw, ["bad", *WORLD[:2], "{bad}", item(50, "Eve", "Eve", P106=[21])], "2.json")
    _, _, whole = build(raw, max_share=0.5)
    monkeypatch.setattr(wikidata, "BLOCK_BYTES", size)
    _, _, counts = build(raw, "blocks", max_share=0.5, workers=workers)
    assert (written("blocks"), counts) == (written("out"), whole)
    rejects = [(row["file"], row["row"], row["reason"]) for row in read("out", "rejects")]
    assert rejects == [("2.json", 2, "bad_json"), ("2.json", 5, "bad_json")]
    assert (counts["rejected"], counts["rejected.bad_json"]) == (2, 2)


def test_finished_blocks_are_not_parsed_again(raw, monkeypatch):
    monkeypatch.setattr(wikidata, "BLOCK_BYTES", 1)  # every line a block
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
    monkeypatch.setattr(
        entities, "parse_block", lambda *args: (parsed.append(args[-1].name), parse(*args))
    )
    assert build(raw)[:2] == (NAMED, CLAIMED)
    assert parsed == ["000004", "000005", "000006", "000007"]
    assert not any(SCRATCH.glob("work/*"))

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


def test_one_dumps_bad_lines_are_not_hidden_by_another(raw):
    """A bad dump leaves the last result alone."""
    dump(raw, [*WORLD, *(item(n, "x", "X") for n in range(100, 200))], "1.json.gz")
    build(raw)
    before = written("out")
    dump(raw, ["{bad}", *WORLD], "2.json.gz")
    with pytest.raises(
        LongtailError, match=r"2\.json\.gz: 1 of 7 rows rejected, expected at most 5%"
    ):
        build(raw)
    path = dump(raw, WORLD, "2.json")
    path.write_bytes(path.read_bytes()[:-20])
    (raw / "wikidata/2.json.gz").unlink()
    with pytest.raises(LongtailError, match=r"2\.json: cut within its last entity"):
        build(raw)
    assert written("out") == before


def test_every_line_of_the_real_excerpts_counts(real, raw):
    for name in ("wikibrain_testDump.json.bz2", "wikibase-dump-filter_entities.json"):
        (raw / "wikidata" / name).symlink_to(real / "wikidata" / name)
    _, _, counts = build(raw)
    assert counts["dump_lines"] == counts["entities_read"] + counts["skipped.not_an_item"] == 1753
    assert (counts["rejected"], counts["duplicate_entities"], counts["claims"]) == (0, 8, 718)
    assert counts["entities"] + counts["duplicate_entities"] <= counts["entities_read"]
