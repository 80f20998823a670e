"""Every kind of bad row is refused, with its file, its place, its key and the reason; good rows
are not.
"""

import re
import shutil

import pytest
from releases import INGEST, WIKIDATA, links, questions, thresholds, write_data

from pipelines.check import table_rules
from pipelines.errors import LongtailError
from pipelines.release import contents
from pipelines.storage import database

FACTS = [(s, o) for s in (1, 2, 3, 4) for o in (20, 21, 22)]
CHANGES = {  # question -> (what is changed in it, why it is refused)
    "Q1-P106-Q20": (
        {"prop": "job"},
        "its prop is job, expected the relation's name in relations.yaml",
    ),
    "Q1-P106-Q21": (
        {"question": "Who?"},
        "its question is Who?, expected the relation's template about the subject",
    ),
    "Q1-P106-Q22": (
        {"s_uri": f"{WIKIDATA}01"},
        f"its s_uri is {WIKIDATA}01, expected an address of Wikidata's",
    ),
    "Q2-P106-Q20": ({"s_pop": 98}, None),  # what the subject's other questions are compared with
    "Q2-P106-Q21": ({"possible_answers": []}, "its possible_answers is [], expected an answer"),
    "Q2-P106-Q22": ({"s_pop": 98, "o_pop": -1}, "its o_pop is -1, expected page views"),
    "Q3-P106-Q20": (
        {"possible_answers": ["poet", " "]},
        "its possible_answers is [poet, ' '], expected no blank one",
    ),
    "Q3-P106-Q21": (
        {"possible_answers": ["poet", "poet"]},
        "its obj is king, expected one of the answers",
    ),
    "Q3-P106-Q22": ({"obj": None, "month": "2021"}, "it has no obj"),
    "Q4-P106-Q20": ({"split": "dev"}, "its split is dev, expected train or test"),
    "Q4-P106-Q21": ({"origin": "guessed"}, "its origin is guessed, expected wikidata or published"),
    "Q4-P106-Q22": ({"id": 2**52 + 421}, "its id is that of row 11"),
}


@pytest.fixture
def faults_of(tmp_path, monkeypatch):
    """A function that gives all faults by table, of datasets as the stages would leave them."""
    monkeypatch.setattr(table_rules, "FAULTS_NAMED", 100)

    def found(*tables) -> dict[str, list[str]]:
        error = error_of(tmp_path, *tables)
        faults = error.removeprefix("not fit for a release: ")
        by_table = re.findall(
            r"(\w+)\.parquet has \d+ faults: (.*?)(?=; \w+\.parquet has|$)", faults
        )
        return {table: text.split("; ") for table, text in by_table}

    return found


def error_of(tmp_path, *tables) -> str:
    """What is said of datasets as the stages would leave them; "" if they are fit."""
    shutil.rmtree(tmp_path / "release", ignore_errors=True)
    (tmp_path / "release").mkdir()
    with database.connect(INGEST.memory_gb, 1) as db:
        contents.write_tables(db, write_data(tmp_path / "data", *tables), tmp_path / "release")
        try:
            contents.check_tables(db, tmp_path / "release")
        except LongtailError as error:
            return str(error)
    return ""


def test_unknown_popularity_passes_if_questions_agree(faults_of):
    rows = questions(FACTS, {1: None, 2: 99, 3: None, 4: 5})
    assert faults_of(rows) == {}
    rows[1]["s_pop"] = 7
    fault = "row 2 (Q1-P106-Q21): its popularity of the subject is not that of row 1"
    assert fault in faults_of(rows)["popqa"]


def test_bad_questions_are_named(faults_of, tmp_path, monkeypatch):
    rows = [row | CHANGES[row["question_id"]][0] for row in questions(FACTS)]
    faults = faults_of(rows)["popqa"]
    for place, (question, (_, why)) in enumerate(CHANGES.items(), start=1):
        row = f"row {place} ({question}): "
        found = [fault.removeprefix(row) for fault in faults if fault.startswith(row)]
        assert any(reason.startswith(why) for reason in found) if why else not found

    monkeypatch.undo()
    first = "row 1 (Q1-P106-Q20): its prop is job"
    error = error_of(tmp_path, rows)
    count = len(faults)
    assert error.startswith(f"not fit for a release: popqa.parquet has {count} faults: {first}")
    assert error.count("row ") - error.count("of row ") == table_rules.FAULTS_NAMED


def test_a_triple_asked_about_twice_is_named(faults_of):
    """An answer twice passes in published rows only."""
    first, second, *others = questions()
    faults = faults_of([first, second, *others, second | {"id": 1, "question_id": "another"}])
    assert faults["popqa"] == ["row 6 (another): its relation, s_uri, o_uri is that of row 2"]
    strange = {"possible_answers": ["poet", "bard", "poet"], "o_pop": -2}
    assert faults_of([first | strange | {"origin": "published"}, second, *others]) == {}
    ours = faults_of([first | strange, second, *others])["popqa"]
    assert [fault.partition(": ")[2] for fault in ours] == [
        "its possible_answers is [poet, bard, poet], expected each once",
        "its o_pop is -2, expected page views",
    ]


def test_bad_links_and_thresholds_are_named(faults_of):
    linked, cuts = links(), thresholds()
    linked[0]["link"] = "ambiguous"
    linked[1] |= {"question_id": "P19-1", "s_pop": 3}
    cuts[0]["threshold"] = -1.0
    cuts[1] |= {
        "threshold_low": 9.0,
        "threshold_high": 8.0,
        "adaptive": 1.5,
        "closed_book": float("nan"),
    }
    assert faults_of(None, linked, cuts) == {
        "entityquestions_links": [
            "row 1 (P19-1): its link is ambiguous, expected label or alias with an address",
            "row 2 (P19-1): its s_pop is 3, expected page views of what is linked",
            "row 2 (P19-1): its question_id is that of row 1",
        ],
        "thresholds": [
            "row 1 (popqa tiny bm25 exact P106): its threshold is -1.0, expected page views",
            "row 2 (popqa tiny bm25 shrunk P106): its threshold_low is 9.0, expected a lower one",
            "row 2 (popqa tiny bm25 shrunk P106): its closed_book is nan, expected from 0 to 1",
            "row 2 (popqa tiny bm25 shrunk P106): its adaptive is 1.5, expected from 0 to 1",
        ],
    }
