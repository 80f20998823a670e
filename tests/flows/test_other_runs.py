"""A run's data are those of its graph: what other runs left is in DVC's cache alone, from which it
comes back.
"""

import shutil
from pathlib import Path

import pytest
import yaml
from quick_project import dvc_init, reproduce

from flows import graph
from pipelines.errors import LongtailError

STAGES = """
stages:
  questions:
    matrix: {set: '${question_sets}'}
    cmd: echo ${item.set} | tee -a began data/questions/${item.set}
    deps: [input]
    outs: ['data/questions/${item.set}']
  index:
    matrix: {retriever: '${retrievers}', corpus: '${corpora}'}
    cmd: folder=data/index/${item.retriever}/${item.corpus}; mkdir -p $folder && echo index | tee -a began $folder/vectors
    deps: [input]
    params: ['retriever.${item.retriever}']
    outs: ['data/index/${item.retriever}/${item.corpus}']
  report:
    cmd: ls -R data/questions data/index | tee -a began data/report
    deps: [data/questions, data/index]
    outs: [data/report]
"""
DENSE = {"dense": "sample/models/retriever"}
PROFILES = {
    "sample": {
        "question_sets": ["popqa", "nq"],
        "corpora": ["wikipedia", "pile"],
        "retrievers": ["dense"],
        "retriever": DENSE,
    },
    "without models": {
        "question_sets": ["popqa"],
        "corpora": [],
        "retrievers": [],
        "retriever": DENSE,
    },
    "own data and models": {
        "question_sets": ["riddles"],
        "corpora": ["wikipedia"],
        "retrievers": ["mine", "dense"],
        "retriever": {"mine": "models/mine", "dense": "models/dense"},
    },
}

State = dict[str, object]


@pytest.fixture(scope="module")
def ran_all(tmp_path_factory) -> tuple[Path, dict[str, State]]:
    """A project in which each profile ran, and what lay there after each."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "dvc.yaml").write_text(STAGES)
    (folder / "input").touch()
    for read_whole in ("questions", "index"):
        (folder / "data" / read_whole).mkdir(parents=True)
        (folder / "data" / read_whole / ".gitignore").touch()
    dvc_init(folder)
    return folder, {profile: run(folder, profile) for profile in PROFILES}


@pytest.fixture
def project(ran_all, tmp_path, monkeypatch) -> Path:
    """A copy of it, as the working folder, in which nothing began yet."""
    folder = shutil.copytree(ran_all[0], tmp_path / "project")
    monkeypatch.chdir(folder)
    Path("began").unlink()
    return folder


def run(folder: Path, profile: str) -> State:
    """Run a profile; returns what then lies there."""
    (folder / "params.yaml").write_text(yaml.safe_dump(PROFILES[profile]))
    graph.read_with_cache(folder, print)
    reproduce(folder)
    return state(folder)


def state(folder: Path) -> State:
    """The texts of the files below data/, and the entries of dvc.lock."""
    files = [file for file in (folder / "data").rglob("*") if file.is_file()]
    texts = {file.relative_to(folder).as_posix(): file.read_text() for file in files}
    return texts | yaml.safe_load((folder / "dvc.lock").read_text())["stages"]


def test_going_from_any_profile_to_any_other_runs_nothing(project, ran_all, capsys):
    sample, without_models, own = PROFILES
    _, states = ran_all
    assert "data/questions/nq" in states[sample]
    assert "data/index/mine/wikipedia/vectors" in states[own]
    for profile in (sample, own, without_models, sample, without_models, own):
        assert run(project, profile) == states[profile]
    assert not Path("began").exists()
    assert capsys.readouterr().out.startswith(
        "removed what other runs left in data/ (files: 2) and dvc.lock (stages: 2); DVC's cache "
        "keeps the files\n"
    )


def test_what_a_checkout_of_dvc_lock_forgets_is_known_by_dvc_yaml(project, ran_all):
    Path("dvc.lock").unlink()
    assert run(project, "sample") == ran_all[1]["sample"]
    assert not Path("began").exists()


def test_what_the_cache_lacks_is_named_and_stays(project, ran_all):
    file = Path("data/index/mine/wikipedia/vectors")
    file.write_text("edited")
    before = state(project)
    message = rf"^{file}: of another run, and not in DVC's cache; move it out of data/, or remove"
    with pytest.raises(LongtailError, match=message):
        run(project, "sample")
    assert state(project) == before
    file.unlink()
    assert run(project, "sample") == ran_all[1]["sample"]
