"""Questions in German and in Japanese from real entities, held against a plain reading of the same files by json."""

import bz2
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from knowledge_tables import chosen, popqa, write_rows

from pipelines import language, params
from pipelines.knowledge.entities import build_entities
from pipelines.knowledge.triples import build_triples
from pipelines.questions.popqa import build_popqa

DUMPS = ("wikibase-dump-filter_entities.json", "wikibrain_testDump.json.bz2")  # of equal revisions the first counts
NO_NUMBERS = {"popularity/views": ("title", pa.string()), "term_frequency/term_frequency": ("qid", pa.int64())}


def build(real: Path, code: str) -> tuple[list[dict], dict]:
    """The questions in a language, and the counts of its triples."""
    (raw := Path("raw/wikidata")).mkdir(parents=True)
    for name in DUMPS:
        (raw / name).symlink_to(real / "wikidata" / name)
    of_dumps = {"entities": params.Entities(missing_objects=False, excerpts=True), "wikidata": None}
    settings = chosen(language=code, popqa=popqa(), popularity=SimpleNamespace(month="2026-10"), **of_dumps)
    build_entities(settings, Path("raw"), Path("wikidata"))
    for name, key in NO_NUMBERS.items():
        write_rows([], pa.schema([key, (name.rpartition("/")[2], pa.int64())]), Path(f"{name}.parquet"))
    counts = build_triples(settings, Path("."))
    build_popqa(settings, Path("popqa"), Path("triples/triples.parquet"))
    return pq.read_table("popqa/popqa.parquet").to_pylist(), counts


def entities(real: Path) -> dict[str, dict]:
    """All items of the files by id, the newest revision of each."""
    found: dict[str, dict] = {}
    for name in DUMPS:
        path = real / "wikidata" / name
        with bz2.open(path, "rt") if path.suffix == ".bz2" else path.open(encoding="utf-8") as file:
            lines = [line.strip().rstrip(",") for line in file]
        for entity in [json.loads(line) for line in lines if line not in ("", "[", "]")]:
            before = found.get(entity["id"], entity)
            found[entity["id"]] = max(before, entity, key=lambda one: one.get("lastrevid", 0))
    return {qid: entity for qid, entity in found.items() if qid.startswith("Q")}


def objects(entity: dict, pid: str) -> set[str]:
    """The items of the best-ranked statements."""
    claims = entity["claims"] if isinstance(entity["claims"], dict) else {}
    statements = claims.get(pid, [])
    best = "preferred" if any(one["rank"] == "preferred" for one in statements) else "normal"
    snaks = [one["mainsnak"] for one in statements if one["rank"] == best]
    values = [snak["datavalue"]["value"] for snak in snaks if snak["snaktype"] == "value"]
    return {f"Q{value['numeric-id']}" for value in values if isinstance(value, dict) and "numeric-id" in value}


def label(entity: dict | None, codes: tuple[str, ...]) -> str | None:
    labels = entity["labels"] if entity and isinstance(entity["labels"], dict) else {}
    return next((labels[code]["value"] for code in codes if code in labels), None)


@pytest.mark.parametrize("code", ["de", "ja"])
def test_the_questions_are_those_that_a_plain_reading_finds(real, workplace, code):
    spoken, everything = language.read(code), entities(real)
    expected, dropped = {}, Counter()
    for subject in everything.values():
        if not isinstance(subject["sitelinks"], dict) or spoken.site not in subject["sitelinks"]:
            continue
        for pid in spoken.templates:
            for qid in objects(subject, pid):
                names = label(subject, spoken.codes), label(everything.get(qid), spoken.codes)
                if all(names):
                    question = spoken.templates[pid].replace("{}", names[0])
                    expected[f"{subject['id']}-{pid}-{qid}"] = question, names[1]
                else:
                    dropped["subject" if names[0] is None else "object"] += 1
    rows, counts = build(real, code)
    assert {row["question_id"]: (row["question"], row["obj"]) for row in rows} == expected
    assert len(rows) == len(expected) > 80
    unnamed = counts["dropped.object_not_in_source"] + counts.get("dropped.object_without_label", 0)
    assert unnamed == dropped["object"], "counted, and not in English"
    assert counts.get("dropped.subject_without_label", 0) == dropped["subject"]
    assert sum(not row["subj"].isascii() for row in rows) > (0.9 if code == "ja" else 0) * len(rows)
