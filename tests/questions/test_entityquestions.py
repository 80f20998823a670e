"""EntityQuestions: subjects found again through the template, linked to exactly one entity of the
right type.
"""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from knowledge_tables import CLAIMS, ENTITIES, chosen, popqa, write_rows

from pipelines.errors import LongtailError
from pipelines.questions.entityquestions import LINKS, build_entityquestions
from pipelines.questions.subject_splits import split_of

pytestmark = pytest.mark.usefixtures("workplace")
RAW = Path("raw")
TEMPLATES = {"P19": "Where was [X] born?", "P40": "Who is [X]'s child?"}
NAMED = [
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
CLAIMED = [
    (1, 19, 8),
    (1, 19, 9),
    (2, 19, 8),
    (3, 19, 8),
    (5, 19, 8),
    (6, 40, 1),
    (7, 19, 9),
    (10, 19, 8),
]


def question(text: str, *answers: str) -> dict:
    return {"question": text, "answers": list(answers) or ["London"]}


def born(*names: str) -> list[dict]:
    return [question(f"Where was {name} born?") for name in names]


def write_raw(templates: dict | None = TEMPLATES, **files: list) -> None:
    RAW.mkdir(exist_ok=True)
    for file in RAW.iterdir():
        file.unlink()
    for relation, entries in files.items():
        (RAW / f"{relation}.test.json").write_text(json.dumps(entries), encoding="utf-8")
    if templates is not None:
        (RAW / "relation_query_templates.json").write_text(json.dumps(templates), encoding="utf-8")


def build(max_share: float = 0.0, train_share: float = 0.5, entities=NAMED, claims=CLAIMED):
    settings = chosen(popqa=popqa(train_share=train_share), max_share=max_share)
    tables = (
        write_rows(entities, ENTITIES, Path("entities.parquet")),
        write_rows(claims, CLAIMS, Path("c.parquet")),
    )
    counts = build_entityquestions(settings, Path("out"), RAW, *tables)
    return pq.read_table("out/entityquestions.parquet").to_pylist(), counts


def links(*entries: dict, **more) -> list[tuple]:
    """How each question is linked, and to which entity."""
    of_birth = [entry for entry in entries if entry["question"].endswith("born?")]
    write_raw(P19=of_birth, P40=[entry for entry in entries if entry not in of_birth])
    return [
        (row["link"], row["s_uri"] and row["s_uri"].rpartition("/")[2], row["s_pop"])
        for row in build(**more)[0]
    ]


def test_a_name_that_one_entity_bears_is_linked():
    """The entity has the relation; else the reason is said."""
    assert links(*born("Ada", "Countess"), question("Who is Dory's child?")) == [
        ("label", "Q1", 70),  # Carl's alias has no article
        ("alias", "Q1", 70),
        ("label", "Q6", 9),
    ]
    assert links(*born("Dory", "Robert", "Flo", "Dora's child")) == [
        ("alias", "Q5", 0),  # Q6 has that label, but another relation
        ("alias", "Q3", 6),
        ("alias", "Q7", 8),
        ("label", "Q5", 0),  # an alias that repeats the label is no second candidate
    ]
    # A label beats an alias even where both have the relation.
    of_both = [*CLAIMED, (6, 19, 8)]
    assert links(*born("Dory", "Flo"), claims=of_both) == [
        ("label", "Q6", 9),
        ("ambiguous", None, None),
    ]
    assert links(*born("Bob", "Carl", "Zoe", "ada"), question("Who is Ada's child?")) == [
        ("ambiguous", None, None),
        ("without_article", None, None),
        ("not_found", None, None),
        ("not_found", None, None),  # names are compared as written
        ("another_type", None, None),
    ]
    # the question's answers do not choose its subject
    asked = question("Where was Bob born?", "Ada")
    assert links(asked, claims=[*CLAIMED, (2, 19, 1)]) == [("ambiguous", None, None)]


def test_unknown_popularity_is_not_a_namesakes():
    entities = [
        ("Q1", "Twitter", [], "X (social network)", None),
        ("Q2", "Tweeter", ["Twitter"], "Tweeter", 5),
    ]
    write_raw(P19=born("Twitter", "Tweeter"))
    rows, counts = build(entities=entities, claims=[(1, 19, 1), (2, 19, 1)])
    assert [(row["s_uri"][-2:], row["s_pop"]) for row in rows] == [("Q1", None), ("Q2", 5)]
    assert (counts["matched"], counts["unknown_popularity"]) == (2, 1)


def test_links_are_counted_over_all_and_by_relation():
    entries = [*born("Ada", "Bob", "Countess"), question("Where was Flo born?", "Paris")]
    entries += [
        question("Where was Dora's child born?", "Londinium"),
        question("Where was Robert born?", "Paris"),
    ]
    write_raw(P19=entries, P40=[question("Who is Ada's child?")])
    _, counts = build()
    assert [counts[f"link.{link}"] for link in LINKS] == [2, 3, 1, 1, 0, 0]
    assert (counts["questions"], counts["matched"], counts["matched_share"]) == (7, 5, 5 / 7)
    assert (counts["P19.matched_share"], counts["P40.matched_share"]) == (5 / 6, 0)


@pytest.mark.parametrize("share", [0.0, 1.0, 0.5])
def test_the_split_is_popqas(share):
    """Questions that are not linked are for testing."""
    write_raw(P19=born("Ada", "Zoe"))
    [expected] = split_of(0, ["http://www.wikidata.org/entity/Q1"], share)
    assert [row["split"] for row in build(train_share=share)[0]] == [expected, "test"]


def test_bad_entries_are_rejected_by_reason():
    entries = [
        "text",
        question("Ada was born where?"),
        {"question": "Where was Ada born?", "answers": []},
    ]
    write_raw(
        P19=[*entries, question("Where was  born?"), question("Where was born?"), *born("Ada")]
    )
    rows, counts = build(max_share=1.0)
    assert [row["question_id"] for row in rows] == ["P19-6"]
    assert (
        counts["rejected.bad_entry"],
        counts["rejected.no_answer"],
        counts["rejected.off_template"],
    ) == (1, 1, 3)
    with pytest.raises(LongtailError, match=r"P19\.test\.json: 5 of 6 rows rejected"):
        build()


def test_no_files_give_an_empty_table():
    """Missing templates and damaged files are errors."""
    write_raw(templates=None)
    rows, counts = build()
    assert (rows, counts["questions"], counts["matched_share"]) == ([], 0, 0)
    write_raw(templates=None, P19=[])
    with pytest.raises(LongtailError, match=r"relation_query_templates\.json"):
        build()
    write_raw(P20=[])
    with pytest.raises(LongtailError, match=r"relation_query_templates\.json: .*P20"):
        build()
    write_raw(P19=born("Ada"))
    for text in ((RAW / "P19.test.json").read_text()[:-9], "{}"):
        (RAW / "P19.test.json").write_text(text)
        with pytest.raises(LongtailError, match=r"P19\.test\.json"):
            build()


@pytest.mark.parametrize(
    "name", ["P19.json", "P19.dev.json", "test/P19.test.json", "P19.test.jsonl", "readme.txt"]
)
def test_a_file_by_another_name_or_in_a_folder_is_named(name):
    write_raw(P20=[])
    (RAW / name).parent.mkdir(exist_ok=True)
    (RAW / name).write_text("[]")
    with pytest.raises(
        LongtailError,
        match=rf"{re.escape(name)}: expected P<number>\.test\.json or .*; leave it out",
    ):
        build()


def test_all_real_questions_give_up_their_subject(real):
    RAW.mkdir()
    for file in [
        *(real / "entityquestions/test").iterdir(),
        real / "entityquestions/relation_query_templates.json",
    ]:
        (RAW / file.name).symlink_to(file)
    rows, counts = build(
        entities=[*NAMED, ("Q912", "Mali", [], "Mali", 4)], claims=[*CLAIMED, (912, 36, 3703)]
    )
    assert len({row["question_id"] for row in rows}) == counts["questions"] == 22_075
    assert (len({row["relation"] for row in rows}), counts["rejected"]) == (24, 0)
    [row] = [row for row in rows if row["question_id"] == "P17-2"]
    assert (row["subj"], row["possible_answers"]) == ("Hull", ["United States of America"])
    linked = {row["question"]: row["s_uri"].rsplit("/", 1)[1] for row in rows if row["matched"]}
    assert linked["What is the capital of Mali?"] == "Q912"
