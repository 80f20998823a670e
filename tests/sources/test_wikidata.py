"""Wikidata dumps: both layouts, ranks and snaktypes, names in a run's language, and that no
damage passes for data.
"""

import json
from collections import namedtuple
from pathlib import Path

import pytest
from fetching import reasons, saved

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.language.relations import RELATIONS
from pipelines.sources import wikidata
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_runs


def statement(
    o: int | None, rank: str = "normal", snaktype: str = "value", old: bool = False
) -> dict:
    snak = {"snaktype": snaktype, "property": "P50"}
    if snaktype == "value":
        value = {"entity-type": "item", "numeric-id": o} | ({} if old else {"id": f"Q{o}"})
        snak["datavalue"] = {"value": value, "type": "wikibase-entityid"}
    return {"mainsnak": snak, "type": "statement", "rank": rank}


def item(
    qid: int,
    label: str | None = "Name",
    title: str | None = "Title",
    claims=None,
    aliases=(),
    **other,
) -> dict:
    labels = (
        {"en": {"language": "en", "value": label}}
        if label
        else {"fr": {"language": "fr", "value": "Nom"}}
    )
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
    return saved(path, "[\n" + ",\n".join(lines) + end)


class Entity(namedtuple("Entity", wikidata.ENTITIES.names)):
    """A row of wikidata.ENTITIES."""

    @property
    def answers(self) -> list[tuple[int, int]]:
        return list(zip(self.properties, self.objects, strict=True))


def read(path: Path, max_share: float = 1.0, code: str = "en") -> tuple[list[Entity], Rejects]:
    """All blocks of a file; the rows of rejects are those of their block."""
    rejects, entities, fault = Rejects(max_share), [], ""
    for block in open_runs(path, wikidata.BLOCK_BYTES):
        table, _, fault = wikidata.parse_block(
            str(path), block, tuple(RELATIONS), rejects, language.read_language(code)
        )
        entities += [Entity(**row) for row in table.to_pylist()]
    wikidata.check_read(path, rejects, fault)
    return entities, rejects


OUTRANKED = {"outranked_statement": 1}
UNKNOWN, NONE = (statement(None, snaktype=kind) for kind in ("somevalue", "novalue"))
A_PROP, A_TEXT = statement(5), statement(5)
A_PROP["mainsnak"]["datavalue"] = {
    "value": {"entity-type": "property", "numeric-id": 5},
    "type": "wikibase-entityid",
}
A_TEXT["mainsnak"]["datavalue"] = {"value": "five", "type": "string"}


def test_the_answers_are_the_items_of_the_best_statements(tmp_path):
    for statements, objects, skipped in [
        ([statement(2), statement(3, "preferred"), statement(4, "preferred")], [3, 4], OUTRANKED),
        ([statement(2, "deprecated"), statement(3)], [3], {"deprecated_statement": 1}),
        ([statement(2, "deprecated")], [], {"deprecated_statement": 1}),
        ([UNKNOWN, statement(3), NONE], [3], {"somevalue_statement": 1, "novalue_statement": 1}),
        # it outranks
        ([NONE | {"rank": "preferred"}, statement(3)], [], OUTRANKED | {"novalue_statement": 1}),
        ([A_PROP, A_TEXT, statement(6)], [6], {"not_an_item_statement": 2}),
        ([statement(2, old=True)], [2], {}),  # the old layout
    ]:
        [entity], rejects = read(dump(tmp_path / "d.json", [item(1, claims={"P50": statements})]))
        assert entity.answers == [(50, o) for o in objects]
        assert rejects.skipped == skipped


def test_what_is_no_item_is_counted_by_reason(tmp_path):
    other = [{"entity": "Q2", "redirect": "Q1"}, item(3) | {"type": "property", "id": "P3"}]
    parsed, rejects = read(
        dump(tmp_path / "d.json.gz", [item(1, label=None, title=None), item(2), *other])
    )
    assert [e.qid for e in parsed] == [2]
    assert rejects.skipped == {"no_english": 1, "redirect": 1, "not_an_item": 1}
    assert (rejects.rows, rejects.read) == ([], 4)


ORDERS = [
    ["id", "type", "labels", "aliases", "claims", "sitelinks", "lastrevid"],
    ["lastrevid", "type", "id", "sitelinks", "claims", "aliases", "labels"],
    ["id", "type", "labels", "claims", "aliases", "sitelinks", "lastrevid"],
    ["id", "type", "labels", "aliases", "sitelinks", "lastrevid", "claims"],
    ["id", "type", "labels", "aliases", "other", "claims", "sitelinks", "lastrevid"],
]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
@pytest.mark.parametrize("title", ["Title", None])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_order_of_keys_and_spaces_change_nothing(tmp_path, order, title, separators):
    """The claims of an item without an article are cut away unparsed where they stand behind
    its names, only there.
    """
    tricky = 'a "claims": {"enwiki" \\'
    whole = item(
        7, tricky, title, {"P50": [statement(2)]}, [tricky + "2"], lastrevid=9, other={"claims": {}}
    )
    line = json.dumps({key: whole[key] for key in order}, separators=separators)
    [entity], rejects = read(dump(tmp_path / "d.json", [line, item(8, None, None)]))
    claims = ([50], [2]) if title else ([], [])
    expected = Entity(2, 7, tricky, [tricky + "2"], title, *claims)
    assert (entity, rejects.skipped) == (expected, {"no_english": 1})


def test_an_item_without_names_needs_an_article(tmp_path):
    """Its statements and links may well speak of English; empty maps may be written as lists."""
    motto = statement(2) | {
        "references": [{"value": {"text": "x", "language": "en"}, "key": "enwiki"}]
    }
    foreign = item(1, None, None, {"P50": [motto]}) | {"sitelinks": {"frwiki": {"title": "Nom"}}}
    lists = [
        item(3) | {"aliases": [], "claims": []},
        item(4) | {"labels": []},
        item(5) | {"sitelinks": []},
    ]
    parsed, rejects = read(
        dump(tmp_path / "d.json", [foreign, item(2, None, "Title", {"P50": [motto]}), *lists])
    )
    named = [(2, None, "Title"), (3, "Name", "Title"), (4, None, "Title"), (5, "Name", None)]
    assert [(e.qid, e.label, e.wiki_title) for e in parsed] == named
    assert parsed[0].answers == [(50, 2)]
    assert (rejects.skipped, rejects.rows) == ({"no_english": 1}, [])


MUNICH = (
    {"en": "Munich", "de": "München", "mul": "M"},
    {"en": ["Minga"], "de": ["Minga", "Isar-Athen"]},
)
TAIWAN = {"zh": "台湾", "zh-hant": "臺灣", "zh-tw": "台灣"}


def test_names_are_those_of_the_language_and_never_english(tmp_path):
    for code, labels, aliases, titles, expected in [
        ("de", *MUNICH, {"en": "Munich", "de": "München"}, ("München", ["Minga", "Isar-Athen"], "München", [2])),
        ("de", {"en": "Ada", "mul": "A. L."}, {"mul": ["L."], "en": ["A"]}, {"de": "A"}, ("A. L.", ["L."], "A", [2])),
        ("de", {"en": "Norland"}, {}, {"de": "Nordland"}, (None, [], "Nordland", [2])),
        ("de", {"en": "Velm", "fr": "Vide"}, {"en": ["Velm"]}, {"en": "Velm"}, None),
        ("ja", {"ja": "東京"}, {}, {"en": "Tokyo"}, ("東京", [], None, [])),  # another language's article has no claims
        ("zh", TAIWAN, {}, {"zh": "T"}, ("台湾", ["臺灣", "台灣"], "T", [2])),
        ("zh", {"mul": "Taiwan", "en": "Taiwan (island)"}, {}, {"zh": "T"}, ("Taiwan", [], "T", [2])),
    ]:  # fmt: skip
        one = item(1, claims={"P50": [statement(2)]}) | {
            "labels": {code: {"language": code, "value": text} for code, text in labels.items()},
            "aliases": {
                code: [{"value": text} for text in texts] for code, texts in aliases.items()
            },
            "sitelinks": {f"{code}wiki": {"title": title} for code, title in titles.items()},
        }
        found, rejects = read(dump(tmp_path / "d.json", [one]), code=code)
        assert [(e.label, e.aliases, e.wiki_title, e.objects) for e in found] == (
            [expected] if expected else []
        )
        assert rejects.skipped == ({} if expected else {"no_german": 1})


BEYOND = 2**63
CLAIM_BEYOND = {"snaktype": "value", "datavalue": {"value": {"numeric-id": BEYOND}}}


def test_a_bad_line_is_named_by_line_and_reason(tmp_path):
    for line, reason in [
        ('{"id":"Q2","labels":{"en"', "bad_json"),
        (json.dumps(item(2, title=None), separators=(",", ":"))[:-2], "bad_json"),  # cut
        ('{"id":"Q3","labels":{"en":5}}', "unexpected_layout"),
        (item(4) | {"id": "X4"}, "bad_id"),
        (item(4) | {"id": "Q" + "9" * 5000}, "bad_id"),
        (item(4) | {"id": "Q\u0661\u0662"}, "bad_id"),
        (item(4, claims={"P50": [{"mainsnak": CLAIM_BEYOND}]}), "unexpected_layout"),
        ('{"message": "API rate limit exceeded"}', "no_entity"),
    ]:
        path = dump(tmp_path / "d.json", [item(1), line, item(5)])
        parsed, rejects = read(path)
        assert [e.qid for e in parsed] == [1, 5]
        assert reasons(rejects) == [(3, reason)]
        with pytest.raises(
            LongtailError,
            match=rf"d\.json: 1 of 3 rows rejected.*max_reject_share.*row 3, {reason}",
        ):
            read(path, max_share=0.3)


def test_a_dump_cut_where_an_object_ends_is_an_error(tmp_path):
    """Even within statements that aren't parsed otherwise."""
    whole = dump(
        tmp_path / "d.json", [item(1), item(2, title=None, claims={"P50": [statement(3)]})]
    ).read_bytes()
    for end in range(len(whole.rstrip(b"\n]}")), len(whole) - 1):
        (tmp_path / "cut.json").write_bytes(whole[:end])
        if whole[:end].count(b"{") > whole[:end].count(b"}"):
            with pytest.raises(LongtailError, match=r"cut\.json: cut within its last entity"):
                read(tmp_path / "cut.json")
        else:
            assert [entity.qid for entity in read(tmp_path / "cut.json")[0]] == [1, 2]
    saved(tmp_path / "lines.json", b"\n".join(whole.splitlines()[1:-1]))
    assert len(read(tmp_path / "lines.json")[0]) == 2, "lines without brackets"
    with pytest.raises(LongtailError, match=r"d\.json: no entity in it"):
        read(dump(tmp_path / "d.json", []))
