"""docs/schedules.md says how the data of old months are removed. Nothing that is kept goes."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import dvc.api
import pytest
from dvc.repo import Repo
from quick_project import dvc_init, git

from flows import data_branch, profiles
from flows.parts import Part

DVC_YAML = """
stages:
  a:
    cmd: mkdir data/a; echo ${popularity.month} > data/a/month; echo same > data/a/same
    deps: [input.txt]
    params: [popularity.month]
    outs: [data/a]
"""
LANDED = ["2025-01", "2025-02", "2025-03"]  # 2025-02 is also a release
RUNS = [*LANDED, "2025-04", "2025-05"]  # the last one is in the work folder


@pytest.fixture
def project(root, tmp_path, monkeypatch) -> Path:
    """A project after RUNS, beside its DVC remote and its bare git repository."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    params = profiles.compose("sample", root)
    (folder / "dvc.yaml").write_text(DVC_YAML)
    (folder / "input.txt").touch()
    (folder / ".gitignore").write_text(".longtail\n")
    (folder / "data/.gitignore").write_text("*\n")
    git(folder, "init", "-q", "-b", "main")
    dvc_init(folder, scm=True)
    (folder / ".dvc/config").write_text(
        "[core]\n    remote = folder\n['remote \"folder\"']\n    url = ../../remote\n"
    )
    (folder / "params.yaml").write_text(params)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a project")
    git(folder, "switch", "-q", "-c", data_branch.BRANCH)

    monkeypatch.chdir(folder)
    for month in RUNS:
        (folder / "params.yaml").write_text(params.replace("2021-10", month))
        with Repo(".") as repo:
            repo.reproduce()
            repo.push(run_cache=True)
        if month in LANDED:
            commit = data_branch.commit("monthly", month)
            tag = data_branch.month_tag("monthly", Part.refresh, month)
            data_branch.tag_month(tag, commit, [])
        if month == "2025-02":
            release = data_branch.release_tag("monthly", "1.0.0")
            data_branch.tag_release(release, commit, Path("params.yaml"))
    git(tmp_path, "clone", "-q", "--bare", "project", "origin.git")
    git(folder, "remote", "add", "origin", "../origin.git")
    return folder


def commands(root: Path) -> list[list[str]]:
    """Those of docs/schedules.md that remove old months, as words."""
    page = (root / "docs/schedules.md").read_text()
    block = re.search(r"### Remove old months.*?```sh\n(.*?)```", page, re.DOTALL)
    assert block
    return [shlex.split(line, comments=True) for line in block[1].splitlines()]


def read_month(repo: Path, commit: str) -> str:
    return dvc.api.read("data/a/month", repo=str(repo), rev=commit).strip()


def test_what_no_kept_commit_needs_goes(root, project):
    """Kept commits have their data, here from the cache and in a clone from the remote."""
    for words in commands(root):
        if words[0].endswith("dvc"):
            words = [sys.executable, "-m", *words, "--force"]
            words[2] = "dvc"
        subprocess.run(words, check=True)

    assert "data/monthly/2025-01" not in git(project, "ls-remote", "--tags", "origin")
    with Repo(".") as repo:
        assert not repo.status()
    remote = project.parent / "remote"
    for store in (project / ".dvc/cache", remote):
        files = [path for path in (store / "files").rglob("*") if path.is_file()]
        assert len(files) == 7, "three months have a list and a file each, and share one file"

    clone = project.parent / "clone"
    git(project.parent, "clone", "-q", "project", "clone")
    for tag, month in (("data/monthly/2025-03", "2025-03"), ("release/monthly/1.0.0", "2025-02")):
        git(clone, "checkout", "-q", tag)
        with Repo(str(clone)) as repo:
            repo.pull()
        assert (clone / "data/a/month").read_text().strip() == month
    remote.rename(project.parent / "away")
    for tag, month in (("data/monthly/2025-03", "2025-03"), ("release/monthly/1.0.0", "2025-02")):
        assert read_month(project, tag) == month
