"""The whole pipeline on the smallest world, as a user runs it, and what it leaves behind."""

import re
import signal
import sqlite3
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from finished_run import Checkout
from releases import files_of
from scheduled import Schedules
from waiting import PATIENCE

from pipelines.tables.every_table import TABLES, table_of
from pipelines.tables.questions import DIFFERENCE, QUESTIONS


def test_a_first_run_does_every_stage(finished):
    """It says where the report is, and changes params and lock alone."""
    stages = finished.hashes()
    assert f"{len(stages)} ran, 0 restored from the cache, 0 unchanged" in finished.first
    assert {"fetch", "chunk@pile", "index_bm25@wikipedia", "answer@popqa-tiny", "report"} <= set(
        stages
    )
    *_, never, always, adaptive, advice, path = finished.first.splitlines()
    expected = ["without", "always", "adaptive", "advice:"]
    assert [line.split()[0] for line in (never, always, adaptive, advice)] == expected
    report = Path(path.removeprefix("the report: "))
    assert report == finished.folder / "data/report/index.html"
    assert "<html" in report.read_text(encoding="utf-8")
    command = ["git", "status", "--porcelain"]
    status = subprocess.run(command, cwd=finished.folder, capture_output=True, text=True).stdout
    assert {line[3:] for line in status.splitlines()} <= {"params.yaml", "dvc.lock"}


def test_mlflow_holds_a_parent_with_the_stages_as_children(finished):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{finished.folder}/mlflow.db")
    runs = client.search_runs(
        [client.get_experiment_by_name("longtail").experiment_id], max_results=1000
    )
    (parent,) = (run for run in runs if "longtail.run" in run.data.tags)
    assert "longtail.landed" not in parent.data.tags, "no commit has its results"
    commit = parent.data.tags["mlflow.source.git.commit"][:7]
    assert parent.info.run_name.startswith(f"smoke 2021-10 {commit} ")
    assert "adaptive_accuracy" in parent.data.metrics
    reported = [file.path for file in client.list_artifacts(parent.info.run_id, "report")]
    assert "report/index.html" in reported
    assert parent.info.status == "FINISHED"
    children = {
        r.info.run_name: r
        for r in runs
        if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id
    }
    stages = finished.hashes()
    assert set(children) == set(stages)
    for name, child in children.items():
        assert child.data.params or name == "code", name
        assert child.data.metrics, name
        # fetch reads nothing of ours
        inputs = {"dvc.inputs.md5"} if stages[name].get("deps") else set()
        assert {"mlflow.source.git.commit", "dvc.stage", "prefect.flow_run_id"} | inputs <= set(
            child.data.tags
        )


def test_prefect_holds_the_flow_run_with_a_task_a_stage(finished):
    with sqlite3.connect(finished.folder / ".longtail/prefect/prefect.db") as database:
        tasks = database.execute("SELECT name, state_type FROM task_run").fetchall()
        tasks_of_logs = "SELECT DISTINCT t.name FROM log l JOIN task_run t ON t.id = l.task_run_id"
        logs = f"{tasks_of_logs} WHERE message LIKE '%: done, see %'"
        logged = {name for (name,) in database.execute(logs)}
        ((described,),) = database.execute("SELECT data FROM artifact")
    stages = finished.hashes()
    assert sorted(tasks) == sorted((name, "COMPLETED") for name in stages)
    assert logged == set(stages)
    assert f"{len(stages)} of {len(stages)} stages ran" in described
    assert "answered by tiny" in described


def test_the_declared_columns_are_those_of_the_files(finished):
    """Each file of a run is declared, and each declaration has a file."""
    data = finished.folder / "data"
    declared = set()
    for path in sorted(data.glob("**/*.parquet")):
        file = path.relative_to(data).as_posix()
        table = table_of(file)
        assert table, file
        table.check(pq.read_schema(path), file)
        declared.add(table.file)
    without_file = {table.file for table in TABLES} - declared
    given = "passages/retrieval/<dataset>/<method>.parquet"
    assert without_file == {QUESTIONS.file, DIFFERENCE.file, given}, "the run has other sets"


def test_a_second_run_does_nothing(copied):
    """A bad param is named before any work."""
    second = copied.longtail("run")
    assert second.returncode == 0, second.stderr
    assert second.stdout.startswith(f"all {len(copied.hashes())} stages are up to date\n")
    assert "\n  always retrieving " in second.stdout
    path = copied.folder / "params.yaml"
    path.write_text(path.read_text().replace("top_k: ", "top_k: -", 1))
    done = copied.longtail("run")
    assert done.returncode == 1
    assert re.fullmatch(
        r"error: params\.yaml: \w+\.top_k is -\d+: input should be greater than 0\n", done.stderr
    )


@pytest.mark.slow
def test_stages_that_are_forced_bring_the_same_bytes(copied):
    """All of them, with what the run before kept in .longtail."""
    lock = copied.folder / "dvc.lock"
    before = lock.read_bytes()
    done = copied("dvc", "repro", "--force")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Running stage") == len(copied.hashes())
    assert lock.read_bytes() == before


SCHEDULED = """
name: longtail
pull:
  - prefect.deployments.steps.set_working_directory: {directory: "{{ $PWD }}"}
deployments:
  - name: often
    description: What prefect.yaml does every month, but for the month
    entrypoint: flows.refresh.refresh
    parameters: {anew: true, release: true, push: true}
    work_pool: {name: longtail}
    schedules:
      - interval: 5
"""


@pytest.mark.slow
def test_a_scheduled_run_lands_a_release(copied, tmp_path):
    """It pushes, and a clone has nothing to do."""
    schedules = Schedules(copied, SCHEDULED)
    copied.commit()
    schedules.start()
    try:
        schedules.until(lambda: schedules.ended("COMPLETED"))
        (message, *_) = schedules.ended("COMPLETED")
        landed = files_of(copied.folder / "release")
        lock = copied.hashes()
        params = copied.folder / "params.yaml"
        text = params.read_text(encoding="utf-8")
        params.write_text(text.replace("c4/*.json.gz", "c4/*.gone", 1), encoding="utf-8")
        schedules.until(lambda: schedules.ended("FAILED"))
    finally:
        schedules.process.send_signal(signal.SIGINT)
        schedules.process.communicate(timeout=PATIENCE)
    assert re.search(
        r"^1 ran, 0 restored from the cache, \d+ unchanged; release: the release: release/smoke/\d",
        message,
    ), message
    assert re.search(r"pushed: \d+ files pushed", message)
    assert any(name.endswith("popqa.parquet") for name in landed)
    (failed, *_) = schedules.ended("FAILED")
    assert re.match(
        r"local_files: .*c4/\*\.gone.*\(all it said: \.longtail/logs/local_files\.log\)$", failed
    )
    assert files_of(copied.folder / "release") == landed
    params.write_text(text, encoding="utf-8")

    subprocess.run(["git", "clone", "-q", str(copied.folder), str(tmp_path / "clone")], check=True)
    clone = Checkout(tmp_path / "clone")
    done = clone("dvc", "pull")
    assert done.returncode == 0, done.stderr
    ran = re.findall("Running stage '(.+)'", clone("dvc", "repro").stdout)
    assert ran == ["local_files"], "it always looks whether the user's files have changed"
    assert clone.hashes() == lock
