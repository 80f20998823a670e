"""What landed is a commit on the data branch, and tags, here and at git's remote."""

import os
from pathlib import Path

import pytest
from quick_project import Project, git

from flows import data_branch
from flows.parts import Part
from pipelines.check import acceptances, baseline
from pipelines.errors import LongtailError

TAG = "data/sample/2021-10"


@pytest.fixture
def run(unserved, monkeypatch) -> Project:
    """The quick project as the working folder, on the data branch, with a dvc.lock that no commit
    has.
    """
    monkeypatch.chdir(unserved.folder)
    here("config", "user.name", "ada")
    here("config", "user.email", "ada@example.org")
    here("switch", "-q", "-c", data_branch.BRANCH)
    lock("one")
    return unserved


def lock(text: str) -> None:
    Path("dvc.lock").write_text(f"schema: '2.0'\nstages: {{}} # {text}\n")


def commit(month: str = "2021-10") -> str:
    data_branch.check_ready()
    return data_branch.commit("sample", month)


def land(month: str = "2021-10") -> str:
    """Commit and tag a month; returns the commit."""
    made = commit(month)
    tag = data_branch.month_tag("sample", Part.refresh, month)
    data_branch.tag_month(tag, made, [])
    return made


def here(*words: str) -> str:
    return git(Path.cwd(), *words)


def test_a_commit_has_what_the_run_left_and_the_months_date(run):
    """No hook runs and nothing is signed."""
    for hook in ("reference-transaction", "pre-commit", "commit-msg"):
        Path(".git/hooks", hook).write_text("#!/bin/sh\nexit 1\n")
        Path(".git/hooks", hook).chmod(0o755)
    for name in ("commit.gpgSign", "tag.gpgSign"):
        here("-c", "core.hooksPath=/dev/null", "config", name, "true")
    here("config", "gpg.program", "false")
    params = Path("params.yaml").read_text().replace("seed: 0", "seed: 1")
    Path("params.yaml").write_text(params)
    baseline.write_baseline({})
    made = land()

    assert here("rev-parse", "HEAD", f"{TAG}^{{}}").split() == [made, made]
    changed = here("diff", "--name-only", "HEAD^", "HEAD").split()
    assert changed == ["conf/baseline.yaml", "dvc.lock", "params.yaml"]
    said = here("show", "--no-patch", "--format=%an %ae %ad %cd%n%B", "--date=short", made)
    assert said.splitlines()[:2] == [
        "ada ada@example.org 2021-10-31 2021-10-31",
        "Data of 2021-10, profile sample",
    ]
    assert here("for-each-ref", "--format=%(taggerdate:short)", f"refs/tags/{TAG}") == "2021-10-31"


def test_a_commit_is_made_only_of_what_no_commit_has(run):
    first = commit()
    assert commit() == first
    here("reset", "-q", "--soft", "HEAD^")
    assert commit() == first, "the same run on the same commit is the same commit"
    lock("two")
    second = commit()
    assert here("rev-parse", f"{second}^") == first


def test_without_an_identity_longtail_is_the_author(run, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    here("config", "--remove-section", "user")
    made = land()
    assert here("show", "--no-patch", "--format=%an %cn", made) == "Longtail Longtail"
    assert here("cat-file", "tag", TAG).splitlines()[3].startswith("tagger Longtail ")


def _without_a_commit() -> None:
    here("checkout", "-q", "--orphan", "new")


def _without_git() -> None:
    os.rename(".git", "git")


def _on_another_branch() -> None:
    here("switch", "-q", "-c", "main")


def _with_an_edit() -> None:
    Path("work.py").write_text("")


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (_without_a_commit, ".*: not as in git's last commit; commit it first"),
        (_without_git, "git status: fatal: not a git repository.*git init"),
        (_on_another_branch, "a run is committed on longtail/data, and the branch here is main; call it in a clone"),
        (_with_an_edit, "work.py: not as in git's last commit; commit it first"),
    ],
)  # fmt: skip
def test_what_can_not_be_committed_is_one_line(run, spoil, error):
    spoil()
    with pytest.raises(LongtailError, match=f"^{error}[^\n]*$"):
        commit()


def test_a_months_tag_says_what_was_accepted_and_moves(run):
    acceptance = acceptances.Acceptance(
        expectation="questions",
        file="t.parquet",
        measure="rows",
        month="2021-10",
        value=5,
        bound=9,
        reason="a class\nwas merged",
        who="ada",
    )
    first = commit()
    data_branch.tag_month(TAG, first, [acceptance])
    assert here("tag", "-l", "--format=%(contents)", TAG).splitlines() == [
        f"{TAG} landed",
        "",
        "- questions: rows of t.parquet: 5, accepted by ada: a class was merged",
    ]
    lock("two")
    second = land()
    assert here("rev-parse", f"{TAG}^{{}}") == second != first


def test_the_months_that_landed_are_those_of_the_profile_and_part(run):
    for tag in ("sample/2021-10", "sample/2021-08", "other/2021-09", "sample/popqa/2021-07"):
        here("tag", f"data/{tag}")
    assert data_branch.landed_months("sample", Part.refresh) == ["2021-08", "2021-10"]
    assert data_branch.landed_months("sample", Part.popqa) == ["2021-07"]
    assert data_branch.landed_months("sample", Part.refresh, ".") == ["2021-08", "2021-10"]


def test_a_month_is_compared_with_the_last_one_before_it(run):
    for month in ("2021-08", "2021-10"):
        baseline.FILE.write_text(f"# {month}\n")
        land(month)
    for month, compared in (("2021-07", ""), ("2021-09", "2021-08"), ("2021-12", "2021-10")):
        text = data_branch.baseline_of("sample", Part.refresh, month)
        assert text == (f"# {compared}\n" if compared else "")


def test_a_releases_tag_says_what_changed_and_never_moves(run):
    first = commit()
    assert data_branch.landed_tag(first) is None
    changes = Path(".longtail/CHANGELOG.md")
    changes.write_text("## 1.0.0 (2021-10-31)\n\nThe first release.\n")
    tag = data_branch.release_tag("sample", "1.0.0")
    assert tag == "release/sample/1.0.0"
    data_branch.tag_release(tag, first, changes)
    here("tag", "keep", first)
    assert data_branch.tags_of(tag) == ["keep", tag], "all tags of its commit"
    lock("two")
    second = commit()
    data_branch.tag_release(tag, second, Path("params.yaml"))
    assert here("rev-parse", f"{tag}^{{}}") == first
    assert here("tag", "-l", "--format=%(contents)", tag) == changes.read_text().strip()
    assert data_branch.landed_tag(first) is None, "a release's tag is none of a month"
    lock("three")
    assert data_branch.landed_tag(land()) == TAG


def test_a_new_clone_goes_on_where_the_remote_is(run, tmp_path, monkeypatch):
    """The remote takes the branch and the tags together, or nothing."""
    hub = tmp_path / "hub"
    here("init", "-q", "--bare", str(hub))
    here("remote", "add", "hub", str(hub))
    data_branch.bring("hub")  # nothing is there yet
    first = land("2021-08")
    data_branch.push("hub", first)
    old = Path.cwd()

    here("clone", "-q", "-b", data_branch.BRANCH, str(hub), str(tmp_path / "clone"))
    monkeypatch.chdir(tmp_path / "clone")
    lock("two")
    second = land("2021-09")
    assert here("rev-parse", f"{second}^") == first
    data_branch.push("origin", second)

    monkeypatch.chdir(old)
    lock("three")
    third = land("2021-10")
    release = data_branch.release_tag("sample", "1.0.0")
    data_branch.tag_release(release, third, Path("params.yaml"))
    with pytest.raises(LongtailError, match=r"^git push hub: .*rejected.*; nothing was sent"):
        data_branch.push("hub", third)
    assert git(hub, "tag").split() == ["data/sample/2021-08", "data/sample/2021-09"]
    with pytest.raises(LongtailError, match=r"hub has commits that .*; `git pull .* brings them"):
        data_branch.bring("hub")
    here("reset", "-q", "--hard", first)
    data_branch.bring("hub")
    assert here("rev-parse", "HEAD") == second
    assert data_branch.landed_months("sample", Part.refresh, "hub") == ["2021-08", "2021-09"]
