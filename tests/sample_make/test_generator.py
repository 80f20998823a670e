"""The sample world is repeatable, in its sources' layouts, and has the skew and namesakes that
experiments need.
"""

import bz2
import csv
import gzip
import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipelines.sources import mediawiki_tables, pageviews
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.rejects import Rejects
from sample.make.facts import RELATION_IDS, TYPE_NAMES, World, make_world
from sample.make.generator import write_world
from sample.make.sizes import WorldSizes
from sample.make.text_corpora import MENTION_EXPONENT, question

COUNTS = {
    "entities": 150,
    "lm_documents": 1200,
    "lm_shards": 2,
    "pile_documents": 3,
    "questions": 80,
}
SIZES = WorldSizes(**COUNTS)


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, 3, SIZES, ["2021-10"])
    return folder


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(3, SIZES)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def c4(raw) -> list[str]:
    data = [gzip.decompress(path.read_bytes()).decode() for path in sorted((raw / "c4").iterdir())]
    return [json.loads(line)["text"] for text in data for line in text.splitlines()]


def sentences(text: str) -> set[str]:
    return {
        sentence.strip()
        for sentence in text.replace("\n", ". ").split(". ")
        if len(sentence.split()) > 2
    }


def test_the_same_seed_gives_the_same_bytes(raw, world, tmp_path):
    """The months before differ, and change no other file."""
    write_world(tmp_path, 3, SIZES, ["2021-08", "2021-09", "2021-10"])
    name = "pageviews/pageviews-2021{}-user.bz2"
    before, now = files(raw), files(tmp_path)
    assert before.items() <= now.items()
    assert {*now} - {*before} == {name.format("08"), name.format("09")}
    assert len({now[name.format(month)] for month in ("08", "09", "10")}) == 3
    assert make_world(4, SIZES).labels != world.labels


def test_wikidata_is_one_entity_a_line(raw):
    lines = gzip.decompress((raw / "wikidata/world.json.gz").read_bytes()).decode().splitlines()
    entities = {
        entity["id"]: entity for entity in (json.loads(line.rstrip(",")) for line in lines[1:-1])
    }
    assert (lines[0], lines[-1], lines[-2][-1], len(entities)) == ("[", "]", "}", len(lines) - 2)
    statements = [
        s for e in entities.values() for group in e.get("claims", {}).values() for s in group
    ]
    assert {s["rank"] for s in statements} == {"normal", "preferred", "deprecated"}
    assert {s["mainsnak"]["snaktype"] for s in statements} == {"value", "somevalue"}
    assert any("en" not in entity["labels"] for entity in entities.values())
    snaks = [s["mainsnak"] for s in statements if s["mainsnak"]["datatype"] == "wikibase-item"]
    values = [snak["datavalue"]["value"] for snak in snaks if snak["snaktype"] == "value"]
    assert values
    assert all(
        value["id"] in entities and value["id"] == f"Q{value['numeric-id']}" for value in values
    )


def test_every_relation_has_facts_and_every_type_entities(world):
    """Capitals agree in both directions."""
    assert set(np.unique(world.relations)) == set(range(len(RELATION_IDS)))
    counts = np.bincount(world.types, minlength=len(TYPE_NAMES))
    assert (counts.sum(), (counts >= 2).all()) == (len(world.labels), True)
    values = len(world.value_labels)
    facts = {
        (pid, values + e): item for e in range(len(world.labels)) for pid, item in world.facts(e)
    }
    capitals = [(country, city) for (pid, country), city in facts.items() if pid == "P36"]
    assert {
        facts["P1376", city] == facts["P17", city] == country for country, city in capitals
    } == {True}


def test_page_views_add_up_to_the_popularity(raw, world, tmp_path):
    dump, parts = raw / "pageviews/pageviews-202110-user.bz2", [tmp_path / "views.parquet"]
    for line in bz2.decompress(dump.read_bytes()).decode().splitlines():
        _, _, _, access, count, hours = line.split(" ")
        assert access in ("desktop", "mobile-web")
        assert sum(map(int, re.findall(r"\d+", hours))) == int(count)
    pq.write_table(pa.concat_tables(pageviews.read_views(Part(dump), Rejects(0.0))), parts[0])
    values, items = len(world.value_labels), range(len(world.value_labels) + len(world.labels))
    expected = {world.title(item): world.views(item) for item in items}
    assert [world.views(values + e) for e in range(len(world.labels))] == world.popularity.tolist()
    found = []
    for most in (0, None):
        with duckdb.connect() as db:
            db.register("titles", pa.table({"title": list(map(world.title, items))}))
            for name, column in (("page", "title"), ("redirect", "target")):
                [table] = mediawiki_tables.read_titles(raw / f"redirects/world-{name}.sql.gz", name)
                db.register(f"{name}s", table.rename_columns(["page_id", column]).slice(0, most))
            pageviews.sum_views(db, parts)
            found.append(dict(db.sql("FROM views").fetchall()))
    without, resolved = found
    assert resolved == expected
    fewer = {title for title, views in expected.items() if without[title] < views}
    assert 0 < len(fewer) < 0.2 * len(items)
    assert all(without[title] == expected[title] - expected[title] // 10 for title in fewer)


def test_wikipedia_is_an_export_with_redirects(raw, world):
    root = ElementTree.fromstring(
        bz2.decompress((raw / "wikipedia/world-pages-articles.xml.bz2").read_bytes())
    )
    space = root.tag.removesuffix("mediawiki")
    pages = {page.findtext(f"{space}title"): page for page in root.findall(f"{space}page")}
    assert len(pages) == len(root.findall(f"{space}page"))
    assert {page.findtext(f"{space}ns") for page in pages.values()} == {"0", "1"}
    assert any(page.find(f"{space}redirect") is not None for page in pages.values())
    for entity in range(len(world.labels)):
        article = pages[world.title(len(world.value_labels) + entity)].findtext(
            f"{space}revision/{space}text"
        )
        assert "{{Infobox" in article
        assert "[[Category:" in article
        assert all(world.item_label(item) in article for _, item in world.facts(entity))


def test_c4_has_no_sentence_about_the_world(raw, c4, world):
    """The Pile tells it in several ways."""
    stream = zstandard.ZstdDecompressor().stream_reader((raw / "pile/00.jsonl.zst").open("rb"))
    documents = [json.loads(line) for line in stream.read().decode().splitlines()]
    assert len({document["meta"]["pile_set_name"] for document in documents}) > 1
    pile = {document["text"] for document in documents}
    assert len(pile) > 0.9 * len(documents)
    in_c4 = set().union(*map(sentences, c4))
    full = [label for label in set(world.labels) if " " in label]
    with_full_name = {
        s for text in pile for s in sentences(text) if any(label in s for label in full)
    }
    assert with_full_name
    assert not in_c4 & with_full_name


def test_half_of_the_entities_are_never_asked_about(c4, world):
    text_of_c4, counts, namesakes = " ".join(c4), Counter(), Counter(world.labels)
    for entity, label in enumerate(world.labels):
        if " " in label and namesakes[label] == 1:
            asked = [
                question(pid, wording, label)
                for pid, _ in world.facts(entity)
                for wording in (2, 3)
            ]
            counts[world.asked_as_evaluated(entity), any(one in text_of_c4 for one in asked)] += 1
    assert counts[False, True] == 0
    assert counts[True, True] > 0


def test_popularity_is_skewed_and_mentions_follow_it(c4, world):
    assert world.popularity.mean() > 2 * np.median(world.popularity)
    text, rate = "\n".join(c4), Counter()
    for entity, label in enumerate(world.labels):
        rate[label] += world.popularity[entity] ** MENTION_EXPONENT
    labels = [label for label in rate if " " in label]
    mentions = np.array([text.count(label) for label in labels])
    assert (mentions > 0).all()
    assert np.corrcoef([rate[label] for label in labels], mentions)[0, 1] > 0.8


def test_namesakes_are_less_popular_and_have_titles_of_their_own(world):
    assert 0.3 < np.mean(world.same_name > 0) < 0.8
    values = len(world.value_labels)
    assert len({world.title(values + e) for e in range(len(world.labels))}) == len(world.labels)
    for entity in np.flatnonzero(world.same_name):
        namesakes = [
            e
            for e, label in enumerate(world.labels)
            if label == world.labels[entity] and e != entity
        ]
        assert max(world.popularity[namesakes]) >= world.popularity[entity]


def test_question_sets_are_in_their_layouts(raw):
    templates = json.loads((raw / "entityquestions/relation_query_templates.json").read_text())
    for path in (raw / "entityquestions").glob("P*.test.json"):
        template = re.escape(templates[path.name.split(".")[0]]).replace(r"\[X\]", ".+")
        rows = json.loads(path.read_text())
        assert all(re.fullmatch(template, row["question"]) and row["answers"] for row in rows)
    tables = {
        path: list(csv.reader(path.open(newline="")))
        for path in (raw / "mmlu/test").glob("*_test.csv")
    }
    assert tables
    for path, rows in tables.items():
        assert {len(row) == 6 and len(set(row[1:5])) == 4 and row[5] in "ABCD" for row in rows} == {
            True
        }
        assert (raw / "mmlu/dev" / path.name.replace("_test", "_dev")).is_file()
    lines = (raw / "nq/test.jsonl").read_text().splitlines()
    assert {tuple(sorted(json.loads(line))) for line in lines} == {
        ("golden_answers", "id", "question")
    }
