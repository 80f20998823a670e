"""Under plain `dvc repro`, without a flow, MLflow gets the same runs; and it never stands in the way of the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from waiting import until

from pipelines import QUIET, tracking

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
def project(root, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tracked")
    (folder / "params.yaml").write_bytes((root / "params.yaml").read_bytes())
    (folder / "stage.py").write_text(STAGE)
    one = {"cmd": f"{sys.executable} stage.py one", "deps": ["stage.py"], "outs": ["one"]}
    two = {"cmd": f"{sys.executable} stage.py two", "deps": ["stage.py", "one"], "outs": ["two"]}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"one": one, "two": two}}))
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], cwd=folder, check=True)
    return folder


def repro(project: Path, root: Path, **extra: str) -> subprocess.CompletedProcess:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "DVC_"))}
    environment |= QUIET | {"PYTHONPATH": str(root)} | extra
    command = [sys.executable, "-m", "dvc", "repro", "-f"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    records = project / tracking.RECORDS
    until(lambda: extra or not any(records.glob("*.json")))  # the recorder ends a moment after dvc
    return done


@pytest.fixture(scope="module")
def logged(project, root):
    from mlflow import MlflowClient

    done = repro(project, root)
    assert done.returncode == 0, done.stderr
    client = MlflowClient(f"sqlite:///{project}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("longtail").experiment_id])
    return client, {run.info.run_name: run for run in runs}


def test_stages_of_one_dvc_process_share_a_parent(logged):
    _, runs = logged
    assert sorted(runs) == ["one", "pipeline", "two"]
    for name in ("one", "two"):
        assert runs[name].data.tags["mlflow.parentRunId"] == runs["pipeline"].info.run_id


def test_params_metrics_and_curves(logged):
    client, runs = logged
    assert runs["one"].data.params["seed"] == "0"
    assert runs["one"].data.params["index.kind"] == "auto"
    assert runs["one"].data.metrics == {"recall_10": 0.5, "loss": 1.0}
    history = client.get_metric_history(runs["one"].info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(0, 2.0), (1, 1.0)]


def test_hashes_are_those_of_dvc_lock(logged, project):
    _, runs = logged
    locked = yaml.safe_load((project / "dvc.lock").read_text())["stages"]["two"]
    tags = runs["two"].data.tags
    assert tags["dvc.output.two"] == locked["outs"][0]["md5"]
    assert tags["dvc.inputs.md5"] == tracking._hash_tags(locked)["dvc.inputs.md5"]


def test_an_unreachable_server_costs_no_work_and_loses_no_record(logged, project, root):
    done = repro(project, root, MLFLOW_TRACKING_URI="http://127.0.0.1:9", MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
    assert done.returncode == 0, done.stderr
    kept = [json.loads(path.read_text())["stage"] for path in sorted((project / tracking.RECORDS).glob("*.json"))]
    assert kept == ["one", "two"]


def test_what_was_kept_is_logged_by_the_next_run(logged, project, root):
    client, _ = logged
    assert repro(project, root).returncode == 0
    runs = client.search_runs([client.get_experiment_by_name("longtail").experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["one"] * 3 + ["pipeline"] * 3 + ["two"] * 3


def test_a_stage_that_fails_on_its_params_is_logged_and_a_refused_record_stands_in_nobodys_way(logged, project, root):
    client, _ = logged
    before = (project / "params.yaml").read_text()
    records = project / tracking.RECORDS
    refused = {"stage": "one", "run": "x", "tags": {}, "params": {"a!": 1, "a?": 2}, "metrics": {}, "error": "x"}
    (records / "0-one.json").write_text(json.dumps(refused | {"started": 0, "ended": 0, "by_flow": False}))
    (project / "params.yaml").write_text("seed: x\n")
    done = repro(project, root)
    (project / "params.yaml").write_text(before)
    assert done.returncode != 0
    runs = client.search_runs(
        [client.get_experiment_by_name("longtail").experiment_id], "tags.error LIKE 'params.yaml%'"
    )
    assert [run.info.status for run in runs] == ["FAILED"]
    assert [path.name for path in (project / tracking.REFUSED).iterdir()] == ["0-one.json"]
    (refused,) = client.search_runs(runs[0].info.experiment_id, "tags.error = 'x'")
    assert refused.info.status == "FAILED"
