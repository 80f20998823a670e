"""Files and folders outside of the project may change in place; each change is seen by DVC and by
the flow.
"""

import json
import os
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo
from profile_values import values_of

from flows import graph
from pipelines.params import params_file
from pipelines.sources import local_files
from pipelines.sources.local_files import Settings
from pipelines.storage import work_store
from pipelines.storage.work_store import content_hash

SOURCES = Path("data/local/sources/files.json")
LMS = Path("data/local/lm/files.json")
RETRIEVERS = Path("data/local/retriever/files.json")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A project whose params.yaml names files and a model in the folder `mine` beside it."""
    mine = tmp_path / "mine"
    (mine / "articles").mkdir(parents=True)
    (mine / "model").mkdir()
    (mine / "popQA.tsv").write_text("one\n")
    (mine / "articles/a.jsonl").write_text("a\n")
    (mine / "articles/b.jsonl").write_text("b\n")
    (mine / "model/weights").write_text("weights\n")
    (mine / "wikipedia.index").write_text("vectors\n")

    values = values_of("sample")
    files = {"popqa": ["popQA.tsv"], "wikipedia": ["articles/*"]}
    values["fetch"] |= {"source": "files", "root": str(mine), "files": files}
    values["lm"]["tiny"]["path"] = str(mine / "model")
    values["retriever"]["dense"]["vectors"] = {"wikipedia": str(mine / "wikipedia.index")}

    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    Path("params.yaml").write_text(yaml.safe_dump(values))
    return mine


def hashes() -> dict[str, str]:
    """What the stage writes now, sources and models together."""
    local_files.write_hashes(params_file.load_settings(Settings))
    hashes = {}
    for file in (SOURCES, LMS, RETRIEVERS):
        hashes |= json.loads(file.read_text())
    return hashes


def rewrite_at_the_same_time(file: Path, text: str) -> None:
    """Change bytes, but neither size nor time of modification."""
    before = file.stat()
    file.write_text(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def link_elsewhere(file: Path, text: str) -> None:
    target = file.with_name(f"{file.name}.target")
    target.write_text(text)
    file.unlink()
    file.symlink_to(target.name)


def replace(file: Path, text: str) -> None:
    """As an editor does that writes another file and renames it."""
    other = file.with_name("other")
    other.write_text(text)
    other.rename(file)


@pytest.mark.parametrize("change", [Path.write_text, rewrite_at_the_same_time, replace])
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("popQA.tsv", "popqa/popQA.tsv"),
        ("articles/b.jsonl", "wikipedia/b.jsonl"),
        ("model/weights", "model"),
        ("wikipedia.index", "wikipedia.index"),
    ],
)
def test_a_change_in_place_is_another_hash(folder, file, name, change):
    before = hashes()
    assert local_files.are_as_hashed()
    change(folder / file, (folder / file).read_text().title())
    assert not local_files.are_as_hashed()
    key = str(folder / name) if (folder / name).exists() else name
    after = hashes()
    assert {place for place in before if before[place] != after[place]} == {key}
    assert local_files.are_as_hashed()


def test_a_link_that_leads_elsewhere_is_another_hash(folder):
    link_elsewhere(folder / "articles/a.jsonl", "a\n")
    before = hashes()
    (folder / "articles/a.jsonl.target").write_text("other\n")
    assert hashes()["wikipedia/a.jsonl"] != before["wikipedia/a.jsonl"]


def test_another_file_of_a_glob_is_seen(folder):
    hashes()
    (folder / "articles/c.jsonl").write_text("c\n")
    assert not local_files.are_as_hashed()
    assert "wikipedia/c.jsonl" in hashes()
    (folder / "articles/a.jsonl").unlink()
    assert "wikipedia/a.jsonl" not in hashes()


def test_the_same_content_at_another_time_is_the_same(folder):
    before = hashes()
    for file in (folder / "popQA.tsv", folder / "model/weights"):
        os.utime(file, (1, 1))
    assert hashes() == before


def test_what_is_not_on_this_machine_keeps_its_hash(folder, capsys):
    """As in a clone that pulled the data of a run."""
    before = hashes()
    folder.rename(folder.with_name("elsewhere"))
    assert local_files.are_as_hashed()
    assert hashes() == before
    assert f"{folder} is not on this machine" in capsys.readouterr().out


def test_a_file_that_is_gone_is_left_to_the_stage(folder):
    hashes()
    (folder / "popQA.tsv").unlink()
    assert not local_files.are_as_hashed()


def test_a_large_file_is_hashed_again_when_it_changed(folder, monkeypatch):
    monkeypatch.setattr(work_store, "LARGE_BYTES", 1)
    monkeypatch.setattr(work_store, "SECONDS_AT_REST", -1.0)
    before = content_hash(folder / "popQA.tsv")

    def hash_nothing(files):
        raise AssertionError("it is read again")

    with monkeypatch.context() as unchanged:
        unchanged.setattr(work_store, "_hash_of_files", hash_nothing)
        assert content_hash(folder / "popQA.tsv") == before
    rewrite_at_the_same_time(folder / "popQA.tsv", "two\n")
    assert content_hash(folder / "popQA.tsv") != before


def test_dvc_and_the_flow_fetch_what_changed(folder, root):
    """Also what an earlier run had fetched, which DVC's run cache has."""
    stages = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    fetch = {**stages["fetch"], "cmd": f"cp -r {folder} data/raw"}
    hash_files = {**stages["local_files"], "cmd": "true"}
    Path("dvc.yaml").write_text(
        yaml.safe_dump({"stages": {"local_files": hash_files, "fetch": fetch}})
    )
    Path("data/local/sources").mkdir(parents=True)
    Path("data/code.json").write_text('{"stage": {"fetch": "1", "local_files": "1"}}')
    repo = Repo.init(no_scm=True)

    def fetched() -> str:
        """The file in data/raw after `dvc repro`, whose stage local_files runs in this process."""
        hashes()
        repo.reproduce()
        assert graph.read_graph(Path.cwd())[1] == {}
        return Path("data/raw/popQA.tsv").read_text()

    with repo:
        assert fetched() == "one\n"
        for text in ("two\n", "one\n"):
            (folder / "popQA.tsv").write_text(text)
            assert list(graph.read_graph(Path.cwd())[1]) == ["local_files"]
            assert fetched() == text
