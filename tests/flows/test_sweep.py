"""A sweep removes the data of old months, and nothing that a kept commit needs."""

import json
import os
import shutil
from pathlib import Path

import dvc.api
import pytest
from dvc.repo import Repo
from dvc_data.index import DataIndexDirError
from quick_project import dvc_init, git

from flows import data_branch, profiles, sweep
from flows.commands import sweeping
from pipelines.errors import LongtailError
from pipelines.storage.work_store import KEPT

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
GONE = ["2025-01", "2025-04"]


@pytest.fixture(scope="module")
def landed(root, tmp_path_factory) -> Path:
    """A folder with a project after RUNS, beside its DVC remote and its bare git repository."""
    home = tmp_path_factory.mktemp("landed")
    folder = home / "project"
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

    for month in RUNS:
        (folder / "params.yaml").write_text(params.replace("2021-10", month))
        _reproduce_and_push(folder)
        if month in LANDED:
            commit = data_branch.record(folder)
            data_branch.tag_month(folder, month, "refresh", commit)
        if month == "2025-02":
            data_branch.tag_release(folder, "1.0.0", commit)
    git(home, "clone", "-q", "--bare", "project", "origin.git")
    git(folder, "remote", "add", "origin", "../origin.git")
    return home


def _reproduce_and_push(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with Repo(".") as repo:
            repo.reproduce()
            repo.push(run_cache=True)


@pytest.fixture
def project(landed, tmp_path, monkeypatch) -> Path:
    """A copy of it, as the working folder."""
    home = shutil.copytree(landed, tmp_path / "home")
    monkeypatch.chdir(home / "project")
    return home / "project"


def read_month(repo: Path, commit: str) -> str:
    return dvc.api.read("data/a/month", repo=str(repo), rev=commit).strip()


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def months_in_run_cache(runs: Path) -> set[str]:
    """The months of the entries of a run cache."""
    entries = [path.read_text() for path in files_below(runs)]
    return {month for month in RUNS if any(month in entry for entry in entries)}


def test_it_lists_then_removes_what_no_kept_commit_needs(project, capsys):
    """Kept commits have their data afterwards, here from the cache and in a clone from the remote."""
    remote = project.parent / "remote"
    swept = git(project, "rev-parse", "data/2025-01^{commit}")
    before = files_below(project.parent)

    sweeping.sweep(months=1, remote=True)
    listed = capsys.readouterr().out
    for place in ("cache", "remote folder"):
        for line in ("2025-01: 2 files", "no month: 2 files", "run cache: 2 files"):
            assert f"{place}, {line}" in listed
    assert "2025-02: " not in listed, "the release has the same commit"
    new = files_below(project.parent) - before
    assert before <= files_below(project.parent)
    assert not [path for path in new if "cache" in path.parts or remote in path.parents]

    sweeping.sweep(months=1, remote=True, yes=True)
    said = capsys.readouterr().out
    assert "git push --delete origin data/2025-01 data/2025-02\n" in said
    assert git(project, "tag").split() == ["data/2025-03", "release/1.0.0"]
    kept = set(RUNS) - set(GONE)
    assert months_in_run_cache(project / ".dvc/cache/runs") == kept
    assert months_in_run_cache(remote / "runs") == kept
    with Repo(".") as repo:
        assert not repo.status()

    clone = project.parent / "clone"
    git(project.parent, "clone", "-q", "project", "clone")
    for tag, month in (("data/2025-03", "2025-03"), ("release/1.0.0", "2025-02")):
        git(clone, "checkout", "-q", tag)
        with Repo(str(clone)) as repo:
            repo.pull()
        assert (clone / "data/a/month").read_text().strip() == month
    remote.rename(project.parent / "away")
    for tag, month in (("data/2025-03", "2025-03"), ("release/1.0.0", "2025-02")):
        assert read_month(project, tag) == month
    with pytest.raises(DataIndexDirError, match="failed to load directory"):
        read_month(project, swept)


def test_without_remote_only_what_is_here_is_swept(project, capsys):
    """A result for later months was not used since the oldest kept month was over, on 1 April."""
    remote = project.parent / "remote"
    before = files_below(remote)
    for name, seconds in (("before", -1), ("after", 1)):
        path = KEPT.file("vectors", name, Path.touch)
        os.utime(path, times=(1743465600 + seconds,) * 2)

    sweeping.sweep(months=1, yes=True)
    said = capsys.readouterr().out
    assert "results for later months: 1 results, 0.0 MB" in said
    assert "tags that stay, as the remote may have" in said
    assert not KEPT.path("vectors", "before").exists()
    assert KEPT.path("vectors", "after").exists()
    assert files_below(remote) == before
    cache = project / ".dvc/cache/files"
    assert len(files_below(cache)) == len(files_below(remote / "files")) - 4
    assert read_month(project, "data/2025-01") == "2025-01"


def test_a_clone_without_data_sweeps_the_remote_as_well(project, capsys):
    """Which files are in a folder is read from the remote. DVC's own gc would take it for unused."""
    home = project.parent
    git(home, "clone", "-q", "origin.git", "clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home / "clone")
        sweeping.sweep(months=1, remote=True, yes=True)
    shutil.rmtree(project / ".dvc/cache")
    git(project, "checkout", "-q", "release/1.0.0", "--", "dvc.lock", "params.yaml")
    with Repo(".") as repo:
        repo.pull(force=True)
    assert Path("data/a/month").read_text().strip() == "2025-02"
    assert len(files_below(home / "remote/files")) == 5, "of 2025-02 and 2025-03"


def test_the_needs_of_others_must_be_known(project):
    """A commit at git's remote that is not here, and projects with the same cache."""
    origin = project.parent / "origin.git"
    git(project.parent, "clone", "-q", "origin.git", "other")
    other = project.parent / "other"
    git(other, "commit", "-qm", "of another", "--allow-empty")
    git(other, "push", "-q", "origin", "HEAD:theirs")
    with pytest.raises(LongtailError, match="refs/heads/theirs of origin is not here; git fetch"):
        sweeping.sweep(remote=True)
    git(project, "fetch", "-q")
    theirs = git(origin, "rev-parse", "theirs")
    assert theirs in sweep.choose_commits(project, 12, ["origin"]).kept

    with Repo(".") as repo, repo.config.edit("local") as config:
        config["cache"]["dir"] = str(project.parent / "shared")
    with pytest.raises(LongtailError, match="other projects may share this cache"):
        sweeping.sweep()


def test_no_sweep_while_dvc_is_at_work(project):
    user = {"pid": os.getpid(), "cmd": "dvc repro"}
    rwlock = Path(".dvc/tmp/rwlock")
    rwlock.write_text(json.dumps({"write": {"data/a": user}, "read": {}}))
    with pytest.raises(LongtailError, match="DVC is at work in this folder"):
        sweeping.sweep()
