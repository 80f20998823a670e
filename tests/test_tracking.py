"""Under plain `dvc repro` MLflow gets the same runs, gives landed ones back, and never stands in the way of work."""

import fcntl
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import landed_runs
import numpy as np
import pytest
import yaml
from quick_project import dvc_init
from waiting import recorders_end

from flows import history
from pipelines import QUIET, landings, stage, tracking
from pipelines.errors import LongtailError
from pipelines.intervals import Interval

UNREACHABLE = "http://127.0.0.1:9"
FIGURES = landed_runs.figures() | {f"threshold/a/b/c/{n}": Interval(n, 0.0, math.inf) for n in range(400)}
STAGE = """
import sys
from pipelines import shards, stage
def work(params):
    with shards.atomic(sys.argv[1]) as temporary:
        temporary.write_text(sys.argv[1])
    return {"recall@10": 0.5, "loss": [2.0, 1.0], "nothing": None}
stage.run("x", ("seed", "index"), work, out=sys.argv[1])
"""


@pytest.fixture(scope="module")
def finished(root, databases, tmp_path_factory) -> Path:
    """A project of two stages that `dvc repro` ran, and whose recorder has ended. Tests work on copies."""
    folder = shutil.copytree(databases, tmp_path_factory.mktemp("tracked") / "project")
    (folder / "params.yaml").write_bytes((root / "params.yaml").read_bytes())
    (folder / "stage.py").write_text(STAGE)
    one = {"cmd": f"{sys.executable} stage.py one", "deps": ["stage.py"], "outs": ["one"]}
    two = {"cmd": f"{sys.executable} stage.py two", "deps": ["stage.py", "one"], "outs": ["two"]}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"one": one, "two": two}}))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "DVC_"))}
    environment |= QUIET | {"PYTHONPATH": str(root)}
    dvc_init(folder, scm=False)
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=folder, env=environment, check=True)
    recorders_end(folder)
    return folder


@pytest.fixture
def project(finished, tmp_path, monkeypatch) -> Path:
    """A copy, as the working folder of this process, which is that of a stage."""
    folder = shutil.copytree(finished, tmp_path / "project")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")  # it keeps open what a relative one is
    monkeypatch.delenv(tracking.CONTEXT, raising=False)
    monkeypatch.setenv("DVC_STAGE", "one")
    monkeypatch.setattr(tracking, "start_recorder", lambda watched: None)
    return folder


def client_of(folder: Path):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{folder}/mlflow.db")


def runs(folder: Path, where: str = "") -> list:
    client = client_of(folder)
    return client.search_runs([client.get_experiment_by_name("longtail").experiment_id], where)


@pytest.fixture
def record(monkeypatch):
    """Records in this process, as a recorder whose `dvc repro` has ended."""
    ended = subprocess.Popen([sys.executable, "-Sc", ""])
    ended.wait()
    monkeypatch.setattr(sys, "argv", ["tracking", str(ended.pid)])
    return tracking.main


def test_stages_of_one_dvc_process_share_a_parent_and_have_params_metrics_curves_and_the_hashes_of_dvc_lock(finished):
    logged = {run.info.run_name: run for run in runs(finished)}
    assert sorted(logged) == ["one", "pipeline", "two"]
    assert {run.info.status for run in logged.values()} == {"FINISHED"}
    one, two = logged["one"], logged["two"]
    assert {run.data.tags["mlflow.parentRunId"] for run in (one, two)} == {logged["pipeline"].info.run_id}
    assert (one.data.params["seed"], one.data.params["index.kind"]) == ("0", "auto")
    assert one.data.metrics == {"recall_10": 0.5, "loss": 1.0}
    curve = client_of(finished).get_metric_history(one.info.run_id, "loss")
    assert [(m.step, m.value) for m in curve] == [(0, 2.0), (1, 1.0)]
    locked = yaml.safe_load((finished / "dvc.lock").read_text())["stages"]["two"]
    assert two.data.tags["dvc.output.two"] == locked["outs"][0]["md5"]
    assert two.data.tags["dvc.inputs.md5"] == tracking._hash_tags(locked)["dvc.inputs.md5"]
    assert not any((finished / tracking.RECORDS).glob("*.json"))


def test_an_unreachable_server_loses_no_record_and_the_next_run_logs_it(project, record, monkeypatch, capsys):
    stage.run("x", ("seed",), lambda params: {"recall": 0.25}, out="x")
    (kept,) = tracking.RECORDS.glob("*.json")
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", UNREACHABLE)
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        record()
    said = capsys.readouterr().err
    assert said.startswith("warning: MLflow: ")
    assert said.endswith("what is in .longtail/tracking waits for the next run\n")
    with tracking.LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record()
    assert kept.exists()
    record()
    assert not kept.exists()
    assert sorted(run.info.run_name for run in runs(project)) == ["one", "one", "pipeline", "pipeline", "two"]
    (again,) = runs(project, "metrics.recall = 0.25")
    assert again.info.status == "FINISHED"


def test_a_stage_that_fails_on_its_params_is_logged_and_a_refused_record_stands_in_nobodys_way(project, record):
    refused = {"stage": "one", "run": "x", "tags": {}, "params": {"a!": 1, "a?": 2}, "metrics": {}, "error": "x"}
    (tracking.RECORDS / "0-one.json").write_text(json.dumps(refused | {"started": 0, "ended": 0, "by_flow": False}))
    Path("params.yaml").write_text("seed: x\n")
    with pytest.raises(SystemExit):
        stage.run("x", ("seed",), lambda params: {}, out="x")
    record()
    assert [run.info.status for run in runs(project, "tags.error LIKE 'params.yaml%'")] == ["FAILED"]
    assert [path.name for path in tracking.REFUSED.iterdir()] == ["0-one.json"]
    assert [run.info.status for run in runs(project, "tags.error = 'x'")] == ["FAILED"]


def test_landed_runs_come_back_with_their_figures_in_the_order_in_which_they_landed(project, record, monkeypatch):
    """Two runs that landed, the later one first; the project's own did not."""
    for name, month, figures in (("one", "2026-02", FIGURES), ("two", "2026-01", {})):
        params = landed_runs.landing(month, {}).params
        tracking.log_landing({"run": name, "tags": {}}, params, landings.flat(figures))
    record()
    monkeypatch.setattr(landings, "RUNS", 1)
    first, second = history.runs()
    assert (first.month, second.month, first.profile) == ("2026-02", "2026-01", "sample")
    assert first.landed <= second.landed
    assert second.figures == {}
    found, expected = ({name: vars(one) for name, one in of.items()} for of in (first.figures, FIGURES))
    np.testing.assert_equal(found, expected)  # some are infinite, or have no interval


def test_without_landed_runs_one_line_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    nothing = "no run that landed; `longtail run` records the next one"
    for address, said in ((None, nothing), (f"sqlite:///{tmp_path}/other.db", nothing), (UNREACHABLE, UNREACHABLE)):
        if address:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        with pytest.raises(LongtailError, match=said) as error:
            history.runs()
        assert "\n" not in str(error.value)
        assert address or os.listdir() == [], "to look makes no database"
