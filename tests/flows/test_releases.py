"""A release names what made it, and is refused where that is not what the project holds."""

import fcntl
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import releases
from quick_project import dvc_init, git, reproduce

from flows import data_branch, workspace
from flows import releases as flow_releases
from pipelines.errors import LongtailError
from pipelines.release import contents, versions

DVC_YAML = """
stages:
  build_popqa:
    cmd: {python} -c "import shutil; [shutil.copytree(f'made/{{n}}', f'data/{{n}}') for n in {names}]"
    deps: [made]
    params: [seed]
    outs: [data/questions, data/adaptive, data/raw]
"""
NAMES = ["questions", "adaptive", "raw"]


@pytest.fixture(scope="module")
def built(root, tmp_path_factory) -> Path:
    """A project in git whose one stage has made the datasets."""
    from flows import profiles

    folder = tmp_path_factory.mktemp("project")
    (folder / "conf").mkdir()
    (folder / "conf/config.yaml").touch()
    (folder / "params.yaml").write_text(profiles.compose("sample", root), encoding="utf-8")
    (folder / "dvc.yaml").write_text(DVC_YAML.format(python=sys.executable, names=NAMES))
    (folder / ".gitignore").write_text("/.longtail\n/release\n/data\n/made\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        releases.write_data(folder / "made")
        git(folder, "init", "-q")
        dvc_init(folder, scm=True)
        reproduce(folder)
        git(folder, "add", "--all")
        git(folder, "commit", "-qm", "a project")
    return folder


@pytest.fixture
def project(built, tmp_path, monkeypatch) -> Path:
    """A copy of it, as the working folder."""
    folder = shutil.copytree(built, tmp_path / "project", symlinks=True)
    monkeypatch.chdir(folder)
    return folder


def test_a_release_names_the_commit_the_params_and_dvcs_hashes(project, monkeypatch):
    """It is looked through for this machine's folders and secrets."""
    write, given = versions.write_release, {}
    monkeypatch.setattr(
        versions, "write_release", lambda *args, **more: given.update(more) or write(*args, **more)
    )
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "correct horse")
    said = flow_releases.write_release()
    assert said == "the release: release/1.0.0, git's tag release/1.0.0"
    for text in ("correct horse", f"in {project}.", f"in {Path.home()}/data"):
        assert any(re.search(pattern, text) for pattern in given["machine"].values())
    provenance = json.loads(Path("release/1.0.0/provenance.json").read_text(encoding="utf-8"))
    assert provenance["commit"] == git(project, "rev-parse", "HEAD")
    assert provenance["params"]["profile"] == "sample"
    outputs = provenance["dvc"]["build_popqa"]
    assert sorted(outputs) == ["data/adaptive", "data/questions", "data/raw"]
    assert all(re.fullmatch(r"\w{32}\.dir", md5) for md5 in outputs.values())
    croissant = json.loads(Path("release/1.0.0/croissant.json").read_text(encoding="utf-8"))
    assert croissant["datePublished"] == git(project, "show", "-s", "--format=%cs")
    assert (
        flow_releases.write_release()
        == "nothing changed since the last release in release: no new one"
    )


def test_what_is_not_committed_is_refused_by_name(project):
    profile = Path("conf/profile/mine.yaml")  # params.yaml has what it brings
    profile.parent.mkdir(parents=True)
    for path in (profile, Path("notes.txt")):
        path.touch()
    Path("dvc.yaml").write_text(Path("dvc.yaml").read_text() + "\n")
    with pytest.raises(LongtailError, match=r"^dvc\.yaml, notes\.txt: not as in git's last commit"):
        flow_releases.write_release()
    os.rename(".git", "git")
    with pytest.raises(LongtailError, match=r"^git status: fatal: not a git repository"):
        flow_releases.write_release()
    assert not Path("release").exists()


def test_the_command_takes_paths_from_where_it_is_called(project, tmp_path, monkeypatch, call):
    """It checks, and does not read what a run writes."""
    out = tmp_path / "out"
    monkeypatch.chdir("conf")
    assert call("release", "--out", out, "--version", "0.9.0")[:2] == (
        0,
        f"the release: {out / '0.9.0'}, git's tag release/0.9.0\n",
    )
    (out / "0.9.0/popqa.parquet").write_bytes(b"")
    monkeypatch.chdir(project / "conf")
    said = (
        f"error: {out / '0.9.0'}: not as it was released: popqa.parquet is changed; get it again\n"
    )
    assert call("release", "--check", os.path.relpath(out / "0.9.0", project / "conf")) == (
        1,
        "",
        said,
    )
    with workspace.LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, error = call("release")
    assert (code, error.startswith("error: another run is at work in this folder")) == (1, True)


def test_what_a_run_writes_need_not_be_committed(project, tmp_path):
    """The release names a commit that holds it."""
    flow_releases.write_release()
    changed = Path("params.yaml").read_text(encoding="utf-8").replace("seed: 0", "seed: 1")
    Path("params.yaml").write_text(changed, encoding="utf-8")
    releases.write_data(project / "made", releases.questions(views=releases.VIEWS | {2: 100}))
    with pytest.raises(
        LongtailError, match=r"^build_popqa: 1 of 1 stages are not up to date, expected none"
    ):
        flow_releases.write_release()
    reproduce(project)
    assert flow_releases.write_release().startswith("the release: release/1.0.1, ")
    provenance = json.loads(Path("release/1.0.1/provenance.json").read_text(encoding="utf-8"))
    assert (provenance["params"]["seed"], provenance["previous"]) == (1, "1.0.0")

    commit = provenance["commit"]
    for file in ("dvc.lock", "params.yaml"):
        assert git(project, "show", f"{commit}:{file}") == Path(file).read_text().strip()
    names = (f"{data_branch.REF}^", data_branch.REF, "release/1.0.1^{}")
    head = git(project, "rev-parse", "HEAD")
    assert git(project, "rev-parse", *names).split() == [head, commit, commit]

    git(project, "tag", "--delete", "release/1.0.1")
    assert flow_releases.write_release().startswith("nothing changed")
    assert git(project, "rev-parse", "release/1.0.1^{}") == commit, "its tag is made up for"
    first = shutil.move("release/1.0.1", tmp_path / "first")
    git(project, "update-ref", "-d", data_branch.REF)
    flow_releases.write_release()
    sums = Path("release/1.0.1", contents.SUMS).read_bytes()
    assert sums == Path(first, contents.SUMS).read_bytes(), "the same bytes when made again"
