"""A run that is killed at any point of its landing has landed or has not, and the next run finishes
it. docs/measured/tables/killed-landings.csv has the points, and what is expected after each.
"""

import csv
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import played_hub
import pytest
import releases
import yaml
from quick_project import LAST, Project, git, started
from waiting import PATIENCE

from flows import data_branch
from flows.parts import Part
from pipelines.work.run_log import LANDED

TABLE = Path(__file__).parents[2] / "docs/measured/tables/killed-landings.csv"
QUESTIONS = """  questions:
    cmd: PYTHON -c "import shutil; shutil.copytree('made', 'data', dirs_exist_ok=True)"
    deps: [made]
    outs: [data/questions/popqa, data/adaptive, data/models, data/raw, data/metrics/lsr_dense.json]
"""
RUN = """
import os, pkgutil, signal, sys
from flows import refresh

def kill_after(function, word, count):
    path, name = function.rsplit(".", 1)
    owner = pkgutil.resolve_name(path)
    original = getattr(owner, name)
    def call(*words, **options):
        nonlocal count
        result = original(*words, **options)
        if not word or word in words:
            count -= 1
            if count == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, call)

if len(sys.argv) > 1:
    kill_after(sys.argv[1], sys.argv[2], int(sys.argv[3]))
state = refresh.refresh(
    month="next", commit=True, push=True, release=True, to="hub:ada/popqa", git_remote="origin",
    return_state=True,
)
print(state.name, state.message)
"""
KILL_BY_REMOTE = """#!/bin/sh
kill -9 "$(cat "{lock}")"
exit 1
"""


def points() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@dataclass
class Landing:
    """A project whose runs land, and everything that they land at."""

    project: Project
    git_remote: Path
    dvc_remote: Path
    hub: played_hub.Hub

    def run(self, point: dict[str, str] | None = None) -> str:
        """A run for the next month, which is killed at the point, if one is named; what it said."""
        words = [sys.executable, "-c", RUN]
        if point and point["function"] == "git's remote":
            hook = self.git_remote / "hooks" / point["word"]
            hook.write_text(KILL_BY_REMOTE.format(lock=self.project.folder / ".longtail/run.lock"))
            hook.chmod(0o755)
        elif point:
            words += [point["function"], point["word"], point["count"]]
        process = started(words, self.project.folder, self.project.environment)
        said, problem = process.communicate(timeout=PATIENCE)
        for hook in (self.git_remote / "hooks").iterdir():
            hook.unlink()
        assert process.returncode == (-signal.SIGKILL if point else 0), problem
        return said

    def found(self) -> dict[str, str]:
        """What is found at each place, as the table has it."""
        folder = self.project.folder
        has_commit = git(folder, "rev-list", "--count", "master..HEAD") != "0"
        _, parents, _ = self.project.runs()
        landed = [each for each in parents if LANDED in each.data.tags]
        ((state,),) = self.project.prefect.ask(f"SELECT state_name FROM flow_run WHERE id = {LAST}")
        return {
            "git": " ".join(["commit"] * has_commit + kinds_of_tags(folder)),
            "git's remote": " ".join(kinds_of_tags(self.git_remote)),
            "DVC's remote": "data" if self._has_data() else "",
            "Hub": " ".join(self._published()),
            "MLflow": "landed" * len(landed),
            "Prefect": state,
        }

    def _has_data(self) -> bool:
        """Whether DVC's remote has the questions that dvc.lock names."""
        lock = yaml.safe_load((self.project.folder / "dvc.lock").read_text())
        md5s = {out["path"]: out["md5"] for out in lock["stages"]["questions"]["outs"]}
        md5 = md5s["data/questions/popqa"]
        return (self.dvc_remote / "files/md5" / md5[:2] / md5[2:]).is_file()

    def _published(self) -> list[str]:
        """The repositories that have the release, and those that have no more than its files."""
        return [
            f"{name.removeprefix('ada/')}{'' if '1.0.0' in refs else '(no tag)'}"
            for name, refs in sorted(self.hub.refs.items())
        ]


def kinds_of_tags(folder: Path) -> list[str]:
    return [name.split("/")[0] for name in git(folder, "tag", "--list").split()]


@pytest.fixture
def landing(ran, tmp_path) -> Iterator[Landing]:
    """One that has not begun."""
    git_remote = tmp_path / "git"
    git(tmp_path, "init", "-q", "--bare", str(git_remote))
    shutil.rmtree(git_remote / "hooks")
    (git_remote / "hooks").mkdir()
    git(ran.folder, "remote", "add", "origin", str(git_remote))
    dvc_remote = tmp_path / "dvc"
    assert ran.dvc("remote", "add", "--default", "here", str(dvc_remote)).returncode == 0

    releases.write_data(ran.folder / "made")
    with (ran.folder / "dvc.yaml").open("a") as file:
        file.write(QUESTIONS.replace("PYTHON", sys.executable))
    with (ran.folder / ".gitignore").open("a") as file:
        file.write("/release\n/made\n")
    git(ran.folder, "commit", "-qam", "questions, and remotes")
    git(ran.folder, "switch", "-q", "-c", data_branch.BRANCH)

    with played_hub.running() as hub:
        ran.environment |= {
            "HF_ENDPOINT": hub.address,
            "HF_TOKEN": played_hub.TOKEN,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_CACHE": str(tmp_path / "hf"),
        }
        yield Landing(ran, git_remote, dvc_remote, hub)


@pytest.mark.slow  # two runs each, in processes of their own
@pytest.mark.parametrize("point", points(), ids=lambda point: point["killed after"])
def test_a_killed_landing_is_finished_by_the_next_run(landing, point):
    landing.run(point)
    found = landing.found()
    assert found == {place: point[place] for place in found}

    said = landing.run()
    with chdir(landing.project.folder):
        (month,) = data_branch.landed_months("sample", Part.refresh, "origin")
    nothing_is_due = said == f"Completed nothing is due: {month} has landed\n"
    assert nothing_is_due or said.endswith(f"{month} has landed\n")
    assert nothing_is_due == bool(point["git's remote"])
    assert landing.found() == {
        "git": "commit data release",
        "git's remote": "data release",
        "DVC's remote": "data",
        "Hub": "popqa popqa-dense",
        "MLflow": "landed",
        "Prefect": point["Prefect, next run"],
    }
    branch = git(landing.git_remote, "rev-parse", data_branch.BRANCH)
    assert branch == git(landing.project.folder, "rev-parse", "HEAD")
