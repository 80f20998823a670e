"""An earlier run's report comes back from DVC's cache, by a commit or a run that landed here."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from quick_project import dvc_init, git, reproduce

from flows import earlier
from pipelines.errors import LongtailError

MADE = "mkdir -p data/report data/questions && cp in data/report/index.html && cp in data/questions/q.parquet"
DVC_YAML = {
    "stages": {"report": {"cmd": MADE, "deps": ["in"], "outs": ["data/report", "data/questions"]}}
}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, list[str]]:
    """A project that ran and landed with three inputs, each committed: (its folder, the commits)."""
    folder, commits = tmp_path_factory.mktemp("built"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        git(folder, "init", "-q")
        Path("dvc.yaml").write_text(yaml.safe_dump(DVC_YAML))
        dvc_init(folder, scm=True)
        for text in ("first", "second", "third"):
            Path("in").write_text(text)
            reproduce(folder)
            earlier.keep_lock("sample")
            git(folder, "add", "in", "dvc.yaml", "dvc.lock")
            git(folder, "commit", "-q", "-m", text)
            commits.append(git(folder, "rev-parse", "HEAD"))
    return folder, commits


@pytest.fixture
def project(built, tmp_path, monkeypatch) -> list[str]:
    """A copy of it, as the working folder; its commits."""
    monkeypatch.chdir(shutil.copytree(built[0], tmp_path / "project", symlinks=True))
    return built[1]


def restored(old: str, into: Path) -> tuple[str, str]:
    """What the run is called, and what its report says."""
    name = earlier.restore(old, "sample", into)
    assert (into / "questions/q.parquet").read_text() == (into / "report/index.html").read_text()
    return name, (into / "report/index.html").read_text()


def test_a_commit_and_a_landed_run_are_named(project, tmp_path):
    assert restored("HEAD~2", tmp_path / "commit") == (f"commit {project[0][:10]}", "first")
    assert restored("landed", tmp_path / "last") == ("sample-2", "second"), (
        "the last one that is another"
    )
    assert restored("sample-1", tmp_path / "first") == ("sample-1", "first")


def test_an_output_of_a_stage_that_dvc_yaml_no_longer_has_is_not_laid_into_anothers_folder(
    project, tmp_path
):
    lock = yaml.safe_load(Path("dvc.lock").read_text())
    (report,) = (out for out in lock["stages"]["report"]["outs"] if out["path"] == "data/report")
    (listed,) = Path(".dvc/cache/files/md5").glob(f"{report['md5'][:2]}/{report['md5'][2:]}")
    (page,) = json.loads(listed.read_text())
    outs = [{"path": "data/report/index.html", "md5": page["md5"]}]
    lock["stages"] = {"page": lock["stages"]["report"] | {"outs": outs}} | lock["stages"]
    (earlier.RUNS / "sample-9.lock").write_text(yaml.safe_dump(lock))
    assert restored("sample-9", tmp_path / "into") == ("sample-9", "third")


def test_a_run_that_changed_nothing_is_not_kept_and_the_oldest_are_forgotten(project, monkeypatch):
    for text, most, kept in (("", 9, (1, 2, 3)), ("stages: {}", 2, (3, 4))):
        monkeypatch.setattr(earlier, "KEPT", most)
        if text:
            Path("dvc.lock").write_text(text)
        earlier.keep_lock("sample")
        assert sorted(path.stem for path in earlier.RUNS.iterdir()) == [
            f"sample-{number}" for number in kept
        ]


def test_what_there_is_not_and_what_the_cache_lacks_is_one_line(project, tmp_path):
    def refused(old: str, said: str) -> None:
        with pytest.raises(LongtailError, match=said):
            earlier.restore(old, "sample", tmp_path / "into")

    for old in ("--output=x", "other-1", "../landed/sample-1"):
        refused(old, rf"^--compare {old}: no such.* \(sample-1, sample-2, sample-3\)")
    for number in (1, 2):
        (earlier.RUNS / f"sample-{number}.lock").unlink()
    refused("landed", r"^--compare landed: only this run has landed \(sample-3\)")
    shutil.copy(earlier.RUNS / "sample-3.lock", earlier.RUNS / "sample-4.lock")
    refused("landed", r"all landed runs have this report \(sample-3, sample-4\)")
    shutil.rmtree(".dvc/cache")
    refused("HEAD", r"data/report of commit \w{10}: not in DVC's cache")
