"""The difference of two releases: every known change is found and named, and nothing else."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import releases

from flows import landing
from pipelines.release.difference import write_difference
from pipelines.storage import database

pytestmark = pytest.mark.usefixtures("workplace")

SCRIPT = "<script>alert(1)</script>"
PEOPLE = {1: "Ada", 2: "Bob", 3: "Cleo", 4: "Dora"}
JOBS = {20: ["poet", "bard"], 21: ["king"], 22: [SCRIPT]}
OLD = {
    "month": "2021-10",
    "facts": [(1, 20), (2, 20), (2, 21), (3, 20), (4, 21)],
    "views": {1: 7, 2: 99, 3: 3, 4: 5},
}
NEW = {
    "month": "2021-11",
    "facts": [(1, 20), (1, 22), (2, 20), (3, 20), (4, 21)],  # Ada has one more job, Bob one less
    "views": {1: 31, 2: 99, 3: 3, 4: 5},
    "people": PEOPLE | {3: "Cleopatra"},
}


def popqa(name: str, facts, views, month="2021-10", people=PEOPLE) -> Path:
    """The folder `name` with PopQA's rows for (person, job) facts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releases, "PEOPLE", people)
        patch.setattr(releases, "JOBS", JOBS)
        table = releases.popqa(releases.questions(facts, views, month))
    Path(name).mkdir()
    pq.write_table(table, f"{name}/popqa.parquet")
    return Path(name)


def compared(old: Path, new: Path, threads: int = 1) -> tuple[dict[str, dict], list[str]]:
    """The rows by "subject-object" numbers, and the summary."""
    with database.connect(releases.INGEST.memory_gb, threads) as db:
        lines = write_difference(db, old, new, Path("out"))
    rows = pq.read_table("out/difference.parquet").to_pylist()
    by_triple = {
        "-".join(re.search(r"\d+$", row[name])[0] for name in ("s_uri", "o_uri")): row
        for row in rows
    }
    assert len(by_triple) == len(rows)
    return by_triple, lines


def test_a_run_logs_what_a_release_added_and_lost():
    compared(popqa("old", **OLD), popqa("new", **NEW))
    Path("release").mkdir()
    Path("out").rename("release/difference")
    assert landing.read_changes(Path("release")) == {"popqa.P106.added": 1, "popqa.P106.gone": 1}
    assert landing.read_changes(Path("old")) == {}, "the first release has none"


def test_known_changes_are_found_and_nothing_else():
    rows, lines = compared(popqa("old", **OLD), popqa("new", **NEW))
    kinds = {"1-20": "kept", "1-22": "added", "2-20": "kept", "2-21": "gone", "3-20": "kept"}
    assert {key: row["change"] for key, row in rows.items()} == kinds
    ada, new_job, bob, lost_job, cleo = (rows[key] for key in kinds)
    assert (ada["answers_added"], ada["answers_gone"]) == ([SCRIPT], [])
    assert (ada["old_s_pop"], ada["new_s_pop"], ada["log2_ratio"]) == (7, 31, 2.0)
    assert (bob["answers_added"], bob["answers_gone"]) == ([], ["king"])
    assert (cleo["old_question"], cleo["new_question"]) == tuple(
        f"What is {name}'s occupation?" for name in ("Cleo", "Cleopatra")
    )
    assert (new_job["old_s_pop"], new_job["new_s_pop"], new_job["log2_ratio"]) == (None, 31, None)
    assert (lost_job["old_question"], lost_job["new_question"]) == (
        "What is Bob's occupation?",
        None,
    )
    assert new_job["answers_added"] == sorted(["poet", "bard", SCRIPT])
    assert lost_job["answers_gone"] == ["bard", "king", "poet"]
    flags = {
        key: {name for name in ("other_answers", "reworded", "moved") if row[name]}
        for key, row in rows.items()
    }
    expected = {"1-20": {"other_answers", "moved"}, "2-20": {"other_answers"}, "3-20": {"reworded"}}
    assert flags == {key: set() for key in rows} | expected
    assert lines == [
        "old: 5 questions of 2021-10 (old/popqa.parquet)",
        "new: 5 questions of 2021-11 (new/popqa.parquet)",
        "1 added, 1 gone; in both: 2 with other answers, 1 reworded, 1 with another popularity",
        "popularity, new to old: median 1.00, 90 % from 1.00 to 3.25",
        "relation           old  new  added  gone  other answers  reworded  popularity moved  median ratio",
        "occupation (P106)    5    5      1     1              2         1                 1             1",
    ]


def test_the_bytes_are_the_same_whatever_the_threads():
    old, new = popqa("old", **OLD), popqa("new", **NEW)
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine")
    compared(old, new)
    before = releases.files_of(Path("out"))
    assert [*before] == ["difference.parquet", "notes.txt"]
    compared(old, new, threads=3)
    assert releases.files_of(Path("out")) == before


def test_a_popularity_that_only_one_release_knows_has_no_ratio():
    old = popqa("old", [(1, 20), (2, 20), (3, 20)], {1: None, 2: 99, 3: None})
    new = popqa("new", [(1, 20), (2, 20), (3, 20)], {1: 50_000, 2: None, 3: None})
    rows, lines = compared(old, new)
    names = ("old_s_pop", "new_s_pop", "log2_ratio", "moved")
    figures = {key: [row[name] for name in names] for key, row in rows.items()}
    assert figures == {"1-20": [None, 50_000, None, True], "2-20": [99, None, None, True]}
    assert lines[2:4] == [
        "0 added, 0 gone; in both: 0 with other answers, 0 reworded, 2 with another popularity",
        "popularity known to one release only: 2",
    ]
