"""What a run made is a commit on the data branch, and the user's branch, index and files stay."""

import os
from pathlib import Path

import pytest
from quick_project import Project, git

from flows import data_branch
from pipelines.check import acceptances
from pipelines.errors import LongtailError

TIP = data_branch.REF


@pytest.fixture
def run(unserved, monkeypatch) -> Project:
    """The quick project as the working folder, with a dvc.lock that no commit has."""
    monkeypatch.chdir(unserved.folder)
    git(unserved.folder, "config", "user.name", "ada")
    git(unserved.folder, "config", "user.email", "ada@example.org")
    lock("one")
    return unserved


def lock(text: str) -> None:
    Path("dvc.lock").write_text(f"schema: '2.0'\nstages: {{}} # {text}\n")


def record() -> str:
    return data_branch.record(Path.cwd())


def here(*words: str) -> str:
    return git(Path.cwd(), *words)


def state() -> list:
    """All that a commit on the data branch must not touch."""
    index = Path(".git/index").read_bytes()
    status = here("--no-optional-locks", "status", "--porcelain", "--branch")
    return [status, here("rev-parse", "HEAD"), index]


def test_a_commit_leaves_branch_index_and_files_alone(run):
    """No hook runs and nothing is signed."""
    hooks = ("reference-transaction", "post-index-change", "pre-commit", "commit-msg")
    for hook in hooks:
        Path(".git/hooks", hook).write_text("#!/bin/sh\nexit 1\n")
        Path(".git/hooks", hook).chmod(0o755)
    for name in ("commit.gpgSign", "tag.gpgSign", "core.splitIndex"):
        here("-c", "core.hooksPath=/dev/null", "config", name, "true")
    here("config", "gpg.program", "false")
    params = Path("params.yaml").read_text().replace("seed: 0", "seed: 1")
    Path("params.yaml").write_text(params)
    before = state()

    commit = record()
    tag = data_branch.tag_month(Path.cwd(), "2021-10", "popqa", commit)
    assert state() == before
    assert here("rev-parse", TIP, f"{tag}^{{}}").split() == [commit, commit]
    changed = here("diff", "--name-only", "HEAD", commit).split()
    assert changed == ["dvc.lock", "params.yaml"]
    assert here("show", f"{commit}:dvc.lock") == Path("dvc.lock").read_text().strip()
    said = here("show", "--no-patch", "--format=%an %ae %ad %cd%n%B", commit).splitlines()
    day = here("show", "--no-patch", "--format=%cd", "HEAD")
    assert said[0] == f"ada ada@example.org {day} {day}"
    assert said[1] == "Data of 2021-10, profile sample"
    assert not list(Path(".git").glob("sharedindex*"))


def test_a_commit_is_made_only_of_what_no_commit_has(run):
    head = here("rev-parse", "HEAD")
    first = record()
    assert record() == first
    assert here("rev-parse", f"{first}^@") == head

    lock("two")
    second = record()
    assert here("rev-parse", f"{second}^@").split() == [first, head]
    here("commit", "--allow-empty", "-qm", "code")
    third = record()
    assert here("rev-parse", f"{third}^@").split() == [second, here("rev-parse", "HEAD")]

    here("add", "dvc.lock")
    here("commit", "-qm", "by hand")
    assert record() == here("rev-parse", "HEAD"), "it holds the lock itself"
    assert here("rev-parse", TIP) == third


def test_the_same_run_on_the_same_commit_is_the_same_commit(run):
    first = record()
    here("update-ref", "-d", TIP)
    assert record() == first


def test_without_an_identity_longtail_is_the_author(run, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    here("config", "--remove-section", "user")
    commit = record()
    tag = data_branch.tag_month(Path.cwd(), "2021-10", "refresh", commit)
    said = here("show", "--no-patch", "--format=%an%n%cn%n%B", commit)
    assert said.startswith("Longtail\nLongtail\nData of 2021-10")
    assert said.endswith(data_branch.NOBODY)
    assert here("cat-file", "tag", tag).splitlines()[3].startswith("tagger Longtail ")


def test_a_detached_or_shallow_clone_or_a_worktree_will_do(run, tmp_path, monkeypatch):
    here("commit", "--allow-empty", "-qm", "second")
    here("clone", "-q", "--depth", "1", f"file://{run.folder}", str(tmp_path / "shallow"))
    here("worktree", "add", "-q", "--detach", str(tmp_path / "worktree"))
    for folder in ("shallow", "worktree"):
        monkeypatch.chdir(tmp_path / folder)
        lock(folder)
        commit = record()
        assert folder in here("show", f"{commit}:dvc.lock")
        assert here("rev-parse", TIP) == commit
        assert here("status", "--porcelain") == "?? dvc.lock"

    here("checkout", "-q", "--force", commit)
    lock("again")
    assert here("rev-parse", f"{record()}^@") == commit, "HEAD was the tip"


def _without_a_commit() -> None:
    here("checkout", "-q", "--orphan", "new")


def _without_git() -> None:
    os.rename(".git", "git")


def _on_the_data_branch() -> None:
    here("switch", "-q", "-c", data_branch.BRANCH)


def _worktree_on_the_data_branch() -> None:
    here("worktree", "add", "-q", "-b", data_branch.BRANCH, "../worktree")


def _with_an_edit() -> None:
    Path("work.py").write_text("")


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (_without_a_commit, ".*: not as in git's last commit, .*; commit first"),
        (_without_git, "git status: fatal: not a git repository.*git init"),
        (_on_the_data_branch, "longtail/data: checked out in .*; switch to another branch there"),
        (
            _worktree_on_the_data_branch,
            "longtail/data: checked out in .*/worktree, expected nowhere",
        ),
        (_with_an_edit, "work.py: not as in git's last commit, .*; commit first"),
    ],
)
def test_what_can_not_be_committed_is_one_line(run, spoil, error):
    spoil()
    with pytest.raises(LongtailError, match=f"^{error}[^\n]*$"):
        record()


def test_a_months_tag_says_what_landed_and_moves(run):
    acceptances.accept(["questions"], "2021-10", "a class\nwas merged")
    acceptances.accept(["views"], "2021-09", "of another month")
    first = record()
    tag = data_branch.tag_month(Path.cwd(), "2021-10", "popqa", first)
    assert tag == "data/2021-10"
    assert here("tag", "-l", "--format=%(contents)", tag).splitlines() == [
        "2021-10 landed: part popqa, profile sample",
        "",
        "- questions, accepted for 2021-10: a class was merged",
    ]
    assert here("diff", "--name-only", "HEAD", first).split()[0] == "conf/accepted.yaml"

    lock("two")
    second = record()
    data_branch.tag_month(Path.cwd(), "2021-10", "popqa", second)
    assert here("rev-parse", f"{tag}^{{}}") == second


def test_a_releases_tag_never_moves(run):
    first = record()
    assert data_branch.tag_release(Path.cwd(), "1.0.0", first) == "release/1.0.0"
    lock("two")
    second = record()
    other = f"release/1.0.0-{second[:7]}"
    for _ in range(2):
        assert data_branch.tag_release(Path.cwd(), "1.0.0", second) == other
    assert here("rev-parse", "release/1.0.0^{}", f"{other}^{{}}").split() == [first, second]
    assert data_branch.tag_release(Path.cwd(), "2.0.0", "f" * 40) is None, "made in another clone"


def test_a_new_clone_goes_on_where_the_remote_is(run, tmp_path, monkeypatch):
    """A remote that has other commits refuses, by name."""
    here("init", "-q", "--bare", str(tmp_path / "hub"))
    here("remote", "add", "hub", str(tmp_path / "hub"))
    here("push", "-q", "hub", "HEAD:main")
    first = record()
    tag = data_branch.tag_month(Path.cwd(), "2021-10", "refresh", first)
    data_branch.push(Path.cwd(), "hub")
    here("clone", "-q", "-b", "main", str(tmp_path / "hub"), str(tmp_path / "clone"))
    old = Path.cwd()

    monkeypatch.chdir(tmp_path / "clone")
    lock("two")
    second = record()
    assert here("rev-parse", f"{second}^") == first
    data_branch.tag_month(Path.cwd(), "2021-10", "refresh", second)
    data_branch.push(Path.cwd(), "origin")
    assert git(tmp_path / "hub", "rev-parse", f"{tag}^{{}}", TIP).split() == [second, second]

    monkeypatch.chdir(old)
    lock("three")
    record()
    with pytest.raises(LongtailError, match=r"^git push hub: .*rejected.*; again: git push hub"):
        data_branch.push(Path.cwd(), "hub")
