"""With the locked versions a real server runs flows and its scheduler inserts runs (newer ones were found to fail)."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest
import requests
from waiting import PATIENCE, until

from flows import server
from pipelines import tracking
from pipelines.errors import LongtailError

SCHEDULED = """
import sys, time
from datetime import timedelta
from prefect import flow, task, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateName
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.client.schemas.actions import DeploymentScheduleCreate

@task
def add(a, b):
    return a + b

@flow
def trivial():
    return add.submit(1, 2).result()

assert trivial() == 3
with get_client(sync_client=True) as client:
    schedule = DeploymentScheduleCreate(schedule=IntervalSchedule(interval=timedelta(hours=1)), active=True)
    client.create_deployment(client.create_flow(trivial), name="hourly", schedules=[schedule], paused=False)
    waiting = FlowRunFilter(state=FlowRunFilterState(name=FlowRunFilterStateName(any_=["Scheduled"])))
    while True:
        if runs := client.read_flow_runs(flow_run_filter=waiting):
            print(f"{len(runs)} runs inserted")
            sys.exit(0)
        time.sleep(0.2)
"""


@pytest.fixture
def clean(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("PREFECT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))  # so that it is put back after the test
    monkeypatch.setenv("PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS", "1")
    return tmp_path / "home"


def test_a_flow_runs_a_schedule_inserts_runs_and_the_server_ends(clean):
    with server.running(clean) as url:
        assert url.startswith("http://127.0.0.1:")
        assert requests.get(f"{url.removesuffix('/api')}/ui-settings").json()["api_url"] == url, (
            "its pages would be empty"
        )
        (process,) = [
            child
            for child in psutil.Process().children()
            if child.status() != psutil.STATUS_ZOMBIE and "flows.server" in child.cmdline()
        ]
        done = subprocess.run([sys.executable, "-c", SCHEDULED], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        page = server.last_run(url)
        shown = requests.get(f"{url}/flow_runs/{page.rpartition('/')[2]}").json()
        assert page.startswith(f"{url.removesuffix('/api')}/runs/flow-run/")
        assert shown["state_name"] == "Completed", "one that ran, not one that waits for its time"
        with server.running(clean) as again:
            assert again == url, "a server that is up is used"
    assert not process.is_running()
    assert "PREFECT_API_URL" not in os.environ


def test_the_server_of_a_killed_process_ends_by_itself(clean):
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom flows import server\n"
        f"with server.running(Path({str(clean)!r})) as url:\n"
        "    print(url, flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    url = killed.stdout.strip()
    assert url, killed.stderr
    until(lambda: not server._healthy(url))


def test_a_server_that_can_not_start_is_one_line(clean, monkeypatch):
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", "sqlite+aiosqlite:////nowhere/at/all.db")
    with pytest.raises(LongtailError, match=r"did not start, see .*server\.log"), server.running(clean):
        pass


def test_mlflow_serves_the_runs_of_the_folder_and_ends(clean, tmp_path, monkeypatch):
    import mlflow

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    clean.mkdir()
    client = mlflow.MlflowClient(tracking_uri=tracking.STORE)
    client.create_experiment("shown")
    of_runs = client.create_experiment(tracking.EXPERIMENT)
    port = server._free_port()
    with server.mlflow_pages(clean, port) as url:
        asked = f"{url}/api/2.0/mlflow/experiments/get-by-name?experiment_name=shown"
        until(lambda: server._healthy(url))
        assert requests.get(asked).json()["experiment"]["name"] == "shown"
        assert server.experiment(url) == f"{url}/#/experiments/{of_runs}/runs?{server.TRAINING}"
        assert server.port_for(None, port) not in (port, 0), "a usual port that is taken"
        assert server.port_for(port, 1) == port, "one that was asked for is not changed"
        with pytest.raises(LongtailError, match=f"port {port} is taken"), server.mlflow_pages(clean, port):
            pass
    with pytest.raises(requests.ConnectionError):
        requests.get(asked)
