"""dvc.yaml says of every stage what its code really uses."""

from __future__ import annotations

import shutil
import subprocess
import sys

import dag
import pytest
from ruamel.yaml import YAML

STAGES = dag.stages()
FIX = "`python tests/dag.py` writes it"


@pytest.fixture(params=STAGES, ids=str)
def stage(request) -> dict:
    return STAGES[request.param]


def test_code_dependencies_are_what_the_module_reaches(stage):
    files, _ = dag.closure(dag.module_of(stage["cmd"]))
    listed = [dep for dep in stage["deps"] if dep.startswith("pipelines/")]
    assert sorted(listed) == sorted(files), FIX


def test_params_are_those_of_the_module_that_can_change_its_result(stage):
    assert set(stage["params"]) == dag.followed(stage), FIX


def test_stages_that_compute_say_how_many_workers_they_take(stage):
    assert (stage.get("meta", {}).get("workers") in ("one", "all")) == dag.computes(dag.module_of(stage["cmd"])), FIX


def test_closure_follows_imports_in_functions_and_files_beside(tmp_path):
    room = tmp_path / "pipelines/room"
    room.mkdir(parents=True)
    for name in ("pipelines/draws.py", "pipelines/stage.py", "pipelines/room/far.py"):
        (tmp_path / name).write_text("")
    (room / "table.yaml").write_text("")
    (room / "near.py").write_text(
        'from pipelines import draws, stage\nPATH = __file__ + "table.yaml"\nX = "table.yaml"\n'
    )
    (room / "start.py").write_text("def f():\n    from pipelines.room.near import X\n    import torch.nn\n")
    files, libraries = dag.closure(dag.Path("pipelines/room/start.py"), tmp_path)
    assert files == [
        "pipelines/room/start.py",
        "pipelines/draws.py",
        "pipelines/room/near.py",
        "pipelines/room/table.yaml",
    ]
    assert "torch" in libraries


def test_no_stage_reads_what_a_later_room_writes_by_hand():
    """Every data dependency is another stage's output, so that DVC's graph is the whole graph."""
    from flows import graph

    stages, _ = graph.read(dag.ROOT)
    sources = [stage.name for stage in stages if not stage.needs]
    assert sources == ["fetch"]


def test_each_language_model_has_its_stages_and_the_first_is_the_main_one(tmp_path, monkeypatch):
    """Of several `lms`, each is made and scored by itself; what answers and tunes waits for the first alone."""
    from flows import graph

    values = YAML(typ="safe").load(dag.ROOT / "params.yaml")
    (main,) = values["lms"]
    values["lm"]["second"], values["lms"] = values["lm"][main], [main, "second"]
    YAML().dump(values, tmp_path / "params.yaml")
    shutil.copy(dag.ROOT / "dvc.yaml", tmp_path)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    stages = {stage.name: stage for stage in graph.read(tmp_path)[0]}
    for name in values["lms"]:
        made = {one for one in stages[f"score_lm@pile-{name}"].needs if one.startswith("base_lm")}
        assert made == {f"base_lm@{name}"}
    assert {f"score_lm@{corpus}-{name}" for corpus in ("pile", "wikitext") for name in values["lms"]} == {
        one for one in stages["evaluate_lm"].needs if one.startswith("score_lm")
    }
    for reader in ("train_lsr", "evaluate_tasks"):
        assert {one for one in stages[reader].needs if one.startswith("base_lm")} == {f"base_lm@{main}"}
    for name in values["lms"]:
        own = {one for one in stages[f"answer@popqa-{name}-dense"].needs if one.startswith("base_lm")}
        assert own == {f"base_lm@{name}"}


def test_every_stage_is_described():
    assert [name for name, stage in STAGES.items() if not stage.get("desc")] == []
