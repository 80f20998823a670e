"""EntityQuestions: subjects found again through the template, matched to exactly one entity by label."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.popqa.entityquestions import build_entityquestions, read_questions
from pipelines.popqa.split import split_of
from pipelines.sources.rejects import Rejects

TEMPLATES = {"P19": "Where was [X] born?", "P40": "Who is [X]'s child?"}
SCHEMA = pa.schema(
    {
        "qid": pa.string(),
        "label": pa.string(),
        "aliases": pa.list_(pa.string()),
        "wiki_title": pa.string(),
        "popularity": pa.int64(),
    }
)
ENTITIES = [
    ("Q1", "Ada", ["Countess"], "Ada", 70),
    ("Q2", "Bob", [], "Bob (king)", 5),
    ("Q3", "Bob", [], None, 0),
    ("Q4", "Carl", ["Ada"], None, 0),
    ("Q5", "Dora's child", [], "Dora", 0),
]


def question(text: str, *answers: str) -> dict:
    return {"question": text, "answers": list(answers) or ["London"]}


def raw(folder: Path, templates: dict | None = TEMPLATES, **files: list) -> Path:
    folder.mkdir()
    for relation, entries in files.items():
        (folder / f"{relation}.test.json").write_text(json.dumps(entries), encoding="utf-8")
    if templates is not None:
        (folder / "relation_query_templates.json").write_text(json.dumps(templates), encoding="utf-8")
    return folder


def build(tmp_path: Path, folder: Path, max_reject_share: float = 0.0, train_share: float = 0.5):
    rows = [dict(zip(SCHEMA.names, entity, strict=True)) for entity in ENTITIES]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "entities.parquet")
    counts = build_entityquestions(
        folder,
        tmp_path / "entities.parquet",
        tmp_path / "out",
        seed=0,
        train_share=train_share,
        ingest=params.Ingest(max_reject_share=max_reject_share, memory_gb=1.0),
        threads=1,
    )
    return pq.read_table(tmp_path / "out/entityquestions.parquet").to_pylist(), counts


@pytest.fixture(autouse=True)
def _workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_mention_that_is_one_entitys_label_is_matched(tmp_path):
    entries = [question(f"Where was {name} born?") for name in ("Ada", "Bob", "Carl", "Countess", "Zoe")]
    rows, counts = build(tmp_path, raw(tmp_path / "raw", P19=entries))
    assert [(row["subj"], row["matched"], row["s_pop"], row["s_uri"]) for row in rows] == [
        ("Ada", True, 70, "http://www.wikidata.org/entity/Q1"),
        ("Bob", False, None, None),  # two entities
        ("Carl", False, None, None),  # no article, no popularity
        ("Countess", False, None, None),  # an alias only
        ("Zoe", False, None, None),
    ]
    assert (counts["matched"], counts["matched_share"]) == (1, 0.2)
    assert [counts[f"subject.{r}"] for r in ("ambiguous", "matched", "not_found", "without_article")] == [1, 1, 2, 1]


def test_the_mention_is_what_stands_in_the_templates_place(tmp_path):
    entries = [question("Who is Dora's child's child?", "Eve", "Eva"), question("Who is Ada's child?", "Bob")]
    rows, _ = build(tmp_path, raw(tmp_path / "raw", P40=entries, P19=[question("Where was Ada born?")]))
    assert [(row["question_id"], row["relation"], row["subj"], row["possible_answers"]) for row in rows] == [
        ("P19-1", "P19", "Ada", ["London"]),
        ("P40-1", "P40", "Dora's child", ["Eve", "Eva"]),
        ("P40-2", "P40", "Ada", ["Bob"]),
    ]


@pytest.mark.parametrize("share", [0.0, 1.0, 0.5])
def test_the_split_is_popqas_and_unmatched_questions_are_for_testing(tmp_path, share):
    entries = [question("Where was Ada born?"), question("Where was Zoe born?")]
    rows, _ = build(tmp_path, raw(tmp_path / "raw", P19=entries), train_share=share)
    [expected] = split_of(0, ["http://www.wikidata.org/entity/Q1"], share)
    assert [row["split"] for row in rows] == [expected, "test"]


def test_bad_entries_are_rejected_by_reason(tmp_path):
    entries = ["text", question("Ada was born where?"), {"question": "Where was Ada born?", "answers": []}]
    entries += [question("Where was  born?"), question("Where was born?"), question("Where was Ada born?")]
    folder = raw(tmp_path / "raw", P19=entries)
    rows, counts = build(tmp_path, folder, max_reject_share=1.0)
    assert [row["question_id"] for row in rows] == ["P19-6"]
    assert (counts["rejected.bad_entry"], counts["rejected.no_answer"], counts["rejected.off_template"]) == (1, 1, 3)
    with pytest.raises(LongtailError, match=r"P19\.test\.json: 5 of 6 rows rejected"):
        build(tmp_path, folder)


def test_no_files_give_an_empty_table(tmp_path):
    rows, counts = build(tmp_path, raw(tmp_path / "raw", templates=None))
    assert (rows, counts["questions"], counts["matched_share"]) == ([], 0, 0)
    assert "split" in pq.read_table(tmp_path / "out/entityquestions.parquet").column_names


def test_missing_templates_and_damaged_files_are_errors(tmp_path):
    with pytest.raises(LongtailError, match=r"relation_query_templates\.json"):
        build(tmp_path, raw(tmp_path / "a", templates=None, P19=[]))
    with pytest.raises(LongtailError, match=r"relation_query_templates\.json: .*P20"):
        build(tmp_path, raw(tmp_path / "b", P20=[]))
    folder = raw(tmp_path / "c", P19=[question("Where was Ada born?")])
    whole = (folder / "P19.test.json").read_text()
    for text in (whole[:-9], "<html>503</html>", "", "{}"):
        (folder / "P19.test.json").write_text(text)
        with pytest.raises(LongtailError, match=r"P19\.test\.json"):
            build(tmp_path, folder)


def test_all_real_questions_give_up_their_subject(real, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    for file in [*(real / "entityquestions/test").iterdir(), real / "entityquestions/relation_query_templates.json"]:
        (folder / file.name).symlink_to(file)
    rejects = Rejects(0.0)
    table = read_questions(folder, rejects)
    assert (len(table), len(set(table["relation"].to_pylist())), rejects.rows) == (22_075, 24, [])
    assert len(set(table["question_id"].to_pylist())) == 22_075
    row = table.filter(pa.array([i == "P17-2" for i in table["question_id"].to_pylist()])).to_pylist()[0]
    assert (row["subj"], row["possible_answers"]) == ("Hull", ["United States of America"])
