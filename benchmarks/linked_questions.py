"""Questions of Natural Questions that ask about PopQA's entities, for a run that links them.

`write_sources` writes PopQA's entities as a Wikidata dump, their page views as Wikimedia has them,
and the questions whose entity has a passage.
"""

import csv
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.foreign.link_questions import DICTIONARY
from pipelines.knowledge import redirects
from pipelines.language.relations import BY_NAME
from pipelines.questions import linking
from pipelines.storage import database

POPQA = "popqa/popQA.tsv"
PASSAGES = "passages/psgs_w100.tsv.gz"
QUESTIONS = "qa/NQ-open.dev.jsonl"
FILES = (POPQA, PASSAGES, QUESTIONS)
# Of so many questions, the first one is for demonstrations and never asked.
QUESTIONS_PER_DEMONSTRATION = 5


def write_sources(files: Path, folder: Path) -> None:
    """Write entities.json, pageviews.txt, questions.jsonl and demonstrations.jsonl to `folder`."""
    entities = _entities(files / POPQA)
    items = [_item(entity) for entity in entities]
    _write_lines(folder / "entities.json", ["[", *_with_commas(items), "]"])
    views = []
    for entity in entities:
        title = entity["wiki_title"].replace(" ", "_")
        views.append(f"en.wikipedia {title} null desktop {entity['popularity']}")
    _write_lines(folder / "pageviews.txt", views)

    lines = (files / QUESTIONS).read_text(encoding="utf-8").splitlines()
    titles = _linked_titles(lines, entities, _texts(files / PASSAGES, "text"))
    covered = set(_texts(files / PASSAGES, "title"))
    asked = []
    for number, line in enumerate(lines):
        if number % QUESTIONS_PER_DEMONSTRATION and titles.get(str(number)) in covered:
            asked.append(line)
    _write_lines(folder / "questions.jsonl", asked)
    _write_lines(folder / "demonstrations.jsonl", lines[::QUESTIONS_PER_DEMONSTRATION])


def _entities(popqa: Path) -> list[dict[str, Any]]:
    """PopQA's subjects and objects with an article and page views, each once, with the claims that
    PopQA's questions are about: relation -> ids of the objects.
    """
    entities: dict[str, dict[str, Any]] = {}
    claims: dict[str, dict[str, list[str]]] = {}
    with popqa.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            for role, name in (("s", "subj"), ("o", "obj")):
                entity = {
                    "qid": _qid(row[f"{role}_uri"]),
                    "label": row[name],
                    "aliases": json.loads(row[f"{role}_aliases"]),
                    "wiki_title": row[f"{role}_wiki_title"],
                    "popularity": int(row[f"{role}_pop"] or 0),
                }
                if entity["wiki_title"] and entity["popularity"]:
                    entities[entity["qid"]] = entity

            of_subject = claims.setdefault(_qid(row["s_uri"]), {})
            of_subject.setdefault(BY_NAME[row["prop"]], []).append(_qid(row["o_uri"]))

    for qid, entity in entities.items():
        entity["claims"] = claims.get(qid, {})
    return list(entities.values())


def _qid(address: str) -> str:
    """The id in an item's address."""
    return address.rpartition("/")[2]


def _item(entity: Mapping[str, Any]) -> str:
    """An entity as Wikidata's dump has it."""
    aliases = [{"language": "en", "value": alias} for alias in entity["aliases"]]
    statements = {}
    for relation, objects in entity["claims"].items():
        statements[relation] = [_statement(relation, qid) for qid in objects]
    item = {
        "type": "item",
        "id": entity["qid"],
        "labels": {"en": {"language": "en", "value": entity["label"]}},
        "aliases": {"en": aliases},
        "descriptions": {},
        "claims": statements,
        "sitelinks": {"enwiki": {"site": "enwiki", "title": entity["wiki_title"]}},
    }
    return json.dumps(item)


def _statement(relation: str, qid: str) -> dict[str, Any]:
    """A claim as Wikidata's dump has it."""
    snak = {
        "snaktype": "value",
        "property": relation,
        "datatype": "wikibase-item",
        "datavalue": {"value": {"entity-type": "item", "id": qid}, "type": "wikibase-entityid"},
    }
    return {"mainsnak": snak, "type": "statement", "rank": "normal"}


def _with_commas(items: list[str]) -> list[str]:
    return [f"{item}," for item in items[:-1]] + items[-1:]


def _linked_titles(
    lines: list[str], entities: list[dict[str, Any]], running_text: Iterable[str]
) -> dict[str, str]:
    """Number of a question -> the title of the entity that it asks about, as a run links it."""
    texts = [json.loads(line)["question"] for line in lines]
    ids = [str(number) for number in range(len(lines))]
    with database.connect(1.0, 1) as db:
        db.register("entities", pa.Table.from_pylist(entities, schema=DICTIONARY))
        redirects.load(db, [])
        linking.link(db, pa.table({"question_id": ids, "text": texts}), running_text)
        subjects = database.read_rows(db, linking.SUBJECTS)
    return dict(
        zip(subjects["question_id"].to_pylist(), subjects["wiki_title"].to_pylist(), strict=True)
    )


def _texts(passages: Path, column: str) -> list[str]:
    with gzip.open(passages, "rt", encoding="utf-8", newline="") as file:
        return [row[column] for row in csv.DictReader(file, delimiter="\t")]


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
