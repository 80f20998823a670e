"""What a run leaves of what `longtail ask` reads: questions, entities, statements, thresholds and
an index.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import tiny_models
import yaml

from pipelines.adaptive import subjects
from pipelines.params import params_file
from pipelines.retrieval import bm25_build

ENTITIES = [  # qid, label, aliases, wiki_title, popularity
    ("Q1", "Black", ["The Black Film"], "Black (2005 film)", 100),
    ("Q2", "Black", [], "Black", 50_000),
    ("Q3", "BLACK", [], "Black (1999 film)", 900),
    ("Q4", "The Long Field", [], "The Long Field", 70),
    ("Q5", "Who's There?", [], "Who's There?", 69),
    ("Q6", "Norland", ["Land of Black"], "Norland", None),
    ("Q7", "Mira Tosh", ["Black"], "Mira Tosh", 800_000),
]
CLAIMS = [
    (1, 57, 7),
    (3, 57, 7),
    (4, 57, 7),
    (5, 57, 7),
    (6, 57, 7),
    (4, 50, 7),
    (6, 36, 7),
    (7, 57, 7),
]
QUESTIONS = [  # relation, subject, its number, popularity, question, answer
    ("P57", "The Long Field", 4, 71, "Who was the director of The Long Field?", "Mira Tosh"),
    ("P57", "Old Reel", 90, 12, "Who was the director of Old Reel?", "Mira Tosh"),
    ("P57", "Tosh\u2019s  Reel", 91, 12, "Who was the director of Tosh\u2019s  Reel?", "Mira Tosh"),
    ("P50", "The Long Field", 4, 71, "Who is the author of The Long Field?", "Mira Tosh"),
    ("P36", "Norland", 6, None, "What is the capital of Norland?", "Velm"),
    ("P19", "Mira Tosh", 7, 700_000, "In what city was Mira Tosh born?", "Velm"),
    ("P106", "Mira Tosh", 7, 700_000, "What is Mira Tosh's occupation?", "author"),
]
CUTS = {"P57": 71.0, "P36": None, "P106": 0.0}
# least and most popularity tuned on
OBSERVED = {"P57": [12.0, 900.0], "P36": [5.0, 60.0], "P106": [10.0, 700_000.0]}
TEMPLATES = {
    "P57": "Who directed [X]?",
    "P36": "What is the capital of [X]?",
    "P57_similar": "Who made [X]?",
}


def write_tables(data: Path) -> None:
    """Write into the folder `data` what `ask` reads to decide: questions, entities, statements and
    thresholds.
    """
    triples = data / "knowledge/triples/entities.parquet"
    claims = data / "knowledge/wikidata/claims.parquet"
    popqa, others = (
        data / f"questions/{name}/{name}.parquet" for name in ("popqa", "entityquestions")
    )
    thresholds = data / "adaptive/popularity/thresholds.json"
    templates = data / "raw/entityquestions"
    for folder in (
        triples.parent,
        claims.parent,
        popqa.parent,
        others.parent,
        thresholds.parent,
        templates,
    ):
        folder.mkdir(parents=True)
    names = ("qid", "label", "aliases", "wiki_title", "popularity")
    pq.write_table(pa.table(dict(zip(names, zip(*ENTITIES, strict=True), strict=True))), triples)
    pq.write_table(pa.table(dict(zip("spo", zip(*CLAIMS, strict=True), strict=True))), claims)
    pq.write_table(questions(), popqa)
    pq.write_table(questions().slice(0, 0), others)
    (templates / "relation_query_templates.json").write_text(json.dumps(TEMPLATES))
    pairs = ("bm25", "bm25_below_genread")
    in_use = rule(thresholds=CUTS, together=60.0, shared=["P106"])
    thresholds.write_text(json.dumps({"rules": {"popqa": {"tiny": dict.fromkeys(pairs, in_use)}}}))


def write_project(folder: Path, values: dict, documents: list[dict[str, str | None]]) -> None:
    """Make `folder` a project with these params, and BM25's index of the documents: their id, title
    and text.
    """
    (folder / "conf").mkdir()
    for name in ("dvc.yaml", "conf/config.yaml"):
        (folder / name).touch()
    (folder / "params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    docs = folder / "data/corpus/wikipedia/docs.parquet"
    docs.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(documents), docs)
    memory_gb = params_file.parse(values).ingest.memory_gb
    index = folder / "data/index/bm25/wikipedia"
    bm25_build.build(docs, index, memory_gb, tiny_models.compute(), "test")


def rule(**fields) -> dict:
    """An entry of thresholds.json."""
    known = {
        "schema": "longtail-rule",
        "version": 2,
        "above": "tiny/closed_book",
        "below": "tiny/bm25",
    }
    return (
        known | {"policy": "thresholds", "verdict": "", "shared": [], "observed": OBSERVED} | fields
    )


def questions() -> pa.Table:
    rows = [
        {
            "question_id": f"q{i}",
            "relation": relation,
            "subj": subject,
            "s_uri": f"{subjects.ENTITY}Q{number}",
        }
        | {
            "s_pop": popularity,
            "s_aliases": [],
            "s_wiki_title": subject,
            "question": question,
            "split": "test",
        }
        | {"possible_answers": [f"the {right}", right], "obj": right}
        for i, (relation, subject, number, popularity, question, right) in enumerate(QUESTIONS)
    ]
    columns = {
        "s_pop": pa.int64(),
        "s_aliases": pa.list_(pa.string()),
        "possible_answers": pa.list_(pa.string()),
    }
    return pa.table(
        {k: pa.array([r[k] for r in rows], columns.get(k, pa.string())) for k in rows[0]}
    )
