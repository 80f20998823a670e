"""Wikidata dumps: both layouts, ranks and snaktypes, and that no damage passes for data."""

import bz2
import gzip
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from pipelines.errors import LongtailError
from pipelines.relations import RELATIONS
from pipelines.sources import wikidata
from pipelines.sources.rejects import Rejects


def statement(o: int | None, rank: str = "normal", snaktype: str = "value", old: bool = False) -> dict:
    snak = {"snaktype": snaktype, "property": "P50"}
    if snaktype == "value":
        value = {"entity-type": "item", "numeric-id": o} | ({} if old else {"id": f"Q{o}"})
        snak["datavalue"] = {"value": value, "type": "wikibase-entityid"}
    return {"mainsnak": snak, "type": "statement", "rank": rank}


def item(qid: int, label: str | None = "Name", title: str | None = "Title", claims=None, aliases=(), **other) -> dict:
    labels = {"en": {"language": "en", "value": label}} if label else {"fr": {"language": "fr", "value": "Nom"}}
    sitelinks = {"enwiki": {"site": "enwiki", "title": title, "badges": []}} if title else {}
    return {
        "type": "item",
        "id": f"Q{qid}",
        "labels": labels,
        "aliases": {"en": [{"language": "en", "value": a} for a in aliases]},
        "claims": claims or {},
        "sitelinks": sitelinks,
    } | other


def dump(path: Path, entities: list, end: str = "\n]\n") -> Path:
    lines = [e if isinstance(e, str) else json.dumps(e, separators=(",", ":")) for e in entities]
    data = ("[\n" + ",\n".join(lines) + end).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


class Entity(NamedTuple):
    """A row of wikidata.ENTITIES."""

    row: int
    revision: int
    qid: int
    label: str | None
    aliases: list[str]
    wiki_title: str | None
    properties: list[int]
    objects: list[int]
    dates: list[str]

    @property
    def answers(self) -> list[tuple[int, int]]:
        return list(zip(self.properties, self.objects, strict=True))


def read(path: Path, max_share: float = 1.0, excerpts: bool = False) -> tuple[list[Entity], Rejects]:
    """All blocks of a file; the rows of rejects are those of their block."""
    rejects, entities, fault = Rejects(max_share), [], ""
    for block in wikidata.read_blocks(path):
        table, _, fault = wikidata.parse_block(str(path), block, tuple(RELATIONS), rejects)
        entities += [Entity(**row) for row in table.to_pylist()]
    wikidata.check_read(path, rejects, fault, excerpts)
    return entities, rejects


def objects(tmp_path: Path, *statements: dict) -> list[int]:
    [entity], _ = read(dump(tmp_path / "d.json", [item(1, claims={"P50": list(statements)})]))
    return [o for p, o in entity.answers if p == 50]


def test_preferred_statements_alone_count_where_there_are_any(tmp_path):
    assert objects(tmp_path, statement(2), statement(3, "preferred"), statement(4, "preferred")) == [3, 4]


def test_deprecated_statements_never_count(tmp_path):
    assert objects(tmp_path, statement(2, "deprecated"), statement(3)) == [3]
    assert objects(tmp_path, statement(2, "deprecated")) == []


def test_unknown_and_no_value_are_no_answers_but_outrank(tmp_path):
    assert objects(tmp_path, statement(None, snaktype="somevalue"), statement(3)) == [3]
    assert objects(tmp_path, statement(None, "preferred", "novalue"), statement(3)) == []
    unknown = item(1, claims={"P50": [statement(None, snaktype="somevalue"), statement(None, snaktype="novalue")]})
    _, rejects = read(dump(tmp_path / "d.json", [unknown]))
    assert rejects.skipped == {"somevalue_statement": 1, "novalue_statement": 1}


def test_values_that_are_no_items_are_no_answers(tmp_path):
    odd = statement(5)
    odd["mainsnak"]["datavalue"] = {"value": {"entity-type": "property", "numeric-id": 5}, "type": "wikibase-entityid"}
    text = statement(5)
    text["mainsnak"]["datavalue"] = {"value": "five", "type": "string"}
    path = dump(tmp_path / "d.json", [item(1, claims={"P50": [odd, text, statement(6)]})])
    [entity], rejects = read(path)
    assert entity.answers == [(50, 6)]
    assert rejects.skipped["not_an_item_statement"] == 2


def test_the_old_layout_gives_the_same_as_the_new(tmp_path):
    new = item(1, claims={"P50": [statement(2)]})
    old = item(1, claims={"P50": [statement(2, old=True)]})
    assert read(dump(tmp_path / "new.json", [new]))[0] == read(dump(tmp_path / "old.json", [old]))[0]


def test_empty_maps_may_be_written_as_lists(tmp_path):
    entities = [item(1) | {"aliases": [], "claims": []}, item(2) | {"labels": []}, item(3) | {"sitelinks": []}]
    parsed, rejects = read(dump(tmp_path / "d.json", entities))
    assert [(e.qid, e.label, e.wiki_title) for e in parsed] == [
        (1, "Name", "Title"),
        (2, None, "Title"),
        (3, "Name", None),
    ]
    assert not rejects.rows


def test_a_name_for_all_languages_stands_in_for_a_missing_english_one(tmp_path):
    mul = {"mul": {"language": "mul", "value": "Ada"}}
    entities = [item(1) | {"labels": mul}, item(2) | {"labels": mul | {"en": {"language": "en", "value": "Ada L."}}}]
    assert [e.label for e in read(dump(tmp_path / "d.json", entities))[0]] == ["Ada", "Ada L."]


def test_items_without_an_english_label_or_article_are_counted_as_skipped(tmp_path):
    entities = [item(1, label=None, title=None), item(2), item(3) | {"type": "property", "id": "P3"}]
    parsed, rejects = read(dump(tmp_path / "d.json.gz", entities))
    assert [e.qid for e in parsed] == [2]
    assert rejects.skipped == {"no_english": 1, "not_an_item": 1}
    assert rejects.read == 3


def test_bad_lines_are_named_by_line_and_reason(tmp_path):
    entities = [item(1), '{"id":"Q2","labels":{"en"', '{"id":"Q3","labels":{"en":5}}', item(4) | {"id": "X4"}, item(5)]
    parsed, rejects = read(dump(tmp_path / "d.json", entities))
    assert [e.qid for e in parsed] == [1, 5]
    assert [(file, row, reason) for file, row, reason, _ in rejects.rows] == [
        ("d.json", 3, "bad_json"),
        ("d.json", 4, "unexpected_layout"),
        ("d.json", 5, "bad_id"),
    ]


def test_a_line_that_is_not_utf8_is_a_bad_line(tmp_path):
    path = dump(tmp_path / "d.json", [item(1), item(2, label="Bad"), item(3)])
    path.write_bytes(path.read_bytes().replace(b"Bad", b"B\xffd"))
    parsed, rejects = read(path)
    assert [e.qid for e in parsed] == [1, 3]
    assert [row[1:3] for row in rejects.rows] == [(3, "bad_json")]


def test_more_rejects_than_allowed_stop_the_reading(tmp_path):
    path = dump(tmp_path / "d.json", [item(1), '{"id":"Q2","labels":{"en"', item(3)])
    with pytest.raises(LongtailError, match=r"d\.json: 1 of 3 rows rejected.*max_reject_share.*row 3, bad_json"):
        read(path, max_share=0.3)


def test_a_cut_dump_is_an_error(tmp_path):
    whole = dump(tmp_path / "d.json", [item(1), item(2)]).read_bytes()
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) - 30])
    with pytest.raises(LongtailError, match=r"cut\.json: cut within its last entity"):
        read(tmp_path / "cut.json")
    packed = gzip.compress(whole)
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(LongtailError, match=r"cut\.json\.gz"):
        read(tmp_path / "cut.json.gz")


def test_a_dump_cut_where_an_object_ends_is_an_error(tmp_path):
    """Even within statements that aren't parsed otherwise."""
    whole = dump(tmp_path / "d.json", [item(1), item(2, title=None, claims={"P50": [statement(3)]})]).read_bytes()
    for end in range(len(whole.rstrip(b"\n]}")), len(whole) - 1):
        (tmp_path / "cut.json").write_bytes(whole[:end])
        if whole[:end].count(b"{") > whole[:end].count(b"}"):
            with pytest.raises(LongtailError, match=r"cut\.json: cut within its last entity"):
                read(tmp_path / "cut.json")
        else:
            with pytest.raises(LongtailError, match=r"cut\.json: no ] at its end, expected a whole dump"):
                read(tmp_path / "cut.json")
            assert [entity.qid for entity in read(tmp_path / "cut.json", excerpts=True)[0]] == [1, 2]


@pytest.mark.parametrize("kept", [1, 2, 50])
def test_a_dump_cut_at_a_lines_end_is_an_error(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(wikidata, "BLOCK", 2000)
    whole = dump(tmp_path / "d.json", [item(i) for i in range(1, 61)]).read_bytes()
    (tmp_path / "cut.json").write_bytes(b"".join(whole.splitlines(keepends=True)[: 1 + kept]))
    with pytest.raises(LongtailError, match=r"cut\.json: no ] at its end"):
        read(tmp_path / "cut.json")
    assert len(read(tmp_path / "d.json")[0]) == 60
    lines = b"\n".join(whole.splitlines()[1:-1])
    (tmp_path / "lines.json").write_bytes(lines)
    assert len(read(tmp_path / "lines.json")[0]) == 60, "lines without brackets have no other end"


@pytest.mark.parametrize("line", ['{"message": "API rate limit exceeded"}', '{"id": "Q1"}', '{"type": "item"}', "{}"])
def test_a_line_without_id_and_type_is_no_entity(tmp_path, line):
    entities, rejects = read(dump(tmp_path / "d.json", [item(1), line, item(2)]))
    assert [entity.qid for entity in entities] == [1, 2]
    assert [(row, reason) for _, row, reason, _ in rejects.rows] == [(3, "no_entity")]


@pytest.mark.parametrize("first", ["message", "errors", "success", "servedby", "continue"])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_answer_without_entities_is_an_error(tmp_path, first, indent):
    (tmp_path / "a.json").write_text(json.dumps({first: "x", "rest": {"id": "Q1", "type": "item"}}, indent=indent))
    with pytest.raises(LongtailError, match=r"a\.json: .*expected an answer of the entity API"):
        read(tmp_path / "a.json")


def test_an_answers_entities_are_read_whatever_it_begins_with(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"servedby": "mw1", "entities": {"Q1": item(1)}}, indent=1))
    assert [entity.qid for entity in read(tmp_path / "a.json")[0]] == [1]


ORDERS = [
    ["id", "type", "labels", "aliases", "claims", "sitelinks", "lastrevid"],
    ["lastrevid", "type", "id", "sitelinks", "claims", "aliases", "labels"],
    ["claims", "type", "id", "labels", "aliases", "sitelinks", "lastrevid"],
    ["id", "type", "labels", "claims", "aliases", "sitelinks", "lastrevid"],
    ["id", "type", "aliases", "claims", "labels", "sitelinks", "lastrevid"],
    ["id", "type", "labels", "aliases", "sitelinks", "lastrevid", "claims"],
    ["id", "type", "labels", "aliases", "other", "claims", "sitelinks", "lastrevid"],
]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
@pytest.mark.parametrize("title", ["Title", None])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_order_of_keys_and_spaces_between_them_change_nothing(tmp_path, order, title, separators):
    """The claims of an item without an article are cut away unparsed where they stand behind its names, only there."""
    tricky = 'a "claims": {"enwiki" \\'
    whole = item(7, tricky, title, {"P50": [statement(2)]}, [tricky + "2"], lastrevid=9, other={"claims": {}})
    line = json.dumps({key: whole[key] for key in order}, separators=separators)
    [entity], rejects = read(dump(tmp_path / "d.json", [line, item(8, None, None)]))
    claims = ([50], [2], [""]) if title else ([], [], [])
    expected = Entity(2, 9, 7, tricky, [tricky + "2"], title, *claims)
    assert (entity, rejects.skipped) == (expected, {"no_english": 1})


def test_an_item_of_another_language_is_left_out_unless_it_has_an_article(tmp_path):
    """Its statements and links may well speak of English."""
    motto = statement(2) | {"references": [{"value": {"text": "x", "language": "en"}, "key": "enwiki"}]}
    foreign = item(1, None, None, {"P50": [motto]}) | {"sitelinks": {"frwiki": {"title": "Nom"}}}
    parsed, rejects = read(dump(tmp_path / "d.json", [foreign, item(2, None, "Title", {"P50": [motto]})]))
    assert [(e.qid, e.label, e.wiki_title, e.answers) for e in parsed] == [(2, None, "Title", [(50, 2)])]
    assert rejects.skipped == {"no_english": 1}


def test_what_was_merged_or_deleted_is_counted_by_reason(tmp_path):
    entities = [item(1), {"entity": "Q2", "redirect": "Q1"}, {"id": "Q3", "missing": ""}]
    parsed, rejects = read(dump(tmp_path / "d.json", entities))
    assert [entity.qid for entity in parsed] == [1]
    assert (rejects.skipped, rejects.rows, rejects.read) == ({"redirect": 1, "missing": 1}, [], 3)


@pytest.mark.parametrize("indent", [None, 1])
def test_an_answer_of_the_entity_api_reads_as_a_dump_does(tmp_path, indent):
    entities = [item(1, claims={"P50": [statement(2)]}, aliases=["one\ntwo"]), item(4) | {"id": "X4"}]
    answer = {f"Q{n}": entity for n, entity in enumerate(entities)} | {"Q3": {"id": "Q3", "missing": ""}}
    answer["Q5"] = item(6) | {"redirects": {"from": "Q5", "to": "Q6"}}
    (tmp_path / "a.json").write_text(json.dumps({"entities": answer, "success": 1}, indent=indent))
    parsed, rejects = read(tmp_path / "a.json")
    expected, _ = read(dump(tmp_path / "d.json", [entities[0], item(6)]))
    assert parsed == [e._replace(row=n) for n, e in zip((1, 4), expected, strict=True)]
    assert rejects.skipped == {"missing": 1, "redirect": 1}
    assert [row[:3] for row in rejects.rows] == [("a.json", 2, "bad_id")]


def test_an_error_of_the_entity_api_is_no_data(tmp_path):
    (tmp_path / "a.json").write_text('{"error":{"code":"no-such-entity"}}')
    with pytest.raises(LongtailError, match=r"a\.json: .*`entities`.*expected an answer of the entity API"):
        read(tmp_path / "a.json")


@pytest.mark.parametrize("size", [1, 500, 1000])
def test_blocks_are_whole_lines_and_say_how_many(tmp_path, size, monkeypatch):
    path = dump(tmp_path / "d.json.gz", [*map(item, range(1, 9)), "bad", *map(item, range(9, 20))])
    whole, of_whole = read(path)
    monkeypatch.setattr(wikidata, "BLOCK", size)
    entities, rejects, before = [], Rejects(1.0), 0
    for block in wikidata.read_blocks(path):
        table, lines, _ = wikidata.parse_block(str(path), block, tuple(RELATIONS), of_block := Rejects(1.0))
        entities += [Entity(**row)._replace(row=before + row["row"]) for row in table.to_pylist()]
        rejects.rows += [(file, before + row, *why) for file, row, *why in of_block.rows]
        before += lines
    assert (entities, rejects.rows) == (whole, of_whole.rows)
    assert before == 22


def test_a_cut_line_within_a_dump_is_a_bad_line(tmp_path):
    cut = json.dumps(item(2, title=None), separators=(",", ":"))[:-2]
    for entities in ([item(1), cut, item(3)], [item(1), item(3), cut]):
        parsed, rejects = read(dump(tmp_path / "d.json", entities))
        assert [e.qid for e in parsed] == [1, 3]
        assert [row[2] for row in rejects.rows] == ["bad_json"]


@pytest.mark.parametrize("text", ["<!DOCTYPE html><html>429</html>", "", "[\n]\n"])
def test_an_error_page_or_an_empty_dump_is_an_error(tmp_path, text):
    (tmp_path / "d.json").write_text(text)
    with pytest.raises(LongtailError, match=r"d\.json"):
        read(tmp_path / "d.json")


def test_both_real_layouts_parse_without_rejects(real):
    old, rejects = read(real / "wikidata/wikibrain_testDump.json.bz2")
    assert (len(old), sum(len(e.answers) for e in old)) == (400, 626)
    assert (rejects.read, rejects.rows, rejects.skipped["not_an_item"]) == (1704, [], 1304)
    new, rejects = read(real / "wikidata/wikibase-dump-filter_entities.json", excerpts=True)
    assert (len(new), sum(len(e.answers) for e in new), rejects.rows) == (49, 104, [])
    scotland = new[0]
    assert (scotland.qid, scotland.label, scotland.wiki_title, scotland.answers) == (
        22,
        "Scotland",
        "Scotland",
        [(17, 145), (36, 23436)],
    )


def test_a_real_dump_agrees_with_plain_json(real):
    """The same entities, names and best answers by a slow and independent reading."""
    path = real / "wikidata/wikibrain_testDump.json.bz2"
    expected = {}
    for line in bz2.decompress(path.read_bytes()).decode().split("\n"):
        entity = json.loads(line.strip().rstrip(",")) if line.startswith("{") else {"type": None}
        if entity["type"] != "item":
            continue
        answers = set()
        for pid in RELATIONS:
            statements = entity.get("claims", {}).get(pid, [])
            for rank in ("preferred", "normal"):
                chosen = [s["mainsnak"] for s in statements if s["rank"] == rank]
                if chosen:
                    break
            answers |= {(pid, s["datavalue"]["value"]["numeric-id"]) for s in chosen if s["snaktype"] == "value"}
        if "enwiki" not in entity["sitelinks"]:
            answers = set()
        expected[int(entity["id"][1:])] = (entity["labels"]["en"]["value"], answers)
    parsed = {e.qid: (e.label, {(f"P{p}", o) for p, o in e.answers}) for e in read(path)[0]}
    assert parsed == expected
