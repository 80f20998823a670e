"""What was pushed comes back in a fresh clone without computing."""

import re
import shutil
from contextlib import chdir
from pathlib import Path
from unittest import mock

import pytest
from prefect.client.schemas.objects import StateType
from prefect.states import State
from quick_project import Project, Untracked, git

from flows import data_branch
from flows.parts import Part

TAG = "data/sample/corpus/2021-10"


@pytest.fixture
def remote(ran, tmp_path) -> Path:
    """The folder that is the default remote of the project, in which b is called as the stage that
    `corpus` names.
    """
    dvc_yaml = ran.folder / "dvc.yaml"
    dvc_yaml.write_text(dvc_yaml.read_text().replace("  b:\n", "  chunk:\n"))
    assert ran.dvc("remote", "add", "--default", "here", str(tmp_path / "remote")).returncode == 0
    git(ran.folder, "commit", "-qam", "a remote")
    git(ran.folder, "switch", "-q", "-c", data_branch.BRANCH)
    for log in (ran.folder / ".longtail/logs").iterdir():
        log.unlink()
    return tmp_path / "remote"


def test_what_was_pushed_comes_back_in_a_clone(ran, remote, tmp_path):
    """A part is run with what it needs, pushed with DVC's run cache, and committed."""
    assert ran.dvc("push", "c").returncode == 0
    done = ran.longtail("run", "corpus", "--push", "--commit", "--month", "2021-10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 ran, 2 restored from the cache, 1 unchanged; pushed: " in done.stdout
    assert re.search(rf"commit \w{{7}}, {TAG}; 2021-10 has landed", done.stdout)
    logged = [path.name for path in (ran.folder / ".longtail/logs").iterdir()]
    assert sorted(logged) == ["chunk@1.log", "chunk@2.log", "push.log"]
    git(ran.folder, "clone", "-q", "--branch", "master", ".", str(tmp_path / "clone"))
    made = Project(tmp_path / "clone", ran.root)
    assert not (made.folder / "dvc.lock").exists()
    assert made.dvc("get", ".", "data/b1", "--rev", TAG).returncode == 0
    assert (made.folder / "b1").read_text() == "b1"
    (made.folder / "b1").unlink()

    git(made.folder, "checkout", "-q", TAG)
    assert made.dvc("pull").returncode == 0
    assert made.dvc("status").stdout == "Data and pipelines are up to date.\n"
    assert (made.folder / "data/c").read_text() == "c"
    shutil.rmtree(made.folder / ".dvc/cache")
    for path in ("dvc.lock", "data/a", "data/metrics/a.json"):
        (made.folder / path).unlink()
    assert made.dvc("repro", "--pull", "a").returncode == 0
    assert (made.folder / "data/a").read_text() == "one"
    assert not (made.folder / "begun.txt").exists(), "no stage's command was run"


@pytest.mark.slow
def test_a_month_lands_once_git_has_pushed_it(ran, remote, tmp_path):
    """Another try makes no other commit. What is not committed is refused before a stage runs."""
    hub = tmp_path / "hub"
    git(ran.folder, "init", "-q", "--bare", str(hub))
    git(ran.folder, "remote", "add", "origin", str(hub))
    hook = hub / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho denied by the hub >&2\nexit 1\n")
    hook.chmod(0o755)

    state = land(ran, "origin")
    assert (state.type, state.name) == (StateType.FAILED, "Failed")
    assert re.match(
        "git push origin: remote: denied by the hub .*; nothing was sent", state.message
    )
    assert git(hub, "for-each-ref") == ""
    with chdir(ran.folder):
        landed = data_branch.landed_months("sample", Part.corpus, "origin")
    assert landed == [], "another try is due"
    commit = git(ran.folder, "rev-parse", "HEAD")

    hook.unlink()
    state = land(ran, "origin")
    assert (state.type, state.name) == (StateType.COMPLETED, "Completed")
    assert state.message.endswith(
        "longtail/data and its tags are at git's origin; 2021-10 has landed"
    )
    assert git(hub, "rev-parse", f"{TAG}^{{}}", data_branch.BRANCH).split() == [commit, commit]

    (ran.folder / "work.py").write_text("")
    assert land(ran, "origin").message.startswith("2021-10: work.py: not as in git's")


def land(project: Project, git_remote: str) -> State:
    """A run of the flow for a month, as a deployment with `commit` and `git_remote` makes it."""
    from flows import refresh

    with project.here(), mock.patch.object(refresh, "Run", Untracked):
        return refresh.refresh(
            part="corpus", month="2021-10", commit=True, git_remote=git_remote, return_state=True
        )


@pytest.mark.slow
def test_a_push_that_can_not_work_fails_once_by_name(ran, remote, tmp_path):
    (tmp_path / "file").touch()
    ran.dvc("remote", "modify", "here", "url", str(tmp_path / "file/below"))
    git(ran.folder, "commit", "-qam", "another remote")
    done = ran.longtail("run", "corpus", "--push", "--commit")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert re.match("error: push: failed to transfer.*Not a directory", last)
    here = "the data are whole here, `dvc push --run-cache` sends them (all it said: .longtail/logs/push.log)"
    assert last.endswith(here)
    tried = [
        line.split("ERROR: ")[1] for line in done.stderr.splitlines() if "ERROR: failed" in line
    ]
    assert len(tried) == len(set(tried)) > 1
    assert git(ran.folder, "tag") == "", "it has not landed"
