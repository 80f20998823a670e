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
CODES = ("de", "ja")
NO_NUMBERS = {"popularity/views": ("title", pa.string()), "term_frequency/term_frequency": ("qid", pa.int64())}


@pytest.fixture(scope="module")
def built(real, tmp_path_factory) -> dict[str, tuple[list[dict], dict]]:
    """Language -> its questions, and the counts of its triples."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "raw/wikidata").mkdir(parents=True)
    for name in DUMPS:
        (folder / "raw/wikidata" / name).symlink_to(real / "wikidata" / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return {code: build(Path(code), code) for code in CODES}


def build(folder: Path, code: str) -> tuple[list[dict], dict]:
    of_dumps = {"entities": params.Entities(missing_objects=False, excerpts=True), "wikidata": None}
    settings = chosen(language=code, popqa=popqa(), popularity=SimpleNamespace(month="2026-10"), **of_dumps)
    build_entities(settings, Path("raw"), folder / "wikidata")
    for name, key in NO_NUMBERS.items():
        write_rows([], pa.schema([key, (name.rpartition("/")[2], pa.int64())]), folder / f"{name}.parquet")
    counts = build_triples(settings, folder)
    build_popqa(settings, folder / "popqa", folder / "triples/triples.parquet")
    return pq.read_table(folder / "popqa/popqa.parquet").to_pylist(), counts


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


@pytest.mark.parametrize("code", CODES)
def test_the_questions_are_those_that_a_plain_reading_finds(real, built, code):
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
    rows, counts = built[code]
    assert {row["question_id"]: (row["question"], row["obj"]) for row in rows} == expected
    assert len(rows) == len(expected) > 80
    unnamed = counts["dropped.object_not_in_source"] + counts.get("dropped.object_without_label", 0)
    assert unnamed == dropped["object"], "counted, and not in English"
    assert counts.get("dropped.subject_without_label", 0) == dropped["subject"]


def test_a_fact_has_the_same_id_in_every_language_and_labels_their_own_script(built):
    german, japanese = ({row["question_id"]: row for row in built[code][0]} for code in CODES)
    shared = german.keys() & japanese.keys()
    assert len(shared) > 50
    for question_id in shared:
        one, other = german[question_id], japanese[question_id]
        assert (one["id"], one["s_uri"]) == (other["id"], other["s_uri"])
        assert one["question"] != other["question"]
    assert sum(not row["subj"].isascii() for row in japanese.values()) > 0.9 * len(japanese)
    assert any("Deutschland" in row["possible_answers"] for row in german.values())
