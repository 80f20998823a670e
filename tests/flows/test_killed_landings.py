"""A run that is killed between any two steps of its landing has landed or has not, and the next
run finishes it.
"""

import signal
import sys
from pathlib import Path

import pytest
from quick_project import Project, git, started
from waiting import PATIENCE

from flows import data_branch
from flows.parts import Part
from pipelines.work.run_log import LANDED

RUN = """
import os, signal, sys
from flows import data_branch, refresh
from pipelines.work import run_log

def kill_after(owner, name, is_meant=lambda *words: True):
    function = getattr(owner, name)
    def call(*words, **options):
        result = function(*words, **options)
        if is_meant(*words):
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, call)

step = sys.argv[1]
if step.startswith("git "):
    kill_after(data_branch, "_run", lambda root, *words: words[0] == step[4:])
elif step == "baseline":
    kill_after(refresh.baseline, "write_baseline")
elif step == "dvc push":
    kill_after(refresh, "_push")
elif step == "MLflow":
    kill_after(run_log, "_tag_landed")
state = refresh.refresh(
    month="next", commit=True, push=True, git_remote="origin", return_state=True
)
print(state.name, state.message)
"""
# the steps in order -> whether the month has landed after it
STEPS = {
    "baseline": False,
    "git add": False,
    "git commit": False,
    "dvc push": False,
    "git tag": False,
    "git push": True,
    "MLflow": True,
    "none": True,
}


@pytest.fixture
def hub(ran, tmp_path) -> Path:
    """Git's remote, which has the branch; DVC has a remote, too."""
    folder = tmp_path / "hub"
    git(ran.folder, "init", "-q", "--bare", str(folder))
    git(ran.folder, "remote", "add", "origin", str(folder))
    assert ran.dvc("remote", "add", "--default", "here", str(tmp_path / "remote")).returncode == 0
    git(ran.folder, "commit", "-qam", "a remote")
    git(ran.folder, "switch", "-q", "-c", data_branch.BRANCH)
    return folder


def run(project: Project, step: str) -> tuple[int, str]:
    """A run for the next month that is killed after a step: its exit code, and what it said."""
    words = [sys.executable, "-c", RUN, step]
    process = started(words, project.folder, project.environment)
    said, problem = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, -signal.SIGKILL), problem
    return process.returncode, said


def landed_runs(project: Project) -> list[str]:
    """What MLflow says of the parent runs that landed: their names in git."""
    _, parents, _ = project.runs()
    return [each.data.tags["longtail.tags"] for each in parents if LANDED in each.data.tags]


@pytest.mark.slow  # two runs a step, in processes of their own
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_landing_is_finished_by_the_next_run(ran, hub, step):
    has_landed = STEPS[step]
    code, _ = run(ran, step)
    assert code == (0 if step == "none" else -signal.SIGKILL)
    months = data_branch.landed_months(ran.folder, "sample", Part.refresh, "origin")
    assert bool(months) == has_landed
    assert len(landed_runs(ran)) == (step in ("MLflow", "none"))

    _, said = run(ran, "none")
    (month,) = data_branch.landed_months(ran.folder, "sample", Part.refresh, "origin")
    if has_landed:
        assert said == f"Completed nothing is due: {month} has landed\n"
    else:
        assert said.endswith(f"{month} has landed\n")
    tag = data_branch.month_tag("sample", Part.refresh, month)
    head = git(ran.folder, "rev-parse", "HEAD")
    assert git(hub, "rev-parse", f"{tag}^{{}}", data_branch.BRANCH).split() == [head, head]
    assert git(ran.folder, "rev-list", "--count", "master..HEAD") == "1"
    assert landed_runs(ran) == [tag]
