"""Names from Wikidata in a run's language: labels fall back as Wikidata's do, and never to English."""

import json

import pytest

from pipelines import language
from pipelines.sources import wikidata
from pipelines.sources.rejects import Rejects

PROPERTIES = ("P36",)
CLAIM = {"P36": [{"mainsnak": {"snaktype": "value", "datavalue": {"value": {"id": "Q2"}}}}]}


def item(qid: int, labels: dict, aliases: dict | None = None, **titles: str) -> str:
    """A line of a dump; `titles` are by wiki."""
    return json.dumps(
        {
            "type": "item",
            "id": f"Q{qid}",
            "labels": {code: {"language": code, "value": text} for code, text in labels.items()},
            "aliases": {code: [{"value": text} for text in texts] for code, texts in (aliases or {}).items()},
            "claims": CLAIM,
            "sitelinks": {site: {"site": site, "title": title} for site, title in titles.items()},
        }
    )


def read(code: str, *lines: str) -> tuple[list[tuple], dict]:
    """(qid, label, aliases, title, objects) of each item that counts, and what was skipped."""
    rejects = Rejects(0.0)
    text = "\n".join(lines).encode()
    table, _, _ = wikidata.parse_block("d", [text], PROPERTIES, rejects, language.read(code))
    columns = ("qid", "label", "aliases", "wiki_title", "objects")
    return [tuple(row[name] for name in columns) for row in table.to_pylist()], dict(rejects.skipped)


def test_label_aliases_article_and_claims_are_those_of_the_language():
    line = item(
        1,
        {"en": "Munich", "de": "München", "mul": "M"},
        {"en": ["Minga"], "de": ["Minga", "Isar-Athen"]},
        enwiki="Munich",
        dewiki="München",
    )
    assert read("de", line) == ([(1, "München", ["Minga", "Isar-Athen"], "München", [2])], {})
    assert read("en", line) == ([(1, "Munich", ["Minga"], "Munich", [2])], {})


def test_mul_stands_in_for_a_missing_label_and_english_does_not():
    lines = [
        item(1, {"en": "Ada", "mul": "Ada Lovelace"}, {"mul": ["Ada L."], "en": ["Countess"]}, dewiki="Ada"),
        item(2, {"en": "Velm"}, {"en": ["Velm"]}, enwiki="Velm"),
        item(3, {"en": "Norland"}, dewiki="Nordland"),
        item(4, {"fr": "Vide", "en-gb": "Void"}),
    ]
    found, skipped = read("de", *lines)
    assert found == [(1, "Ada Lovelace", ["Ada L."], "Ada", [2]), (3, None, [], "Nordland", [2])]
    assert skipped == {"no_german": 2}


def test_an_article_in_another_language_brings_no_claims():
    assert read("ja", item(1, {"ja": "東京"}, enwiki="Tokyo")) == ([(1, "東京", [], None, [])], {})


@pytest.mark.parametrize(
    ("labels", "label", "aliases"),
    [
        ({"zh": "台湾", "zh-hant": "臺灣", "zh-tw": "台灣"}, "台湾", ["臺灣", "台灣"]),
        ({"zh-hant": "臺灣", "zh-hans": "台湾"}, "台湾", ["臺灣"]),
        ({"zh-tw": "台灣", "mul": "Taiwan"}, "台灣", []),
        ({"mul": "Taiwan", "en": "Taiwan (island)"}, "Taiwan", []),
    ],
)
def test_chinese_falls_back_along_its_variants_whose_names_are_right_answers_too(labels, label, aliases):
    assert read("zh", item(1, labels, zhwiki="台湾")) == ([(1, label, aliases, "台湾", [2])], {})
