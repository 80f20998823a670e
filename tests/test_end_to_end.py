"""The whole pipeline on the smallest world, as a user runs it, and what it leaves behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tour
import yaml
from waiting import PATIENCE


class Checkout:
    """A copy of this checkout, and commands in it."""

    def __init__(self, folder: Path):
        self.folder = folder
        dirty = ("PREFECT_", "MLFLOW_", "DVC_", "OMP_", "PYTHONPATH")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(dirty)}

    def __call__(self, module: str, *words: str) -> subprocess.CompletedProcess:
        command = [".venv/bin/python", "-m", module, *words]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def longtail(self, *words: str) -> subprocess.CompletedProcess:
        return self("flows.cli", *words)

    def hashes(self) -> dict:
        return yaml.load((self.folder / "dvc.lock").read_text(encoding="utf-8"), yaml.CSafeLoader)["stages"]


@pytest.fixture(scope="session")
def checkout(root, tmp_path_factory) -> Checkout:
    """A copy of the files that git tracks or would, with the tiny profile, after one `longtail run`."""
    folder = tmp_path_factory.mktemp("checkout") / "longtail"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in names:
        if name and name != "dvc.lock" and (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a checkout"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    made = Checkout(folder)
    done = made.longtail("run", "--profile", "tiny")
    assert done.returncode == 0, done.stderr[-500:]
    made.first = done
    return made


def test_the_last_line_says_where_the_report_is(checkout):
    last = checkout.first.stdout.splitlines()[-1]
    path = Path(last.removeprefix("the report: "))
    assert path == checkout.folder / "data/report/index.html"
    assert "<html" in path.read_text(encoding="utf-8")


def test_the_report_is_compared_with_that_of_a_run_that_landed(checkout):
    done = checkout.longtail("report", "--compare", "tiny-1")
    assert done.returncode == 0, done.stderr[-500:]
    moved, drawn, page = done.stdout.splitlines()
    assert moved.startswith("Both runs are identical: ")
    assert re.fullmatch(r"\d+ figures are as they were; 0 are drawn over each other", drawn)
    assert "The report of data/ against that of tiny-1" in Path(page).read_text(encoding="utf-8")


def test_every_stage_of_the_graph_ran(checkout):
    stages = checkout.hashes()
    assert f"{len(stages)} ran, 0 restored from the cache, 0 unchanged" in checkout.first.stdout
    assert {"fetch", "chunk@pile", "index_bm25@wikipedia", "answer_lsr@popqa-tiny-dense", "report"} <= set(stages)


def test_a_second_run_does_nothing(checkout):
    second = checkout.longtail("run")
    assert second.returncode == 0
    assert second.stdout.startswith("all ")
    assert len(second.stdout.splitlines()) == 1


def test_dvc_finds_everything_up_to_date(checkout):
    assert checkout("dvc", "status").stdout.strip() == "Data and pipelines are up to date."
    listed = checkout.longtail("status").stdout.splitlines()
    assert len(listed) == len(checkout.hashes()) + 1
    assert all(line.endswith("up to date") for line in listed[:-1])


def test_nothing_but_params_and_lock_differs_from_the_commit(checkout):
    status = subprocess.run(["git", "status", "--porcelain"], cwd=checkout.folder, capture_output=True, text=True)
    assert {line[3:] for line in status.stdout.splitlines()} <= {"params.yaml", "dvc.lock"}


def test_stages_that_are_forced_bring_the_same_bytes(checkout):
    before = checkout.hashes()
    forced = ("fetch", "questions@popqa", "chunk@wikipedia", "base_retriever@dense", "report")
    done = checkout("dvc", "repro", "--force", "--single-item", *forced)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Running stage") == len(forced)
    assert checkout.hashes() == before


def test_a_deleted_output_comes_back(checkout):
    before = checkout.hashes()
    shutil.rmtree(checkout.folder / "data/knowledge/triples")
    done = checkout.longtail("run")
    assert done.returncode == 0, done.stderr
    assert (checkout.folder / "data/knowledge/triples/triples.parquet").is_file()
    assert checkout.hashes() == before


def test_mlflow_holds_a_parent_with_the_stages_as_children(checkout):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{checkout.folder}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("longtail").experiment_id], max_results=1000)
    parents = [run for run in runs if "prefect.flow_run_id" in run.data.tags and run.info.run_name == "pipeline"]
    parent = min(parents, key=lambda run: run.info.start_time)  # later ones landed without a stage's work
    assert all("longtail.landed" in run.data.tags for run in parents)
    children = {r.info.run_name: r for r in runs if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id}
    stages = checkout.hashes()
    assert set(children) == set(stages)
    assert parent.info.status == "FINISHED"
    for name, child in children.items():
        assert child.data.params or name == "code", name
        assert child.data.metrics, name
        inputs = {"dvc.inputs.md5"} if stages[name].get("deps") else set()  # fetch reads nothing of ours
        assert {"mlflow.source.git.commit", "dvc.stage", "prefect.flow_run_id"} | inputs <= set(child.data.tags)


def test_prefect_holds_the_flow_run_with_a_task_a_stage_logs_and_metrics(checkout):
    with sqlite3.connect(checkout.folder / ".longtail/prefect/prefect.db") as database:
        (first,) = database.execute("SELECT id FROM flow_run ORDER BY start_time LIMIT 1").fetchone()
        tasks = database.execute("SELECT name, state_type FROM task_run WHERE flow_run_id = ?", [first]).fetchall()
        tasks_of_logs = "SELECT DISTINCT t.name FROM log l JOIN task_run t ON t.id = l.task_run_id"
        logs = f"{tasks_of_logs} WHERE message LIKE '%: done, see %'"
        logged = {name for (name,) in database.execute(logs)}
        artifacts = database.execute("SELECT count(DISTINCT key) FROM artifact").fetchone()[0]
    assert sorted(tasks) == sorted((name, "COMPLETED") for name in checkout.hashes())
    assert logged == set(checkout.hashes())
    measured = ("data/metrics/", "data/analyses.json")
    metrics = [s for s in checkout.hashes().values() if any(o["path"].startswith(measured) for o in s["outs"])]
    assert artifacts == len(metrics)


def test_search_finds_documents(checkout):
    done = checkout.longtail("search", "capital of the country", "-k", "3", "--retriever", "bm25")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^ +\d +\d+\.\d{4}  ", done.stdout, re.MULTILINE)) == 3


def test_ask_answers_and_says_why(checkout):
    questions = pq.read_table(checkout.folder / "data/questions/popqa/popqa.parquet").to_pylist()
    done = checkout.longtail("ask", questions[0]["question"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("relation: ")
    assert "popularity: " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("answer: ")
    unknown = checkout.longtail("ask", "How are you?")
    assert unknown.returncode == 0, unknown.stderr
    assert unknown.stdout.startswith(
        "popularity: no relation is recognised in the question: plain retrieval\npassage: "
    )


def test_the_described_columns_are_those_of_the_files(checkout):
    """data/README.md: a heading with paths of files that are alike, then a table whose first column names the columns.

    In every folder that a path with <name> stands for there is such a file, and each file is described once.
    """
    text = (checkout.folder / "data/README.md").read_text(encoding="utf-8")
    data, described = checkout.folder / "data", []
    for heading, body in re.findall(r"^#{2,4} (`\S+\.parquet`.*?)\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL):
        cells = re.findall(r"^\| (`[^|]+`) \|", body, re.MULTILINE)
        columns = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
        for path in re.findall(r"`(\S+\.parquet)`", heading):
            pattern = Path(re.sub("<[^>]+>", "*", path))
            files = list(data.glob(str(pattern)))
            assert files, path
            assert {file.parent for file in files} == {f for f in data.glob(str(pattern.parent)) if f.is_dir()}, path
            for file in files:
                assert pq.read_schema(file).names == columns, file
            described += files
    assert sorted(described) == sorted(data.glob("**/*.parquet"))


def test_the_tour_of_the_docs_reads_what_a_run_and_its_release_left(checkout, tmp_path):
    done = checkout.longtail("release", "--out", str(tmp_path / "release"))
    assert done.returncode == 0, done.stderr
    made = tour.run(tmp_path, checkout.folder / "data")
    assert len(made["bits"]) > 2
    assert made["bits"] == pytest.approx([figure for _, figure in made["of_run"]])


def test_a_bad_param_is_named_before_any_work(checkout):
    path = checkout.folder / "params.yaml"
    params = path.read_text()
    path.write_text(params.replace("top_k: ", "top_k: -", 1))
    done = checkout.longtail("run")
    path.write_text(params)
    assert done.returncode == 1
    assert re.fullmatch(r"error: params\.yaml: \w+\.top_k is -\d+: input should be greater than 0\n", done.stderr)


@pytest.fixture
def restored(checkout, tmp_path):
    """Puts Wikipedia's dump and corpus back after a test that spoils them."""
    data = checkout.folder / "data"
    for name in ("raw/wikipedia", "corpus/wikipedia"):
        shutil.copytree(data / name, tmp_path / name)
    yield checkout
    for name in ("raw/wikipedia", "corpus/wikipedia"):
        shutil.rmtree(data / name, ignore_errors=True)
        shutil.copytree(tmp_path / name, data / name)
    assert checkout("dvc", "status").stdout.strip() == "Data and pipelines are up to date."


def spoil(folder: Path, kind: str) -> None:
    (dump,) = folder.glob("*.xml.bz2")
    dump.unlink() if kind == "missing" else None
    if kind == "cut":
        data = dump.read_bytes()
        dump.write_bytes(data[: len(data) // 2])
    elif kind == "html":
        dump.write_bytes(b"<!DOCTYPE html><html><body>503 Service Unavailable</body></html>")
    elif kind == "empty":
        dump.write_bytes(b"")


@pytest.mark.parametrize("kind", ["cut", "html", "empty", "missing"])
def test_a_spoilt_dump_is_named_and_nothing_half_written(restored, kind):
    spoil(restored.folder / "data/raw/wikipedia", kind)
    shutil.rmtree(restored.folder / "data/corpus/wikipedia")
    done = restored("pipelines.corpus.chunk", "wikipedia")
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "data/raw/wikipedia" in line
    assert "Traceback" not in done.stderr
    assert not (restored.folder / "data/corpus/wikipedia").exists()
    assert list((restored.folder / ".longtail/tmp").iterdir()) == []


SCHEDULED = """
name: longtail
pull:
  - prefect.deployments.steps.set_working_directory: {directory: "{{ $PWD }}"}
deployments:
  - name: often
    description: What prefect.yaml does every month, but for the month
    entrypoint: flows.runs.refresh
    parameters: {anew: true, release: true, push: true}
    work_pool: {name: longtail}
    schedules:
      - interval: 5
"""


def commit(checkout: Checkout) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["add", "-A"], ["commit", "-qm", "what was run"]):
        subprocess.run([*git, *words], cwd=checkout.folder, check=True)


@pytest.fixture(scope="module")
def scheduled(checkout) -> dict:
    """`longtail schedule` with a short interval, until a run has landed and then one failed.

    Its messages by state, and the release's files after each of the two.
    """
    (checkout.folder / "prefect.yaml").write_text(SCHEDULED)
    commit(checkout)
    checkout.environment |= {
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
    }
    command = [".venv/bin/python", "-m", "flows.cli", "schedule", "--port", str(free_port())]
    process = subprocess.Popen(
        command,
        cwd=checkout.folder,
        env=checkout.environment,
        # a shell has what it runs in the background ignore Ctrl-C, these tests included
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        ended = until(checkout, process, "COMPLETED", since={})
        landed = files(checkout.folder / "release")
        params = checkout.folder / "params.yaml"
        text = params.read_text(encoding="utf-8")
        params.write_text(text.replace("source: world", "source: files", 1), encoding="utf-8")
        ended = until(checkout, process, "FAILED", since=ended)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
    params.write_text(text, encoding="utf-8")
    checkout("dvc", "checkout", "--force", "-q")
    return ended | {"landed": landed, "after": files(checkout.folder / "release")}


def until(checkout: Checkout, process: subprocess.Popen, state: str, since: dict) -> dict[str, list[str]]:
    """Wait for one more scheduled run to end so."""
    deadline = time.monotonic() + 900  # some 40 s on two idle cores
    while time.monotonic() < deadline:
        with sqlite3.connect(checkout.folder / ".longtail/prefect/prefect.db") as database:
            rows = database.execute(
                "SELECT r.state_type, s.message FROM flow_run r JOIN flow_run_state s ON s.id = r.state_id"
                " WHERE r.deployment_id IS NOT NULL ORDER BY r.start_time"
            ).fetchall()
        ended = {kind: [message for other, message in rows if other == kind] for kind in ("COMPLETED", "FAILED")}
        if len(ended[state]) > len(since.get(state, [])):
            return ended
        assert process.poll() is None
        assert state == "FAILED" or not ended["FAILED"], ended
        time.sleep(0.5)
    pytest.fail((checkout.folder / ".longtail/prefect/worker.log").read_text()[-3000:])


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_scheduled_run_lands_a_release_and_pushes_without_hands(checkout, scheduled):
    said = scheduled["COMPLETED"][0]
    assert re.search(r"^1 ran, 0 restored from the cache, \d+ unchanged; release: the release: release/\d", said), said
    assert re.search(r"pushed: \d+ files pushed", said)
    assert any(name.endswith("popqa.parquet") for name in scheduled["landed"])


def test_a_run_that_fails_leaves_the_last_release_as_it_was(checkout, scheduled):
    assert re.match(
        r"fetch: params\.yaml: fetch\..*\(all it said: \.longtail/logs/fetch\.log\)$", scheduled["FAILED"][0]
    )
    assert scheduled["after"] == scheduled["landed"] != {}


def test_a_fresh_clone_pulls_what_was_pushed_and_has_nothing_to_do(checkout, scheduled):
    folder = checkout.folder.parent / "clone"
    subprocess.run(["git", "clone", "-q", str(checkout.folder), str(folder)], check=True)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    clone = Checkout(folder)
    done = clone("dvc", "pull")
    assert done.returncode == 0, done.stderr
    assert clone("dvc", "status").stdout.strip() == "Data and pipelines are up to date."
    assert "Running stage" not in clone("dvc", "repro").stdout
    assert clone.hashes() == checkout.hashes()
