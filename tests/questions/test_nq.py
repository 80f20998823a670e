"""Natural Questions: entities found by names that count, the longest first; the least viewed one of a question."""

import csv
import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from knowledge_tables import write_entities

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.questions.nq import build_nq

pytestmark = pytest.mark.usefixtures("workplace")

ENTITIES = [
    ("Q1", "India", ["IN", "in", "Bharat"], "India", 1_000),
    ("Q2", "Lord's Prayer", [], "Lord's Prayer", 50),
    ("Q3", "New York City", ["New York"], "New York City", 900),
    ("Q4", "York City", ["York"], "York City F.C.", 10),
    ("Q5", "New York", [], "New York (state)", 300),
    ("Q6", "Was", [], "Was (novel)", 1),
    ("Q7", "Who", ["WHO"], "Who (film)", 2),
    ("Q8", "rock music", [], "Rock music", 400),
    ("Q9", "music", [], "Music", 70),
    ("Q10", "Beyoncé", ['"Them"', "N\N{LATIN SMALL LETTER O WITH CIRCUMFLEX}"], "Beyoncé", 600),
    ("Q11", "Atlantis Nine", [], None, None),
    ("Q12", "I", [], "I (film)", 5),
    ("Q13", "S.A.", [], "South Australia", 6),
    ("Q14", "Bharat", [], "Bharat (film)", 1_000),
]
TEXT = "It was in India and in them. Who was in New York, who? No, no music in India, no Was. New York City by Beyoncé."


def build(folder: Path, *questions: str, entities=ENTITIES, text: str | None = TEXT, **ingest: float):
    """The output's rows, with the question's number for its id, and the counts."""
    for name in ("raw/nq", "raw/c4"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines = [q if q.startswith("{") else json.dumps({"question": q, "answer": ["a"]}) for q in questions]
    if lines:
        (folder / "raw/nq/dev.jsonl").write_text("\n".join(lines), encoding="utf-8")
    if text is not None:
        (folder / "raw/c4/c4-train.0.json.gz").write_bytes(gzip.compress(json.dumps({"text": text}).encode()))
    write_entities(entities, folder / "entities.parquet")
    settings = SimpleNamespace(
        seed=0,
        c4=SimpleNamespace(sample_mb=1),
        ingest=params.Ingest(
            **{"max_reject_share": 0.0, "memory_gb": 1.0, "record_mb": 64.0, "rejects_kept": 100_000} | ingest
        ),
        compute=SimpleNamespace(threads=1),
    )
    counts = build_nq(settings, folder / "out", folder / "raw", folder / "entities.parquet")
    return pq.read_table(folder / "out/popularity.parquet").to_pylist(), counts


def mentions(folder: Path, *questions: str, **more) -> list[str | None]:
    """The mention that each question is counted by, None where it has no entity."""
    rows, _ = build(folder, *questions, **more)
    found = {row["question_id"]: row["mention"] for row in rows}
    return [found.get(f"dev/{number}") for number in range(1, len(questions) + 1)]


def test_the_least_viewed_entity_of_a_question_counts(tmp_path):
    rows, counts = build(tmp_path, "is india larger than new york city", "is there rock music", "why")
    city = {"mention": "new york city", "qid": "Q3", "wiki_title": "New York City", "popularity": 900}
    music = {"mention": "rock music", "qid": "Q8", "wiki_title": "Rock music", "popularity": 400}
    assert rows == [{"question_id": "dev/1"} | city, {"question_id": "dev/2"} | music]
    assert (counts["questions"], counts["with_entity"], counts["mentions"]) == (3, 2, 3)
    assert (counts["with_entity_share"], counts["median_popularity"]) == (2 / 3, 650)


def test_a_name_means_its_most_viewed_entity(tmp_path):
    rows, _ = build(tmp_path, "where is new york", "what is bharat")
    assert [(row["mention"], row["wiki_title"]) for row in rows] == [
        ("new york", "New York City"),  # by alias, against another's label
        ("bharat", "Bharat (film)"),  # alike in views: the first title
    ]


def test_an_entity_of_unknown_popularity_is_neither_the_rarest_nor_the_most_viewed(tmp_path):
    entities = [
        *ENTITIES,
        ("Q20", "Twitter", [], "X (social network)", None),
        ("Q21", "India", [], "India (song)", None),
    ]
    rows, counts = build(tmp_path, "twitter or rock music in india", "is twitter down", entities=entities)
    assert [(row["wiki_title"], row["popularity"]) for row in rows] == [
        ("Rock music", 400),
        ("X (social network)", None),
    ]
    assert (counts["with_entity"], counts["unknown_popularity"], counts["median_popularity"]) == (2, 1, 400)


def test_from_left_to_right_the_longest_name_is_taken_and_none_overlaps(tmp_path):
    asked = ["old york city", "new york city hall", "york in new york city", "new yorkers"]
    assert mentions(tmp_path, *asked) == ["york city", "new york city", "york", None]
    names = [("Q1", "Aa Bb", [], "Aa Bb", 9), ("Q2", "Bb Cc Dd", [], "Bb Cc Dd", 1), ("Q3", "Dd Ee", [], "Dd Ee", 5)]
    rows, counts = build(tmp_path, "aa bb cc dd ee", entities=names)
    assert (rows[0]["mention"], counts["mentions"]) == ("dd ee", 2)  # the longer one begins within what is taken


def test_words_that_text_writes_without_capitals_are_no_names(tmp_path):
    asked = ["who was in them", "is india big", "no music", "no new york"]
    assert mentions(tmp_path, *asked) == [None, "india", None, "new york"]


@pytest.mark.parametrize(("capital", "plain", "counts"), [(9, 1, True), (8, 1, False), (0, 0, True), (1, 0, True)])
def test_nine_of_ten_occurrences_have_the_names_capitals(tmp_path, capital, plain, counts):
    text = " ".join(["Apple"] * capital + ["apple"] * plain + ["pineapple"] * 50)
    found = mentions(tmp_path, "an apple", entities=[("Q1", "Apple", [], "Apple Inc.", 3)], text=text)
    assert found == ["apple" if counts else None]


def test_single_common_nouns_and_characters_are_no_names(tmp_path):
    assert mentions(tmp_path, "music that i like", "rock music", "what's a prayer") == [None, "rock music", None]


def test_case_accents_and_apostrophes_do_not_matter(tmp_path):
    asked = [
        "who is beyonce",
        "Who is BEYONCÉ?",
        "say the lord's prayer",
        "say the lord\N{RIGHT SINGLE QUOTATION MARK}s prayer",
    ]
    assert mentions(tmp_path, *asked) == ["beyonce", "beyonce", "lord 's prayer", "lord 's prayer"]
    assert mentions(tmp_path, "india's lords prayer", "beyonce's rock music") == ["india", "rock music"]


def test_an_entity_without_an_article_has_no_popularity(tmp_path):
    assert mentions(tmp_path, "where is atlantis nine") == [None]


def test_without_texts_every_name_with_a_capital_counts(tmp_path):
    assert mentions(tmp_path, "was it", text=None) == ["was"]


def test_no_questions_give_an_empty_table(tmp_path):
    rows, counts = build(tmp_path)
    assert (rows, counts) == (
        [],
        {
            "questions": 0,
            "with_entity": 0,
            "with_entity_share": 0,
            "mentions": 0,
            "unknown_popularity": 0,
            "rejected": 0,
        },
    )


def test_bad_lines_are_rejected_by_reason(tmp_path):
    bad = ['{"question": "cut', '{"question": " "}', '{"question": "is india big", "answer": []}', '{"answer": ["x"]}']
    rows, counts = build(tmp_path, *bad, "is india big", max_reject_share=1.0)
    assert [row["question_id"] for row in rows] == ["dev/5"]
    assert {name: n for name, n in counts.items() if name.startswith("rejected")} == {
        "rejected.no answers": 1,
        "rejected.no question": 2,
        "rejected.not JSON": 1,
        "rejected": 4,
    }
    assert len(pq.read_table(tmp_path / "out/rejects.parquet")) == 4
    with pytest.raises(LongtailError, match=r"dev\.jsonl: 4 of 5 rows rejected"):
        build(tmp_path, *bad, "is india big")


def test_the_same_input_gives_the_same_bytes(tmp_path):
    asked = [f"is {place} near new york or york city {i}" for i in range(200) for place in ("india", "rock music")]
    folders = [tmp_path / name for name in "ab"]
    for folder, entities in zip(folders, (ENTITIES, ENTITIES[::-1]), strict=True):
        build(folder, *asked, entities=entities)
    first, second = ((folder / "out/popularity.parquet").read_bytes() for folder in folders)
    assert first == second


def test_real_questions_name_real_entities(real, tmp_path):
    """With the subjects and objects of the published PopQA for a dictionary, and little text."""
    entities = {}
    with (real / "popqa/popQA.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            for side, name in (("s", row["subj"]), ("o", row["obj"])):
                qid, aliases = row[f"{side}_uri"].rsplit("/", 1)[1], json.loads(row[f"{side}_aliases"])
                entities[qid] = (qid, name, aliases, row[f"{side}_wiki_title"] or None, int(row[f"{side}_pop"]))
    questions = (real / "qa/NQ-open.dev.jsonl").read_text(encoding="utf-8").splitlines()
    text = "\n".join(path.read_text(encoding="utf-8") for path in (real / "wikitext-2").iterdir())
    rows, counts = build(tmp_path, *questions, entities=list(entities.values()), text=text)
    found = {json.loads(questions[int(row["question_id"][4:]) - 1])["question"]: row["wiki_title"] for row in rows}
    assert counts["questions"] == 3_610
    assert 0.3 < counts["with_entity_share"] < 0.5  # 0.97, most of them wrong, if all names counted
    assert found["how many national parks are present in india"] == "India"
    assert found["where did they film the game of thrones"] == "Game of Thrones"
    assert not {"was", "is", "in", "first", "come out", "the world"} & {row["mention"] for row in rows}
