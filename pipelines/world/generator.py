"""The offline sample: one seeded fictional world in the real sources' formats, for the very readers of the real thing.

What is disjoint: C4 (the language model's text) states a fact of the world in wordings of its own, in single sentences
or questions. No sentence of a Wikipedia page or a Pile document about the world's entities is in it. Its `reading` and
`distractor` documents hold pages in the wordings of Wikipedia and the Pile, but about names that are not in the world,
drawn afresh for each document: they teach a small model to read, and nothing about the world. Of half of the world's
entities (`World.asked_as_evaluated`) C4 asks questions in the wordings of PopQA and EntityQuestions too, of the others
never, so that knowing a fact can be told from having seen the question. An entity's Pile documents tell the same facts,
each in an order and wordings of its own; so do its WikiText articles, in Wikipedia's wordings.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from xml.sax.saxutils import escape

import numpy as np
import zstandard

from pipelines import draws, params
from pipelines.world import sentences as text
from pipelines.world.encyclopedia import write_wikitext
from pipelines.world.facts import ALIASES, OBJECTS, RELATION_IDS, TYPE_NAMES, World, make_world

BLOCK = 10_000  # entities whose text is drawn at a time
SUBSETS = ("Pile-CC", "OpenWebText2", "Wikipedia (en)", "Books3")
SUBJECTS = {  # MMLU's names of subjects -> the relations asked there
    "high_school_geography": ("P17", "P36", "P1376", "P19"),
    "world_religions": ("P140",),
    "high_school_world_history": ("P22", "P25", "P106"),
    "miscellaneous": ("P57", "P58", "P162", "P86", "P50", "P136", "P641", "P462"),
}


def write_world(folder: Path, seed: int, world: params.World) -> None:
    """Write every data set below `folder` as it would lie in data/raw; the same bytes for the same arguments."""
    made = make_world(seed, world)
    write_wikidata(folder / "wikidata/world.json.gz", made)
    write_pageviews(folder / f"pageviews/pageviews-{world.month.replace('-', '')}-user.bz2", made)
    write_wikipedia(folder / "wikipedia/world-pages-articles.xml.bz2", made)
    write_pile(folder / "pile/00.jsonl.zst", made, world.pile_documents)
    write_c4(folder / "c4", made, world)
    write_questions(folder, made, world.questions)
    write_wikitext(folder / "wikitext", made)
    (folder / "popqa").mkdir(parents=True, exist_ok=True)


def write_wikidata(path: Path, world: World) -> None:
    """A Wikidata JSON dump: one entity a line in [ ], with what a reader has to see through.

    Deprecated claims are false; beside a preferred claim the normal ones are out of date; some values are unknown; some
    entities have no English label; properties stand among the items.
    """
    values = len(world.value_labels)
    with _gzip(path) as out:
        out.write(b"[\n")
        for pid in RELATION_IDS:
            name = text.RELATIONS[pid].name
            out.write(
                _json({"type": "property", "datatype": "wikibase-item", "id": pid, "labels": _label(name)}) + b",\n"
            )
        for item, label in enumerate(world.value_labels):
            out.write(_item(world, item, label, [], ALIASES.get(label, [])) + b",\n")
        for block, rng in _blocks(world, "wikidata"):
            chances, others = rng.random((len(block), 4)), rng.integers(0, 1 << 30, len(block))
            for entity, chance, other in zip(block, chances.tolist(), others.tolist(), strict=True):
                label = world.labels[entity]
                claims = [(pid, item, "normal") for pid, item in world.facts(entity)]
                pid, item, _ = claims[0]
                pool = world.pools[OBJECTS[pid]]
                wrong = int(pool[other % len(pool)])
                if wrong != item and chance[0] < 0.05:
                    claims.append((pid, wrong, "deprecated"))
                elif wrong != item and chance[0] < 0.1:
                    claims[0] = (pid, item, "preferred")
                    claims.append((pid, wrong, "normal"))
                elif chance[0] < 0.12:
                    claims.append((pid, -1, "normal"))
                first, _, last = label.partition(" ")
                aliases = [f"{first[0]}. {last}"] if last and chance[1] < 0.3 else []
                out.write(_item(world, values + entity, label, claims, aliases) + b",\n")
                if chance[2] < 0.01:
                    nameless = {"type": "item", "id": f"Q{10**8 + entity}", "labels": _label(label, "de"), "claims": {}}
                    out.write(_json(nameless | {"aliases": {}, "descriptions": {}, "sitelinks": {}}) + b",\n")
        last = {"type": "item", "id": "Q5", "labels": _label("human"), "aliases": {}, "descriptions": {}, "claims": {}}
        out.write(
            _json(last | {"sitelinks": {"enwiki": {"site": "enwiki", "title": "Human", "badges": []}}}) + b"\n]\n"
        )


def _item(world: World, item: int, label: str, claims: list[tuple[str, int, str]], aliases: list[str]) -> bytes:
    qid, title, statements = world.qid(item), world.title(item), {}
    for i, (pid, value, rank) in enumerate(claims):
        snak = {"snaktype": "somevalue" if value < 0 else "value", "property": pid, "datatype": "wikibase-item"}
        if value >= 0:
            target = {"entity-type": "item", "numeric-id": int(world.qid(value)[1:]), "id": world.qid(value)}
            snak["datavalue"] = {"value": target, "type": "wikibase-entityid"}
        statement = {"mainsnak": snak, "type": "statement", "id": f"{qid}$world-{i}", "rank": rank}
        statements.setdefault(pid, []).append(statement)
    born = {
        "snaktype": "value",
        "property": "P646",
        "datatype": "external-id",
        "datavalue": {"value": qid, "type": "string"},
    }
    statements["P646"] = [{"mainsnak": born, "type": "statement", "id": f"{qid}$world-id", "rank": "normal"}]
    return _json(
        {
            "type": "item",
            "id": qid,
            "labels": _label(label) | _label(label, "de"),
            "descriptions": _label("of the sample world"),
            "aliases": {"en": [{"language": "en", "value": alias} for alias in aliases]} if aliases else {},
            "claims": statements,
            "sitelinks": {
                "dewiki": {"site": "dewiki", "title": title, "badges": []},
                "enwiki": {"site": "enwiki", "title": title, "badges": []},
            },
        }
    )


def write_pageviews(path: Path, world: World) -> None:
    """A month's "pageview complete" dump: wiki, title, page id, access, views, and which day had how many; by wiki."""
    items = len(world.value_labels) + len(world.labels)
    with _bz2(path) as out:
        for wiki, share in (("de.wikipedia", 7), ("en.wikipedia", 1), ("en.wiktionary", 11)):
            for item in range(items):
                views = world.views(item) // share
                if not views:
                    continue
                title = world.title(item).replace(" ", "_")
                desktop = views * 2 // 5
                for access, count in (("desktop", desktop), ("mobile-web", views - desktop)):
                    if count:
                        days = f"C{count}" if count < 9 else f"C{count // 3}P{count - count // 3}"
                        out.write(f"{wiki} {title} {1000 + item} {access} {count} {days}\n".encode())


def write_wikipedia(path: Path, world: World) -> None:
    """A pages-articles XML export: articles with infobox, links, references, categories, and what is no article."""
    values = len(world.value_labels)
    with _bz2(path) as out:
        out.write(_XML_HEAD)
        for item, kind in enumerate(world.value_classes):
            body = f"'''{world.title(item)}''' is a kind of {kind}.\n\n[[Category:{kind.title()}]]"
            out.write(_page(world.title(item), 0, 1000 + item, body))
        for block, rng in _blocks(world, "wikipedia"):
            numbers = rng.integers(0, 1 << 30, (len(block), 24)).tolist()
            for entity, row in zip(block, numbers, strict=True):
                label, title, kind = world.labels[entity], world.title(values + entity), TYPE_NAMES[world.types[entity]]
                facts = [(pid, world.item_label(item)) for pid, item in world.facts(entity)]
                rows = "".join(f"| {text.RELATIONS[pid].name.replace(' ', '_')} = {value}\n" for pid, value in facts)
                told = text.page("article", kind, label, facts, iter(row))
                for _, item in world.facts(entity):
                    target, value = world.title(item), world.item_label(item)
                    link = f"[[{value}]]" if target == value else f"[[{target}|{value}]]"
                    told = told.replace(
                        f" {value}.", f" {link}.<ref>{{{{cite web |title=On {value} |year=2020}}}}</ref>", 1
                    )
                told = told.replace(label, f"'''{label}'''", 1)
                body = (
                    f"{{{{Infobox {kind}\n| name = {label}\n{rows}}}}}\n{told}\n\n== References ==\n{{{{reflist}}}}\n\n"
                )
                out.write(_page(title, 0, 1000 + values + entity, body + f"[[Category:{kind.title()}]]"))
                if row[-1] % 20 == 0:
                    target = f"#REDIRECT [[{title}]]"
                    out.write(_page(f"{title} of note", 0, 10**8 + entity, target, redirect=title))
                if row[-1] % 50 == 1:
                    out.write(_page(f"Talk:{title}", 1, 2 * 10**8 + entity, f"Is {label} well told here?"))
        out.write(b"</mediawiki>\n")


def _page(title: str, namespace: int, number: int, body: str, redirect: str = "") -> bytes:
    mark = f'    <redirect title="{escape(redirect)}" />\n' if redirect else ""
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n{mark}"
        f"    <revision>\n      <id>{number}</id>\n      <timestamp>2021-10-01T00:00:00Z</timestamp>\n"
        "      <contributor>\n        <username>World</username>\n        <id>1</id>\n      </contributor>\n"
        "      <model>wikitext</model>\n      <format>text/x-wiki</format>\n"
        f'      <text xml:space="preserve">{escape(body)}</text>\n    </revision>\n  </page>\n'
    ).encode()


def write_pile(path: Path, world: World, documents: int) -> None:
    """Pile documents, `documents` of each entity, told in another order and other wordings each time."""
    with _open(path) as raw, zstandard.ZstdCompressor(level=3).stream_writer(raw, closefd=False) as out:
        for copy in range(documents):  # so that an entity's documents lie apart
            for block, rng in _blocks(world, f"pile/{copy}"):
                numbers = rng.integers(0, 1 << 30, (len(block), 24)).tolist()
                for entity, row in zip(block, numbers, strict=True):
                    facts = [(pid, world.item_label(item)) for pid, item in world.facts(entity)]
                    told = text.page("passage", TYPE_NAMES[world.types[entity]], world.labels[entity], facts, iter(row))
                    out.write(_json({"text": told, "meta": {"pile_set_name": SUBSETS[row[-1] % len(SUBSETS)]}}) + b"\n")


def write_c4(folder: Path, world: World, sizes: params.World) -> None:
    """C4's shards, from which the small language model learns; the host of a document's url names its kind."""
    shards = sizes.lm_shards
    per_shard = -(-sizes.lm_documents // shards)
    documents = text.lm_documents(world, sizes)
    for shard in range(shards):
        with _gzip(folder / f"c4-train.{shard:05d}-of-{shards:05d}.json.gz") as out:
            for number, (kind, body) in zip(range(shard * per_shard, (shard + 1) * per_shard), documents, strict=False):
                url = f"https://{kind}.example/{number}"
                out.write(_json({"text": body, "timestamp": "2019-04-25T12:00:00Z", "url": url}) + b"\n")


def write_questions(folder: Path, world: World, per_set: int) -> None:
    """EntityQuestions, MMLU, Natural Questions and TriviaQA in their layouts, about facts of the world."""
    rng = draws.generator(world.seed, "world/questions")
    facts = text.some_facts(world, rng, 8 * per_set)
    namesakes = Counter(world.labels)
    alone = [fact for fact in facts if namesakes[world.labels[fact[0]]] == 1][: per_set * 4 // 5]
    asked: dict[str, list] = {}
    for entity, pid, item in alone + facts[: per_set - len(alone)]:  # most subjects can be told from their name
        question = text.question(pid, 3, world.labels[entity])
        asked.setdefault(pid, []).append({"question": question, "answers": [world.item_label(item)]})
    for pid, rows in sorted(asked.items()):
        _write(folder / f"entityquestions/{pid}.test.json", json.dumps(rows, indent=4))
    templates = {pid: text.WORDINGS[pid].entityquestions.replace("{}", "[X]") for pid in RELATION_IDS}
    _write(folder / "entityquestions/relation_query_templates.json", json.dumps(templates, indent=4))

    for subject, relations in SUBJECTS.items():
        some = [fact for fact in facts if fact[1] in relations][: per_set // len(SUBJECTS) + 5]
        rows = [text.multiple_choice(world, rng, *fact) for fact in some]
        for split, part in (("dev", rows[:5]), ("test", rows[5:])):
            table = io.StringIO()
            csv.writer(table, lineterminator="\n").writerows(part)
            _write(folder / f"mmlu/{split}/{subject}_{split}.csv", table.getvalue())

    for number, name in enumerate(("nq", "triviaqa")):
        lines = []
        for i, (entity, pid, item) in enumerate(facts[(1 + number) * per_set : (2 + number) * per_set]):
            question = text.question(pid, number, world.labels[entity])
            question = question[0].lower() + question[1:-1] if name == "nq" else question  # as people type it
            answers = [world.item_label(item), *ALIASES.get(world.item_label(item), [])]
            lines.append(json.dumps({"id": f"test_{i}", "question": question, "golden_answers": answers}) + "\n")
        _write(folder / f"{name}/test.jsonl", "".join(lines))


def _blocks(world: World, purpose: str) -> Iterator[tuple[range, np.random.Generator]]:
    for start in range(0, len(world.labels), BLOCK):
        block = range(start, min(start + BLOCK, len(world.labels)))
        yield block, draws.generator(world.seed, f"world/{purpose}", str(start))


def _label(value: str, language: str = "en") -> dict:
    return {language: {"language": language, "value": value}}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw:
        yield raw


@contextmanager
def _gzip(path: Path) -> Iterator[BinaryIO]:
    with _open(path) as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as out:
        yield out


@contextmanager
def _bz2(path: Path) -> Iterator[BinaryIO]:
    with _open(path) as raw, bz2.BZ2File(raw, "wb") as out:
        yield out


_XML_HEAD = b"""<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>enwiki</dbname>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <generator>MediaWiki 1.38</generator>
    <case>first-letter</case>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Talk</namespace>
    </namespaces>
  </siteinfo>
"""
