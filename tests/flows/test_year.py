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
from year import REASON, Year, month_tag
from year_tries import OTHER, PROFILE, YEAR

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


def get(clone: Path, revision: str, folder: Path) -> str:
    """Bring the questions of a commit into a folder, as someone who only wants the data does;
    returns their month.
    """
    words = ["get", ".", POPQA, "--rev", revision, "--out", str(folder)]
    command = [sys.executable, "-m", "dvc", *words]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (month,) = set(read_questions(folder, "month"))
    return month


def files_of(year: Year, revision: str, store: Path) -> set[Path]:
    """The files in a store of DVC's that the outputs of a commit are made of."""
    files = set()
    for md5 in year_table.outputs(year, revision).values():
        file = store / md5[:2] / md5[2:]
        files.add(file)
        if md5.endswith(".dir"):
            for entry in json.loads(file.read_text()):
                files.add(store / entry["md5"][:2] / entry["md5"][2:])
    return files


def check_other_profile(year: Year) -> None:
    """Its months and releases hold what its own stages made, in the same clone: the questions of
    the other profile of that month, and nothing else of it.
    """
    tags = [month_tag(*landed) for landed in year.landed() if landed[0] == OTHER]
    for number, tag in enumerate(tags):
        own = year_table.outputs(year, tag)
        month = Path(tag).name
        beside = year_table.outputs(year, month_tag(PROFILE, month))
        assert own[POPQA] == beside[POPQA]
        assert any(path.startswith("data/predictions/") for path in beside)
        assert not any(path.startswith("data/predictions/") for path in own)
        release = year.folder / "release" / OTHER / f"1.{number}.0"
        provenance = json.loads((release / "provenance.json").read_text())
        assert provenance["landed"] == tag
        made = {path for outs in provenance["dvc"].values() for path in outs}
        assert made == set(own)


def changed_questions(year: Year, tag: str) -> float:
    """By how many questions a month has more than the one before, as MLflow has it."""
    _, parents, _ = year.schedules.project.runs()
    (run,) = [parent for parent in parents if tag in parent.data.tags.get("longtail.tags", "")]
    change = 0.0
    for name, count in run.data.metrics.items():
        if name.endswith(".added"):
            change += count
        elif name.endswith(".gone"):
            change -= count
    return change


def test_a_year_lands_month_by_month(year, tmp_path):
    first = git(year.folder, "rev-parse", "HEAD")
    year.play()  # looks at the states that the runs end in
    check(year, first, tmp_path)


def check(year: Year, first: str, tmp_path: Path) -> None:
    """What landed in a year that was played on the commit `first`."""
    months = year.months[1:]

    assert year.unexpected == []
    assert year.other_messages == {f"nothing is due: {months[-1]} has landed"}
    assert year.dumps.server.agents == {"longtail/0.1 (someone@example.org)"}
    table = year_table.rows(year)
    assert [row.alerts for row in table] == [attempt.alerts for attempt in year.tries]
    assert len(year.heard) == sum(row.alerts for row in table), year.heard

    names = [month_tag(profile, month) for profile, month in year.landed()]
    all_names = sorted([month_tag(PROFILE, year.months[0]), *names])
    assert git(year.folder, "tag", "--list", "data/*").split() == all_names
    assert git(year.hub, "tag", "--list", "data/*").split() == all_names
    commits = [git(year.hub, "rev-parse", f"{name}^{{commit}}") for name in names]
    branch = git(year.hub, "rev-list", "--reverse", "longtail/data").split()
    assert branch[branch.index(first) + 1 :] == commits, "in the order in which they landed"
    check_other_profile(year)

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(year.folder), str(clone))
    n_questions = []
    with_reason = []
    releases = []
    for month in months:
        commit = git(year.hub, "rev-parse", f"{month_tag(PROFILE, month)}^{{commit}}")
        (version,) = git(year.folder, "tag", "--points-at", commit, "release/*").split()
        releases.append(version)
        release = year.folder / version
        provenance = json.loads((release / "provenance.json").read_text())
        assert provenance["commit"] == commit
        dates = {entry["dataset"]: entry.get("date") for entry in provenance["sources"]}
        assert (dates["wikidata"], dates["wikipedia"]) == (f"{month}-25", f"{month}-20")
        assert set(read_questions(release, "month")) == {month}
        n_questions.append(len(read_questions(release, "question_id")))
        if REASON in git(year.folder, "cat-file", "tag", month_tag(PROFILE, month)):
            with_reason.append(month)
    assert len(list((year.folder / "release" / PROFILE).iterdir())) == len(months)
    assert get(clone, month_tag(PROFILE, months[2]), tmp_path / "third") == months[2]
    assert get(clone, month_tag(PROFILE, months[-1]), tmp_path / "last") == months[-1]

    # each month has more questions than the one before, but where someone accepted fewer
    fewer = []
    for number, month in enumerate(months[1:], 1):
        change = n_questions[number] - n_questions[number - 1]
        if change < 0:
            fewer.append(month)
            assert changed_questions(year, month_tag(PROFILE, month)) == change
    accepted = [
        year.months[attempt.month] for attempt in year.tries if attempt.happens == "accepted"
    ]
    assert fewer == with_reason == accepted

    tags = [month_tag(PROFILE, month) for month in months[-2:]]
    git(year.folder, "tag", "--delete", *(month_tag(PROFILE, month) for month in months[:-2]))
    kept = ["--workspace", "--all-branches", "--all-tags", "--all-experiments"]
    removed = subprocess.run(
        [sys.executable, "-m", "dvc", "gc", *kept, "--cloud", "--force"],
        cwd=year.folder,
        capture_output=True,
        text=True,
    )
    assert removed.returncode == 0, removed.stderr
    for store in (year.folder / ".dvc/cache/files/md5", tmp_path / "longtail-remote/files/md5"):
        for revision in (*releases, *tags):
            missing = [file for file in files_of(year, revision, store) if not file.is_file()]
            assert missing == [], (revision, removed.stdout)
    assert get(clone, releases[2], tmp_path / "third release") == months[2]
