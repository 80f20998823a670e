"""Questions in German and in Japanese from real entities, held against a plain reading of the same files by json."""

import bz2
import json
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import language, params
from pipelines.knowledge.entities import build_entities
from pipelines.knowledge.triples import build_triples
from pipelines.questions.popqa import build_popqa

DUMPS = ("wikibase-dump-filter_entities.json", "wikibrain_testDump.json.bz2")  # of equal revisions the first counts
CODES = ("de", "ja", "zh")


def settings(code: str) -> SimpleNamespace:
    popqa = {"source": "wikidata", "sampling": "all", "per_relation": 2000, "mix": "drawn", "total": None}
    return SimpleNamespace(
        seed=0,
        language=code,
        contact=None,
        entities=params.Entities(missing_objects=False, excerpts=True),
        wikidata=None,
        popqa=params.PopQA(**popqa, refresh=False, train_share=0.0),
        popularity=SimpleNamespace(month="2026-10"),
        ingest=params.Ingest(max_reject_share=0.05, memory_gb=1.0, record_mb=64.0, rejects_kept=1000),
        compute=params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu"),
    )


@pytest.fixture(scope="module")
def built(real, tmp_path_factory) -> dict[str, tuple[list[dict], dict]]:
    """Language -> its questions, and the counts of its triples."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "raw/wikidata").mkdir(parents=True)
    for name in DUMPS:
        shutil.copy(real / "wikidata" / name, folder / "raw/wikidata" / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return {code: build(Path(code), code) for code in CODES}


def build(folder: Path, code: str) -> tuple[list[dict], dict]:
    chosen = settings(code)
    build_entities(chosen, Path("raw"), folder / "wikidata")
    for name, columns in (
        ("popularity/views", {"title": pa.string(), "views": pa.int64()}),
        ("term_frequency/term_frequency", {"qid": pa.int64(), "term_frequency": pa.int64()}),
    ):
        (folder / name).parent.mkdir()
        pq.write_table(pa.schema(columns.items()).empty_table(), folder / f"{name}.parquet")
    counts = build_triples(chosen, folder)
    build_popqa(chosen, folder / "popqa", folder / "triples/triples.parquet")
    return pq.read_table(folder / "popqa/popqa.parquet").to_pylist(), counts


def entities(real: Path) -> dict[str, dict]:
    """All items of the files by id, the newest revision of each."""
    found: dict[str, dict] = {}
    for name in DUMPS:
        path = real / "wikidata" / name
        with bz2.open(path, "rt") if path.suffix == ".bz2" else path.open(encoding="utf-8") as file:
            for line in file:
                if (text := line.strip().rstrip(",")) not in ("", "[", "]"):
                    entity = json.loads(text)
                    if entity["id"].startswith("Q"):
                        before = found.get(entity["id"], entity)
                        found[entity["id"]] = max(before, entity, key=lambda one: one.get("lastrevid", 0))
    return found


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
                    in_source = qid in everything and names[1] is None
                    why = "object_without_label" if in_source else "object_not_in_source"
                    dropped["subject_without_label" if names[0] is None else why] += 1
    rows, counts = built[code]
    assert {row["question_id"]: (row["question"], row["obj"]) for row in rows} == expected
    assert len(rows) == len(expected) > 80
    unnamed = counts["dropped.object_not_in_source"] + counts.get("dropped.object_without_label", 0)
    assert unnamed == dropped["object_not_in_source"] + dropped["object_without_label"], "counted, and not in English"
    assert counts.get("dropped.subject_without_label", 0) == dropped["subject_without_label"]


def test_a_fact_has_the_same_id_in_every_language(built):
    by_code = {code: {row["question_id"]: row for row in rows} for code, (rows, _) in built.items()}
    shared = set.intersection(*map(set, by_code.values()))
    assert len(shared) > 50
    for question_id in shared:
        rows = [by_code[code][question_id] for code in CODES]
        assert len({row["id"] for row in rows}) == len({row["s_uri"] for row in rows}) == 1
        assert len({row["question"] for row in rows}) == len(CODES)


def test_labels_in_their_own_script_are_asked_about(built):
    texts = [row["subj"] for row in built["ja"][0]]
    assert sum(not text.isascii() for text in texts) > 0.9 * len(texts)
    assert any("Deutschland" in row["possible_answers"] for row in built["de"][0])
