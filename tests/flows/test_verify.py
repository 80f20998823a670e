"""A changed byte is found where DVC sees the same size and time."""

import os
import shutil
import textwrap
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo
from quick_project import dvc_init, reproduce

from flows import dvc_repo, graph
from pipelines.errors import LongtailError

STAGES = """
stages:
  make:
    cmd: mkdir -p data/folder/deep && cd data && echo one > folder/a && echo two > folder/deep/b && echo three > file
    outs: [data/folder, data/file]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "dvc.yaml").write_text(STAGES)
    dvc_init(folder)
    reproduce(folder)
    return folder


@pytest.fixture
def project(made, tmp_path):
    return shutil.copytree(made, tmp_path / "project", symlinks=True)


def flip(path: Path) -> None:
    """Change a byte of a file, and neither its size nor its time."""
    before = path.stat()
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_flipped_byte_is_named_that_dvc_does_not_see(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    for name in ("data/file", "data/folder/a", "data/folder/deep/b"):
        with Repo(".") as repo:
            assert repo.status() == {}, "DVC has looked at all files"
        assert dvc_repo.differing_outputs(project, 2, {"make"}) == (3, [])
        assert capsys.readouterr().err == "", "a bar is for what takes long"
        flip(project / name)
        with Repo(".") as repo:
            assert repo.status() == {}
        assert dvc_repo.differing_outputs(project, 2, {"make"}) == (3, [f"{name}: changed"])
        flip(project / name)


def test_what_is_missing_or_too_many_is_named(project):
    (project / "data/folder/a").unlink()
    (project / "data/folder/c").touch()
    (project / "data/file").unlink()
    lines = ["data/file: missing", "data/folder/a: missing", "data/folder/c: not in dvc.lock"]
    assert dvc_repo.differing_outputs(project, 1, {"make"})[1] == lines
    shutil.rmtree(project / ".dvc/cache")
    assert dvc_repo.differing_outputs(project, 1, {"make"})[1] == [
        lines[0],
        "data/folder: changed; .dvc/cache does not say which file",
    ]
    (project / "dvc.lock").unlink()
    with pytest.raises(
        LongtailError, match=r"dvc\.lock: no such file, expected the hashes of a run"
    ):
        dvc_repo.differing_outputs(project, 1, {"make"})


def test_stages_that_dvc_yaml_has_no_more_do_not_count(project, monkeypatch):
    """A new version of Longtail may have fewer stages than the dvc.lock of a run before it."""
    monkeypatch.chdir(project)
    lock = (project / "dvc.lock").read_text()
    stages = yaml.safe_load(lock)["stages"]
    stages["make"]["outs"][0]["md5"] = "0" * 32
    entry = yaml.safe_dump(stages["make"])
    for name in ("gone", "make@pile", "gone@pile"):
        lock += textwrap.indent(f"{name}:\n{textwrap.indent(entry, '  ')}", "  ")
    (project / "dvc.lock").write_text(lock)
    told = []
    graph.read_with_cache(project, told.append)
    assert "left in data/ (files: 0) and dvc.lock (stages: 3); " in told[0]
    assert list(dvc_repo.stages_of_lock(project)) == ["make"]
    graph.read_with_cache(project, told.append)
    assert len(told) == 1
