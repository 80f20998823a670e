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
    outs: [data/questions/popqa, data/adaptive, data/models/lsr/dense, data/metrics, data/raw]
"""
NAMES = ["questions/popqa", "adaptive", "models/lsr/dense", "metrics", "raw"]
MONTH = "2021-10"  # of the profile sample


@pytest.fixture(scope="module")
def built(root, tmp_path_factory) -> Path:
    """A project in git whose one stage has made the datasets; another run left a table."""
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
        shutil.copytree("made/questions/entityquestions", "data/questions/entityquestions")
        land(folder, MONTH)
    return folder


def land(folder: Path, month: str) -> None:
    """Commit everything as a month that lands."""
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", f"Data of {month}")
    git(folder, "tag", f"data/sample/{month}")


def change(folder: Path, views: int) -> None:
    """Change the views of a question, and have the stage make all again."""
    releases.write_data(folder / "made", releases.questions(views=releases.VIEWS | {2: views}))
    reproduce(folder)


def provenance(version: str) -> dict:
    return json.loads(Path(f"release/sample/{version}/provenance.json").read_text(encoding="utf-8"))


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
    folder, said = flow_releases.write_release()
    assert said == "the release: release/sample/1.0.0, git's tag release/sample/1.0.0"
    for text in ("correct horse", f"in {project}.", f"in {Path.home()}/data"):
        assert any(re.search(pattern, text) for pattern in given["machine"].values())
    made_by = provenance("1.0.0")
    assert made_by["commit"] == git(project, "rev-parse", "HEAD")
    assert made_by["commit"] == git(project, "rev-parse", "release/sample/1.0.0^{}")
    assert made_by["landed"] == f"data/sample/{MONTH}"
    assert made_by["params"]["profile"] == "sample"
    outputs = made_by["dvc"]["build_popqa"]
    assert sorted(outputs) == sorted(f"data/{name}" for name in NAMES)
    assert all(re.fullmatch(r"\w{32}\.dir", md5) for md5 in outputs.values())
    croissant = json.loads((folder / "croissant.json").read_text(encoding="utf-8"))
    assert croissant["datePublished"] == made_by["date"] == "2021-10-31", "the day of the data"
    assert "## 1.0.0 (2021-10-31)" in (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    tables = [table.name for table in contents.present(folder)]
    assert tables == ["popqa", "thresholds"], "what another run left is in no release"

    Path("notes.txt").touch()
    land(project, "2021-11")
    said = (Path("release/sample/1.0.0"), "nothing changed since the release 1.0.0: no new one")
    assert flow_releases.write_release() == said


def test_what_is_not_committed_is_refused_by_name(project):
    profile = Path("conf/profile/mine.yaml")
    profile.parent.mkdir(parents=True)
    baseline = Path("conf/baseline.yaml")
    for path in (profile, baseline, Path("notes.txt")):  # params.yaml has what a profile brings
        path.touch()
    for name in ("dvc.lock", "params.yaml"):
        Path(name).write_text(Path(name).read_text() + "\n")
        with pytest.raises(LongtailError, match=rf"^{name}, conf.*: not as in git's last commit"):
            flow_releases.write_release()
        git(project, "checkout", name)
    for path in (baseline, Path("notes.txt")):
        with pytest.raises(LongtailError, match=rf"^{path}.*: not as in git's last commit; commit"):
            flow_releases.write_release()
        path.unlink()
    os.rename(".git", "git")
    with pytest.raises(LongtailError, match=r"^git status: fatal: not a git repository"):
        flow_releases.write_release()
    assert not Path("release").exists()


def test_the_command_takes_paths_from_where_it_is_called(project, tmp_path, monkeypatch, call):
    """It does not read what a run writes."""
    out = tmp_path / "out"
    monkeypatch.chdir("conf")
    assert call("release", "--out", out, "--version", "0.9.0")[:2] == (
        0,
        f"the release: {out / '0.9.0'}, git's tag release/sample/0.9.0\n",
    )
    monkeypatch.chdir(project)
    with workspace.LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, error = call("release")
    assert (code, error.startswith("error: another run is at work in this folder")) == (1, True)


def test_the_next_release_follows_on_the_last_one(project, tmp_path):
    flow_releases.write_release()
    releases.write_data(project / "made", releases.questions(views=releases.VIEWS | {2: 100}))
    with pytest.raises(
        LongtailError, match=r"^build_popqa: 1 of 1 stages are not up to date, expected none"
    ):
        flow_releases.write_release()
    reproduce(project)
    land(project, "2021-11")
    folder, said = flow_releases.write_release()
    assert said == "the release: release/sample/1.0.1, git's tag release/sample/1.0.1"
    git(project, "tag", "data/another")
    assert flow_releases.write_release() == (folder, "the release 1.0.1 is there already")
    git(project, "tag", "--delete", "data/another")
    assert provenance("1.0.1")["previous"] == "1.0.0"
    changelog = (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    text = git(project, "tag", "--list", "--format=%(contents)", "release/sample/1.0.1")
    assert text.startswith("## 1.0.1 (2021-10-31)\n\nSince 1.0.0, a patch change:")
    assert f"{text}\n" == changelog

    first = shutil.move(folder, tmp_path / "first")
    flow_releases.write_release()
    assert releases.files_of(folder) == releases.files_of(Path(first)), "the same when made again"


def test_a_run_that_has_not_landed_makes_no_version(project):
    """No tag says that it is a release, and the next one does not follow on it."""
    git(project, "tag", "--delete", f"data/sample/{MONTH}")
    folder, said = flow_releases.write_release()
    assert said == "the release: release/sample/1.0.0-not-gated, as git's commit has not landed"
    assert (folder.name, provenance(folder.name)["landed"]) == ("1.0.0-not-gated", None)
    assert git(project, "tag", "--list", "release/*") == ""
    with pytest.raises(LongtailError, match="not gated, expected a release of a run that has"):
        list(flow_releases.publish("hub:ada/popqa", folder))

    change(project, 100)
    git(project, "commit", "-qam", "stopped by the gate")
    with pytest.raises(LongtailError, match=r"1\.0\.0-not-gated: is there already with other"):
        flow_releases.write_release()
    git(project, "tag", "data/sample/2021-11")
    assert flow_releases.write_release().folder == Path("release/sample/1.0.0")
    assert provenance("1.0.0")["previous"] is None


def test_a_release_is_written_before_its_commit_has_its_tag(project, monkeypatch):
    """A run that is killed between the two goes on, with the same bytes."""
    tag = f"data/sample/{MONTH}"
    git(project, "tag", "--delete", tag)
    with monkeypatch.context() as patch:
        patch.setattr(data_branch, "tag_release", lambda *_: os.abort())
        patch.setattr(os, "abort", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            flow_releases.write_release(landing=tag)
    before = releases.files_of(Path("release"))
    assert provenance("1.0.0")["landed"] == tag
    flow_releases.write_release(landing=tag)
    git(project, "tag", tag)
    assert flow_releases.write_release().message == "the release 1.0.0 is there already"
    assert releases.files_of(Path("release")) == before


def test_the_order_of_releases_is_that_of_their_tags(project):
    """Folders without a tag, other tags, and those of other profiles are none."""
    flow_releases.write_release(version="1.9.0")
    git(project, "tag", "release/other/4.0.0")
    shutil.copytree("release/sample/1.9.0", "release/sample/3.0.0")
    change(project, 100)
    land(project, "2021-11")
    git(project, "tag", "release/sample/2.0.0-not-gated")
    git(project, "tag", "release/sample/next")
    assert flow_releases.write_release(version="1.10.0").folder.name == "1.10.0"
    assert provenance("1.10.0")["previous"] == "1.9.0"
    change(project, 101)
    land(project, "2021-12")
    assert flow_releases.write_release().folder.name == "1.10.1"
    change(project, 102)
    land(project, "2022-01")
    with pytest.raises(LongtailError, match=r"^1\.9\.0: too low a version .* expected 1\.10\.2"):
        flow_releases.write_release(version="1.9.0")


def test_a_release_is_written_again_when_the_tag_of_its_month_is_gone(project):
    """Its own tag says that it has landed. Its bytes are the same."""
    flow_releases.write_release()
    before = releases.files_of(Path("release"))
    shutil.rmtree("release")
    git(project, "tag", "--delete", f"data/sample/{MONTH}")
    assert flow_releases.write_release().folder == Path("release/sample/1.0.0")
    assert releases.files_of(Path("release")) == before


def test_a_new_clone_goes_on_with_the_versions(project, tmp_path, monkeypatch):
    """It has no release's folder: DVC has the last one's tables, and git the changelog."""
    from dvc.repo import Repo

    flow_releases.write_release()
    with Repo(".") as repo, repo.config.edit("repo") as config:
        config["core"]["remote"] = "store"
        config["remote"]["store"] = {"url": str(tmp_path / "store")}
    for month, views in (("2021-11", 100), ("2021-12", 101)):
        change(project, views)
        land(project, month)
        here = flow_releases.write_release().folder.resolve()
        with Repo(".") as repo:
            repo.push()
    git(project, "tag", "--delete", "release/sample/1.0.2")
    git(tmp_path, "clone", "-q", str(project), "clone")

    monkeypatch.chdir(tmp_path / "clone")
    shutil.copytree(project / "made", "made")
    with Repo(".") as repo:
        repo.pull()
    there = flow_releases.write_release().folder
    assert (here.name, there.name) == ("1.0.2", "1.0.2")
    assert releases.files_of(there) == releases.files_of(here)

    shutil.rmtree("release")
    git(Path.cwd(), "tag", "--delete", "release/sample/1.0.2")
    shutil.rmtree(tmp_path / "store")
    error = r"^release/sample/1\.0\.1: DVC can't get its tables \(.+\); copy the folder of release/sample/1\.0\.1 here"
    with pytest.raises(LongtailError, match=error):
        flow_releases.write_release()
    assert not Path("release").exists()
