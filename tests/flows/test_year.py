"""Twelve months by `longtail schedule`, with what goes wrong in a year: all that should has landed,
and nothing else.
"""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import webhook
import year_table
from quick_project import git
from year import REASON, YEAR, Year

TRIES = YEAR
POPQA = "data/questions/popqa"
pytestmark = pytest.mark.slow  # some twelve minutes on two cores


@pytest.fixture
def year(root, wikimedia, tmp_path):
    wikimedia.version = '"one"'
    with webhook.receiving() as hook:
        year = Year(tmp_path, root, wikimedia, hook, TRIES)
        yield year
        year.close()


def read_questions(folder: Path, column: str) -> list[str]:
    return pq.read_table(folder / "popqa.parquet", columns=[column])[column].to_pylist()


def get(clone: Path, month: str, folder: Path) -> None:
    """Bring the questions of a month into a folder, as someone who only wants the data does."""
    words = ["get", ".", POPQA, "--rev", f"data/{month}", "--out", str(folder)]
    command = [sys.executable, "-m", "dvc", *words]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(read_questions(folder, "month")) == {month}


def test_a_year_lands_month_by_month(year, tmp_path):
    head = git(year.folder, "rev-parse", "HEAD")
    year.play()  # looks at the states that the runs end in
    months = year.months[1:]

    assert year.unexpected == []
    assert year.other_messages() == {f"nothing is due: {months[-1]} has landed"}
    assert year.dumps.server.agents == {"longtail/0.1 (someone@example.org)"}
    table = year_table.rows(year)
    assert [row.alerts for row in table] == [attempt.alerts for attempt in TRIES]
    assert len(year.hook.texts) == sum(row.alerts for row in table), year.hook.texts

    assert git(year.folder, "rev-parse", "HEAD") == head, "the user's branch stays"
    assert git(year.folder, "tag", "--list", "data/*").split() == [f"data/{m}" for m in months]
    tagged = [git(year.folder, "rev-parse", f"data/{month}^{{commit}}") for month in months]
    branch = git(year.folder, "rev-list", "--first-parent", "--reverse", "longtail/data").split()
    assert [commit for commit in branch if commit != head] == tagged

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(year.folder), str(clone))
    n_questions = []
    with_reason = []
    for month, commit in zip(months, tagged, strict=True):
        (version,) = git(year.folder, "tag", "--points-at", commit, "release/*").split()
        release = year.folder / version
        provenance = json.loads((release / "provenance.json").read_text())
        assert provenance["commit"] == commit
        dates = {entry["dataset"]: entry.get("date") for entry in provenance["sources"]}
        assert (dates["wikidata"], dates["wikipedia"]) == (f"{month}-25", f"{month}-20")
        assert set(read_questions(release, "month")) == {month}
        n_questions.append(len(read_questions(release, "question_id")))
        if REASON in git(year.folder, "cat-file", "tag", f"data/{month}"):
            with_reason.append(month)
    assert len(list((year.folder / "release").iterdir())) == len(months)
    get(clone, months[2], tmp_path / "third")
    get(clone, months[-1], tmp_path / "last")

    # each month has more questions than the one before, but where someone accepted fewer
    fewer = []
    for number, month in enumerate(months[1:], 1):
        if n_questions[number] < n_questions[number - 1]:
            fewer.append(month)
    accepted = [year.months[attempt.month] for attempt in TRIES if attempt.happens == "accepted"]
    assert fewer == with_reason == accepted
