"""Each stage that did its work is a run in MLflow, which never stands in the way of work."""

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from quick_project import dvc_init, git

from pipelines import QUIET
from pipelines.params.param_types import Section
from pipelines.work import stage
from pipelines.work.run_log import FLOW, FOR, LANDED, RECORDS, Run, land_last
from pipelines.work.run_names import DIRTY, git_tags, name_run

UNREACHABLE = "http://127.0.0.1:9"
TIMED = re.compile(r"(.+) \d\d [A-Z][a-z]{2} \d\d:\d\d:\d\d UTC")  # a run's name with its time


class Seed(Section):
    seed: int


STAGE = """
import sys

from pipelines.storage.atomic import atomic
from pipelines.params.param_types import Section
from pipelines.params.params_models import Replug
from pipelines.work import stage
class Settings(Section):
    seed: int
    replug: Replug
def work(params):
    with atomic(sys.argv[1]) as temporary:
        temporary.write_text(sys.argv[1])
    return {"recall@10": 0.5, "loss": [2.0, 1.0], "nothing": None}
stage.run("x", Settings, work, out=sys.argv[1])
"""


@pytest.fixture(scope="module")
def finished(root, databases, tmp_path_factory) -> Path:
    """A project of two stages that `dvc repro` ran. Tests work on copies."""
    folder = shutil.copytree(databases, tmp_path_factory.mktemp("tracked") / "project")
    (folder / "params.yaml").write_bytes((root / "params.yaml").read_bytes())
    (folder / "stage.py").write_text(STAGE)
    one = {"cmd": f"{sys.executable} stage.py one", "deps": ["stage.py"], "outs": ["one"]}
    two = {"cmd": f"{sys.executable} stage.py two", "deps": ["stage.py", "one"], "outs": ["two"]}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"one": one, "two": two}}))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "DVC_"))}
    environment |= QUIET | {"PYTHONPATH": str(root)}
    dvc_init(folder, scm=False)
    subprocess.run(
        [sys.executable, "-m", "dvc", "repro", "-q"], cwd=folder, env=environment, check=True
    )
    return folder


@pytest.fixture
def project(finished, tmp_path, monkeypatch) -> Path:
    """A copy, as the working folder of this process, which is that of a stage."""
    folder = shutil.copytree(finished, tmp_path / "project")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv(FLOW, raising=False)
    monkeypatch.setenv("DVC_STAGE", "one")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return folder


def client_of(folder: Path):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{folder}/mlflow.db")


def runs(folder: Path, where: str = "") -> list:
    client = client_of(folder)
    return client.search_runs([client.get_experiment_by_name("longtail").experiment_id], where)


def record(**changed) -> dict:
    return {"params": {}, "metrics": {}, "started": 0.0, "ended": 1.0, "error": None} | changed


def test_stages_of_one_dvc_process_share_a_parent(finished):
    """They have params, metrics and curves."""
    logged = {run.info.run_name: run for run in runs(finished)}
    (name,) = logged.keys() - {"one", "two"}
    assert TIMED.fullmatch(name)[1] == "sample 2021-10", "no commit outside a repository"
    assert {run.info.status for run in logged.values()} == {"FINISHED"}
    one, two = logged["one"], logged["two"]
    assert {run.data.tags["mlflow.parentRunId"] for run in (one, two)} == {logged[name].info.run_id}
    assert (one.data.params["seed"], one.data.params["replug.mixture"]) == ("0", "token_mixture")
    assert one.data.metrics == {"recall_10": 0.5, "loss": 1.0}
    curve = client_of(finished).get_metric_history(one.info.run_id, "loss")
    assert [(m.step, m.value) for m in curve] == [(0, 2.0), (1, 1.0)]
    assert not (finished / RECORDS).exists()


def test_a_run_of_a_flow_has_the_hashes_of_dvc_lock(project):
    locked = yaml.safe_load(Path("dvc.lock").read_text())["stages"]["two"]
    run = Run("a flow", {"prefect.flow_run_id": "1"}, pytest.fail, "a run")
    run.log("two", record(), locked)
    run.end("FINISHED")
    (two,) = runs(project, "tags.`prefect.flow_run_id` = '1' AND tags.`dvc.stage` = 'two'")
    assert two.data.tags["dvc.output.two"] == locked["outs"][0]["md5"]
    assert len(two.data.tags["dvc.inputs.md5"]) == 32


def test_a_run_is_called_by_what_is_known(project):
    assert name_run("popqa", "2026-02") == "sample 2026-02 popqa"
    git(project, "init", "-q")
    git(project, "commit", "-qm", "empty", "--allow-empty")
    commit = git(project, "rev-parse", "HEAD")
    assert name_run() == f"sample 2021-10 {commit[:7]}"
    started = datetime.fromisoformat("2026-03-05T08:30:00+09:00")
    assert name_run(started=started) == f"sample 2021-10 {commit[:7]} 04 Mar 23:30:00 UTC"
    Path("params.yaml").write_text("profile: mine\n")
    assert name_run() == f"mine {commit[:7]}"
    Path("params.yaml").unlink()
    shutil.rmtree(".git")
    assert name_run() == "run"


def test_only_files_that_a_run_does_not_write_are_uncommitted_changes(project):
    git(project, "init", "-q")
    Path("conf").mkdir()
    written = [Path("dvc.lock"), Path("params.yaml")]
    written += [Path("conf/accepted.yaml"), Path("conf/baseline.yaml")]
    for path in written:
        path.touch()
    git(project, "add", "--all")
    git(project, "commit", "-qm", "a project")
    for path in written:
        path.write_text("of a run")
    assert git_tags()[DIRTY] == "false"
    Path("stage.py").write_text("edited")
    assert git_tags()[DIRTY] == "true"


def test_a_server_that_is_away_is_told_of_once(project, monkeypatch, capsys):
    """It stops no stage."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", UNREACHABLE)
    stage.run("x", Seed, lambda params: {"recall": 0.25}, out="x")
    out, err = capsys.readouterr()
    assert out == "x: done, see x\n"
    assert err.startswith(f"warning: MLflow ({UNREACHABLE}): ")
    assert err.endswith("; the run goes on, and this is not logged\n")
    assert err.count("\n") == 1
    said: list[str] = []
    run = Run("a flow", {}, said.append, "a run")
    run.log("one", record(), {})
    run.sum_up({}, {"accuracy": 0.5}, None)
    assert run.end("FINISHED", {"one": {}}) == []
    assert len(said) == 1


def test_what_mlflow_refuses_is_said(project):
    """The next stage is logged."""
    said: list[str] = []
    run = Run("a flow", {}, said.append, "a run")
    run.log("one", record(params={"a!": 1, "a?": 2}, error="refused"), {})
    run.log("two", record(error="logged"), {})
    run.end("FAILED")
    assert len(said) == 1
    assert "a_" in said[0]
    assert [run.info.status for run in runs(project, "tags.error = 'refused'")] == ["FAILED"]
    assert [run.info.status for run in runs(project, "tags.error = 'logged'")] == ["FAILED"]


def test_a_stage_that_fails_on_its_params_is_logged(project):
    Path("params.yaml").write_text("seed: x\n")
    with pytest.raises(SystemExit):
        stage.run("x", Seed, lambda params: {}, out="x")
    assert [run.info.status for run in runs(project, "tags.error LIKE 'params.yaml%'")] == [
        "FAILED"
    ]


def changed(*statements: str) -> None:
    with closing(sqlite3.connect("mlflow.db")) as database, database:
        for statement in statements:
            database.execute(statement)


NEWER = "UPDATE alembic_version SET version_num = '0123456789ab'"
OLDER = "UPDATE alembic_version SET version_num = 'bda7b8c39065'"


@pytest.mark.parametrize("statements", [[NEWER], [NEWER, "DROP TABLE input_tags"], [OLDER]])
def test_another_versions_database_is_said_with_what_to_do(project, capsys, statements):
    """A stage by hand goes on."""
    changed(*statements)
    message = "written by another version of MLflow; install that, or `mlflow db upgrade` a copy"
    stage.run("x", Seed, lambda params: {}, out="x")
    out, err = capsys.readouterr()
    assert out == "x: done, see x\n"
    assert err.startswith("warning: MLflow (sqlite:///")
    assert message in err
    assert err.count("\n") == 1


def in_place_of_the_database(content: bytes | None) -> None:
    Path("mlflow.db").unlink()
    Path("mlflow.db").write_bytes(content) if content else Path("mlflow.db").mkdir()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no database" * 1000, "move that file away"),
        (
            b"SQLite format 3\0" + bytes(8000),
            "move that file away, and the next run begins another",
        ),
        (None, "move that file away"),
    ],
)
def test_a_file_that_is_no_database_is_said_first(project, content, message):
    in_place_of_the_database(content)
    Run("a flow", {}, (said := []).append, "a run")
    assert [message in line for line in said] == [True]
    assert "\n" not in said[0]


def test_a_server_that_never_answers_is_said_soon(project, monkeypatch):
    monkeypatch.setattr("pipelines.work.run_log.PATIENCE_SECONDS", 0.2)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        Run("a flow", {}, (said := []).append, "a run")
    assert ["timed out. (read timeout=0.2); move that file away" in line for line in said] == [True]


@pytest.mark.parametrize("name", ["a%41b", "100% #1", "it's ü & [x]"])
def test_runs_of_a_folder_of_any_name_are_in_place(databases, tmp_path, monkeypatch, name):
    (folder := tmp_path / name).mkdir()
    shutil.copy(databases / "mlflow.db", folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(folder)
    run = Run("a flow", {}, pytest.fail, "a run")
    run.end("FINISHED")
    (parent,) = runs(folder)
    Path("made").touch()
    client_of(folder).log_artifact(parent.info.run_id, "made")
    assert list(Path("mlruns").rglob("made")), "MLflow reads %41 in an address as A"


def test_a_run_that_lands_has_its_headlines_and_report(project):
    (report := project / "report/figures").mkdir(parents=True)
    (report / "a.svg").touch()
    headlines = {"accuracy": 0.5, "adaptive_gain": 0.1, "never_accuracy": 0.4}
    run = Run("a flow", {}, pytest.fail, "a run")
    run.sum_up({"profile": "smoke"}, headlines, report.parent)
    run.land({"longtail.tags": "data/smoke/2026-10"})
    run.end("FINISHED")
    (parent,) = runs(project, f"tags.`{LANDED}` LIKE '2%'")
    assert parent.info.run_name == "a run"
    assert parent.data.params == {"profile": "smoke"}
    assert parent.data.tags["longtail.tags"] == "data/smoke/2026-10"
    assert parent.data.metrics == headlines
    files = client_of(project).list_artifacts(parent.info.run_id, "report/figures")
    assert [file.path for file in files] == ["report/figures/a.svg"]


def test_a_run_that_was_killed_when_it_had_landed_is_tagged_by_the_next(project):
    tags = {FOR: "data/smoke/2026-10"}
    for key in ("before", "killed"):
        run = Run(key, tags, pytest.fail, key)
        run.log("two", record(), {})
    for _ in range(2):
        land_last(tags[FOR], {"longtail.tags": tags[FOR]}, pytest.fail)
    (landed,) = runs(project, f"tags.`{LANDED}` LIKE '2%'")
    assert (landed.info.run_name, landed.info.status) == ("killed", "FINISHED")
    assert landed.data.tags["longtail.tags"] == tags[FOR]
