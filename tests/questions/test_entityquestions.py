"""EntityQuestions: subjects found again through the template, linked to exactly one entity of the right type."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from knowledge_tables import write_entities

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.questions.entityquestions import LINKS, build_entityquestions, read_questions
from pipelines.questions.popqa import split_of
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_text

pytestmark = pytest.mark.usefixtures("workplace")

TEMPLATES = {"P19": "Where was [X] born?", "P40": "Who is [X]'s child?"}
ENTITIES = [
    ("Q1", "Ada", ["Countess"], "Ada", 70),
    ("Q2", "Bob", [], "Bob (king)", 5),
    ("Q3", "Bob", ["Robert", "Bobby"], "Bob (cook)", 6),
    ("Q4", "Carl", ["Ada"], None, None),
    ("Q5", "Dora's child", ["Dory", "Dora's child"], "Dora", 0),
    ("Q6", "Dory", ["Robert", "Flo"], "Dory (singer)", 9),
    ("Q7", "Eve", ["Flo"], "Eve", 8),
    ("Q8", "London", ["Londinium"], None, None),
    ("Q10", "Robin", ["Bob"], "Robin", 3),
]
CLAIMS = [(1, 19, 8), (1, 19, 9), (2, 19, 8), (3, 19, 8), (5, 19, 8), (6, 40, 1), (7, 19, 9), (10, 19, 8)]


def question(text: str, *answers: str) -> dict:
    return {"question": text, "answers": list(answers) or ["London"]}


def raw(folder: Path, templates: dict | None = TEMPLATES, **files: list) -> Path:
    folder.mkdir()
    for relation, entries in files.items():
        (folder / f"{relation}.test.json").write_text(json.dumps(entries), encoding="utf-8")
    if templates is not None:
        (folder / "relation_query_templates.json").write_text(json.dumps(templates), encoding="utf-8")
    return folder


def write_wikidata(folder: Path, entities: list[tuple], claims: list[tuple]) -> tuple[Path, Path]:
    """The tables entities.parquet and claims.parquet in `folder`."""
    write_entities(entities, folder / "entities.parquet")
    columns = dict(zip("spo", zip(*claims, strict=True), strict=True))
    pq.write_table(
        pa.table({name: pa.array(own, pa.int64()) for name, own in columns.items()}), folder / "claims.parquet"
    )
    return folder / "entities.parquet", folder / "claims.parquet"


def build(
    tmp_path: Path,
    folder: Path,
    max_reject_share: float = 0.0,
    train_share: float = 0.5,
    entities=ENTITIES,
    claims=CLAIMS,
):
    settings = SimpleNamespace(
        seed=0,
        popqa=SimpleNamespace(train_share=train_share),
        ingest=params.Ingest(max_reject_share=max_reject_share, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000),
        compute=SimpleNamespace(threads=1),
    )
    tables = write_wikidata(tmp_path, entities, claims)
    counts = build_entityquestions(settings, tmp_path / "out", folder, *tables)
    return pq.read_table(tmp_path / "out/entityquestions.parquet").to_pylist(), counts


def born(*names: str) -> list[dict]:
    return [question(f"Where was {name} born?") for name in names]


def test_a_name_that_one_entity_with_the_relation_bears_is_linked(tmp_path):
    rows, _ = build(
        tmp_path, raw(tmp_path / "raw", P19=born("Ada", "Countess"), P40=[question("Who is Dory's child?")])
    )
    assert [(row["subj"], row["link"], row["matched"], row["s_pop"], row["s_uri"]) for row in rows] == [
        ("Ada", "label", True, 70, "http://www.wikidata.org/entity/Q1"),  # Carl's alias has no article
        ("Countess", "alias", True, 70, "http://www.wikidata.org/entity/Q1"),
        ("Dory", "label", True, 9, "http://www.wikidata.org/entity/Q6"),
    ]


def test_a_subject_of_unknown_popularity_does_not_get_that_of_a_namesake(tmp_path):
    entities = [("Q1", "Twitter", [], "X (social network)", None), ("Q2", "Tweeter", ["Twitter"], "Tweeter", 5)]
    rows, counts = build(
        tmp_path,
        raw(tmp_path / "raw", P19=born("Twitter", "Tweeter")),
        entities=entities,
        claims=[(1, 19, 1), (2, 19, 1)],
    )
    assert [(row["link"], row["s_uri"][-2:], row["s_pop"]) for row in rows] == [
        ("label", "Q1", None),
        ("label", "Q2", 5),
    ]
    assert (counts["matched"], counts["unknown_popularity"]) == (2, 1)


def test_of_two_entities_of_a_name_the_one_with_the_relation_is_meant(tmp_path):
    rows, _ = build(tmp_path, raw(tmp_path / "raw", P19=born("Dory", "Robert", "Flo", "Dora's child")))
    assert [(row["link"], row["s_uri"][-2:]) for row in rows] == [
        ("alias", "Q5"),  # Q6 has that label, but another relation
        ("alias", "Q3"),
        ("alias", "Q7"),
        ("label", "Q5"),  # an alias that repeats the label is no second candidate
    ]


def test_why_a_name_is_not_linked_is_said(tmp_path):
    entries = born("Bob", "Carl", "Zoe", "ada")
    rows, _ = build(tmp_path, raw(tmp_path / "raw", P19=entries, P40=[question("Who is Ada's child?")]))
    assert [(row["link"], row["matched"], row["s_pop"], row["s_uri"]) for row in rows] == [
        ("ambiguous", False, None, None),
        ("without_article", False, None, None),
        ("not_found", False, None, None),
        ("not_found", False, None, None),  # names are compared as written
        ("another_type", False, None, None),
    ]


def test_the_questions_answers_do_not_choose_its_subject(tmp_path):
    claims = [*CLAIMS, (2, 19, 1)]
    rows, _ = build(tmp_path, raw(tmp_path / "raw", P19=[question("Where was Bob born?", "Ada")]), claims=claims)
    assert rows[0]["link"] == "ambiguous"


def test_a_label_beats_an_alias_even_where_both_have_the_relation(tmp_path):
    rows, _ = build(tmp_path, raw(tmp_path / "raw", P19=born("Dory", "Flo")), claims=[*CLAIMS, (6, 19, 8)])
    assert (rows[0]["link"], rows[0]["s_uri"][-2:]) == ("label", "Q6")
    assert rows[1]["link"] == "ambiguous"  # an alias of two


def test_links_are_counted_over_all_and_by_relation(tmp_path):
    entries = [*born("Ada", "Bob", "Countess"), question("Where was Flo born?", "Paris")]
    entries += [question("Where was Dora's child born?", "Londinium"), question("Where was Robert born?", "Paris")]
    folder = raw(tmp_path / "raw", P19=entries, P40=[question("Who is Ada's child?")])
    _, counts = build(tmp_path, folder)
    assert [counts[f"link.{link}"] for link in LINKS] == [2, 3, 1, 1, 0, 0]
    assert (counts["questions"], counts["matched"], counts["matched_share"]) == (7, 5, 5 / 7)
    assert (counts["P19.label"], counts["P19.matched_share"]) == (2, 5 / 6)
    assert (counts["P40.another_type"], counts["P40.matched_share"]) == (1, 0)
    # the object of Flo's statement has no known name, so nothing can be said of it; Robert's is not Paris
    assert (counts["label.answer_agrees"], counts["alias.answer_agrees"]) == (1.0, 0.5)


def test_the_mention_is_what_stands_in_the_templates_place(tmp_path):
    entries = [question("Who is Dora's child's child?", "Eve", "Eva"), question("Who is Ada's child?", "Bob")]
    rows, _ = build(tmp_path, raw(tmp_path / "raw", P40=entries, P19=[question("Where was Ada born?")]))
    assert [(row["question_id"], row["relation"], row["subj"], row["possible_answers"]) for row in rows] == [
        ("P19-1", "P19", "Ada", ["London"]),
        ("P40-1", "P40", "Dora's child", ["Eve", "Eva"]),
        ("P40-2", "P40", "Ada", ["Bob"]),
    ]


@pytest.mark.parametrize("share", [0.0, 1.0, 0.5])
def test_the_split_is_popqas_and_questions_not_linked_are_for_testing(tmp_path, share):
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


@pytest.mark.parametrize("name", ["P19.json", "P19.dev.json", "test/P19.test.json", "P19.test.jsonl", "readme.txt"])
def test_a_file_by_another_name_or_in_a_folder_is_named(tmp_path, name):
    folder = raw(tmp_path / "raw", P20=[])
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("[]")
    with pytest.raises(LongtailError, match=rf"{re.escape(name)}: expected P<number>\.test\.json or .*; leave it out"):
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


def plain_facts(dump: Path) -> tuple[list[tuple], set[tuple]]:
    """A small dump read with nothing but json: entities with an English label, and statements of those with an article.

    Preferred ranks don't matter here: they choose among a relation's statements, of which one is enough.
    """
    entities, claims = [], set()
    for line in open_text(dump):
        entity = json.loads(line.strip().rstrip(",")) if line.startswith("{") else {}
        if "en" not in (entity.get("labels") or {}) or entity.get("type") != "item":
            continue
        names = [dict(entity.get(kind) or {}).get("en") for kind in ("labels", "aliases")]
        title = dict(entity.get("sitelinks") or {}).get("enwiki", {}).get("title")
        entities.append((entity["id"], names[0]["value"], [alias["value"] for alias in names[1] or []], title, 0))
        for statement in (s for own in dict(entity["claims"] or {}).values() for s in own if title):
            value = statement["mainsnak"].get("datavalue", {})
            if value.get("type") == "wikibase-entityid" and statement["rank"] != "deprecated":
                pid = int(statement["mainsnak"]["property"][1:])
                claims.add((int(entity["id"][1:]), pid, value["value"]["numeric-id"]))
    return entities, claims


def test_real_questions_are_linked_to_real_entities(real, tmp_path):
    """Few of them: the excerpts hold some hundred entities of a hundred million."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for file in [*(real / "entityquestions/test").iterdir(), real / "entityquestions/relation_query_templates.json"]:
        (folder / file.name).symlink_to(file)
    first, second = (
        plain_facts(real / "wikidata" / name)
        for name in ("wikibrain_testDump.json.bz2", "wikibase-dump-filter_entities.json")
    )
    entities = list({entity[0]: entity for entity in [*first[0], *second[0]]}.values())
    rows, counts = build(tmp_path, folder, entities=entities, claims=sorted(first[1] | second[1]))
    assert [counts[f"link.{link}"] for link in LINKS] == [13, 1, 0, 16, 0, 22_045]
    linked = {row["question"]: row["s_uri"].rsplit("/", 1)[1] for row in rows if row["matched"]}
    assert linked["What is the capital of Mali?"] == "Q912"
    assert linked["Where was Friedrich Hayek born?"] == "Q1325"
    assert "Who performed U?" not in linked  # an alias of uranium
