"""Entities of questions, found by names that count, the longest first; the least viewed one of a
question counts.
"""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from knowledge_tables import ENTITIES, chosen, write_rows

from pipelines.questions.open_qa import build_open_qa
from pipelines.tables.questions import NATURAL_QUESTIONS

pytestmark = pytest.mark.usefixtures("workplace")
NAMED = [
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
TEXT = (
    "It was in India and in them. Who was in New York, who? No, no music in India, no Was. "
    "New York City by Beyoncé."
)


def build(*questions: str, entities=NAMED, text: str | None = TEXT, pages=None):
    """What each question is linked to that is linked, with the question's number for its id, and
    the counts.

    `pages` are the titles of redirects, and where they lead.
    """
    for name in ("raw/nq", "raw/c4", "raw/redirects"):
        Path(name).mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"question": question, "answer": ["a"]}) for question in questions]
    if lines:
        Path("raw/nq/dev.jsonl").write_text("\n".join(lines), encoding="utf-8")
    if text is not None:
        Path("raw/c4/c4-train.0.json.gz").write_bytes(
            gzip.compress(json.dumps({"text": text}).encode())
        )
    if pages:
        write_redirects(pages)
    tables = write_rows(entities, ENTITIES, Path("entities.parquet"))
    settings = chosen(
        c4=SimpleNamespace(sample_mb=1), parts=SimpleNamespace(knowledge=["wikidata"])
    )
    counts = build_open_qa(settings, Path("nq"), Path("raw"), tables)
    table = pq.read_table("nq/nq.parquet", schema=NATURAL_QUESTIONS.schema)
    assert sorted(table["question"].to_pylist()) == sorted(questions)
    linked = []
    for row in table.to_pylist():
        if row["s_uri"]:
            found = {"mention": row["subj"], "qid": row["s_uri"].rpartition("/")[2]}
            found |= {"wiki_title": row["s_wiki_title"], "popularity": row["s_pop"]}
            linked.append({"question_id": row["question_id"]} | found)
    return linked, counts


def write_redirects(pages: dict[str, str]) -> None:
    """Dumps of Wikipedia's tables by which each title leads to another page."""
    titles = {"page": pages.keys(), "redirect": pages.values()}
    for name, column in titles.items():
        rows = [f"({number},0,'{title}','','')" for number, title in enumerate(column)]
        line = f"INSERT INTO `{name}` VALUES {','.join(rows)};\n"
        Path(f"raw/redirects/enwiki-{name}.sql.gz").write_bytes(gzip.compress(line.encode()))


def mentions(*questions: str, **more) -> list[str | None]:
    """The mention that each question is counted by, None where it has no entity."""
    found = {row["question_id"]: row["mention"] for row in build(*questions, **more)[0]}
    return [found.get(f"dev/{number}") for number in range(1, len(questions) + 1)]


def test_the_least_viewed_entity_of_a_question_counts():
    """A name means its most viewed entity."""
    rows, counts = build("is india larger than new york city", "is there rock music", "why")
    city = {
        "mention": "new york city",
        "qid": "Q3",
        "wiki_title": "New York City",
        "popularity": 900,
    }
    music = {"mention": "rock music", "qid": "Q8", "wiki_title": "Rock music", "popularity": 400}
    assert rows == [{"question_id": "dev/1"} | city, {"question_id": "dev/2"} | music]
    assert (counts["questions"], counts["with_entity"], counts["mentions"]) == (3, 2, 3)
    assert (counts["with_entity_share"], counts["median_popularity"]) == (2 / 3, 650)
    rows, _ = build("where is new york", "what is bharat", "where is atlantis nine")
    assert [(row["mention"], row["wiki_title"]) for row in rows] == [
        ("new york", "New York City"),  # by alias, against another's label
        # alike in views: the first title; an entity without an article has none
        ("bharat", "Bharat (film)"),
    ]


def test_an_entity_of_unknown_popularity_is_no_extreme():
    entities = [
        ("Q20", "Twitter", [], "X (social network)", None),
        ("Q21", "India", [], "India (song)", None),
    ]
    rows, counts = build(
        "twitter or rock music in india", "is twitter down", entities=NAMED + entities
    )
    found = [(row["wiki_title"], row["popularity"]) for row in rows]
    assert found == [("Rock music", 400), ("X (social network)", None)]
    assert (counts["with_entity"], counts["unknown_popularity"], counts["median_popularity"]) == (
        2,
        1,
        400,
    )


def test_the_longest_name_is_taken_and_none_overlaps():
    asked = ["old york city", "new york city hall", "york in new york city", "new yorkers"]
    assert mentions(*asked) == ["york city", "new york city", "york", None]
    names = [
        ("Q1", "Aa Bb", [], "Aa Bb", 9),
        ("Q2", "Bb Cc Dd", [], "Bb Cc Dd", 1),
        ("Q3", "Dd Ee", [], "Dd Ee", 5),
    ]
    rows, counts = build("aa bb cc dd ee", entities=names)
    # the longer one begins within what is taken
    assert (rows[0]["mention"], counts["mentions"]) == ("dd ee", 2)


def test_titles_and_redirects_are_names_too():
    """A title's capital says nothing where a label has none."""
    names = [
        ("Q1", "photosynthesis", [], "Photosynthesis", 70),
        ("Q2", "Ada Byron", ["ada"], "Ada Lovelace", 40),
    ]
    asked = ["when did ada lovelace die", "the countess of lovelace", "what is photosynthesis"]
    pages = {"Countess_of_Lovelace": "Ada_Lovelace", "Ada": "Ada_Lovelace", "No": "Nobody"}
    found = mentions(*asked, "who is ada", "no", entities=names, pages=pages)
    assert found == ["ada lovelace", "countess of lovelace", None, None, None]


def test_common_words_are_no_names():
    """Case, accents and apostrophes do not matter."""
    asked = {
        "who was in them": None,
        "is india big": "india",
        "no music": None,
        "no new york": "new york",
    }
    asked |= {"music that i like": None, "rock music": "rock music", "what's a prayer": None}
    assert mentions(*asked) == list(asked.values())
    prayer = "lord 's prayer"
    asked = {
        "who is beyonce": "beyonce",
        "Who is BEYONCÉ?": "beyonce",
        "say the lord's prayer": prayer,
    }
    asked |= {
        "say the lord\N{RIGHT SINGLE QUOTATION MARK}s prayer": prayer,
        "india's lords prayer": "india",
    }
    asked |= {"beyonce's rock music": "rock music"}
    assert mentions(*asked) == list(asked.values())


def test_capitals_of_a_question_tell_names_from_words():
    """They say nothing of its first word, and in a question without others, as `I` is."""
    names = [
        ("Q1", "Heat", [], "Heat (film)", 40),
        ("Q2", "HEAT", [], "HEAT (game)", 50),
        ("Q3", "Jackson", [], "Jackson, Mississippi", 60),
        ("Q4", "Mar", [], "Mar (title)", 20),
        ("Q5", "MAR", [], "MAR (magazine)", 30),
    ]
    asked = {
        "who directed heat": None,
        "Who directed Heat?": "Q1",
        "Who made HEAT": "Q2",
        "Heat is by whom": None,
        "WHO DIRECTED HEAT?": None,
        "Shall I see heat?": None,
        "Where is Jackson's Mill?": "Q3",
        "Who is Percy Jackson?": None,
        "Is Jackson Pollock dead?": None,
        "where is percy jackson": "Q3",
        "Who is the Earl of Mar?": "Q4",
        "who is the earl of mar": "Q5",
    }
    rows, _ = build(*asked, entities=names, text="No heat, no heat, and no heat.")
    qids = {row["question_id"]: row["qid"] for row in rows}
    found = [qids.get(f"dev/{number}") for number in range(1, len(asked) + 1)]
    assert found == [*asked.values()]


@pytest.mark.parametrize(
    ("capital", "plain", "counts"), [(9, 1, True), (8, 1, False), (0, 0, True), (1, 0, True)]
)
def test_nine_of_ten_occurrences_have_the_names_capitals(capital, plain, counts):
    text = " ".join(["Apple"] * capital + ["apple"] * plain + ["pineapple"] * 50)
    found = mentions("an apple", entities=[("Q1", "Apple", [], "Apple Inc.", 3)], text=text)
    assert found == ["apple" if counts else None]


def test_without_questions_the_table_is_empty():
    """Without texts every name with a capital counts."""
    rows, counts = build(text=None)
    assert (rows, set(counts.values())) == ([], {0})
    assert {
        "questions",
        "with_entity_share",
        "mentions",
        "unknown_popularity",
        "rejected",
    } < counts.keys()
    assert mentions("was it", text=None) == ["was"]
