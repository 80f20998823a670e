"""Every stage starts and ends the same way: params checked first, one line on an error, exit code 1."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import yaml

from pipelines import outputs, stage
from pipelines.errors import LongtailError


@pytest.fixture(autouse=True)
def here(root, tmp_path, monkeypatch):
    shutil.copy(root / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_STAGE", raising=False)
    return tmp_path


def test_the_last_line_says_where_the_result_is(capsys):
    stage.run("chunk", ("seed",), lambda params: {"rows": 1.0}, out="data/corpus")
    assert capsys.readouterr().out.splitlines()[-1] == "chunk: done, see data/corpus"


def test_metrics_but_curves_are_written_where_a_file_is_named(here):
    stage.run("x", ("seed",), lambda params: {"rows": 2, "loss": [3.0, 1.0]}, out="x", metrics=here / "metrics/x.json")
    assert json.loads((here / "metrics/x.json").read_text(encoding="utf-8")) == {"rows": 2}


def test_a_users_error_is_one_line_and_exit_code_1(capsys):
    def work(params):
        raise LongtailError("data/raw/x.bz2: cut in the middle; fetch it again")

    with pytest.raises(SystemExit) as end:
        stage.run("chunk", ("seed",), work, out="data/corpus")
    assert end.value.code == 1
    assert capsys.readouterr().err == "error: chunk: data/raw/x.bz2: cut in the middle; fetch it again\n"


@pytest.mark.parametrize(("text", "names"), [("{}", True), ('{"a": 1}', False)])
def test_an_input_that_is_not_what_its_stage_left_is_named(here, capsys, monkeypatch, text, names):
    (here / "data/made").mkdir(parents=True)
    (here / "data/made/figures.json").write_text('{"a": 1}')
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pipelines.use", None))
    monkeypatch.setattr(sys, "argv", ["use.py", "pile"])
    lock = {
        "make": {
            "cmd": "python -m pipelines.make",
            "outs": [{"path": "data/made", "md5": outputs.md5(Path("data/made"))}],
        },
        "use@pile": {"cmd": "python -m pipelines.use pile", "deps": [{"path": "data/made/figures.json"}]},
    }
    (here / "dvc.lock").write_text(yaml.safe_dump({"stages": lock}))
    (here / "data/made/figures.json").write_text(text)

    def work(params):
        json.loads((here / "data/made/figures.json").read_text())["b"]

    with pytest.raises(SystemExit if names else KeyError):
        stage.run("use@pile", ("seed",), work, out="data/used")
    said = capsys.readouterr().err
    assert said.startswith("error: use@pile: data/made: not what its stage left (KeyError: 'b')") == names, said


def test_params_are_checked_before_any_work(here, capsys):
    text = (here / "params.yaml").read_text(encoding="utf-8")
    (here / "params.yaml").write_text(text.replace("seed: 0", "seed: x"), encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        stage.run("chunk", ("seed",), lambda params: pytest.fail("worked"), out="data/corpus")
    assert end.value.code == 1
    assert "params.yaml: seed is 'x'" in capsys.readouterr().err


THREADS = """
import os, sys
import numpy
from threadpoolctl import threadpool_info
from pipelines import stage
def work(params):
    blas = [one for one in threadpool_info() if one["user_api"] == "blas"]
    print(os.environ["OMP_NUM_THREADS"], *{one["num_threads"] for one in blas})
    return {}
stage.run("x", tuple(sys.argv[1:]), work, out="x")
"""


@pytest.mark.parametrize(("sections", "threads"), [(["seed", "compute"], "3 3"), (["seed"], "1 1")])
def test_the_number_of_threads_is_the_params_one_or_one(here, root, sections, threads):
    """NumPy's too, where a stage's module has imported it before."""
    text = (here / "params.yaml").read_text(encoding="utf-8")
    (here / "params.yaml").write_text(text.replace("threads: 1", "threads: 3"), encoding="utf-8")
    environment = os.environ | {"OMP_NUM_THREADS": "2", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", THREADS, *sections]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
    assert done.stdout.splitlines()[0] == threads


def test_a_stage_run_by_hand_leaves_no_record(here):
    stage.run("chunk", ("seed",), lambda params: {}, out="data/corpus")
    assert not (here / ".longtail/tracking").exists()
