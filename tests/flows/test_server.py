"""With the locked versions a real server runs flows and its scheduler inserts runs (newer ones were
found to fail).
"""

import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import requests
from waiting import until

from flows import server
from pipelines.errors import LongtailError
from pipelines.storage import disks
from pipelines.work.run_log import EXPERIMENT

SERVING = """
import time
from pathlib import Path
from flows import server
with server.running(Path.cwd()) as url:
    print(url, flush=True)
    time.sleep(600)
"""
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy")
OF_ANOTHER_SERVER = {  # settings of one in a cluster, and of its clients
    "PREFECT_SERVER_API_AUTH_STRING": "admin:pass",
    "PREFECT_SERVER_API_BASE_PATH": "/prefect/api",
    "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    "PREFECT_SERVER_UI_SERVE_BASE": "/prefect",
    "PREFECT_MESSAGING_BROKER": "prefect_redis.messaging",
    "PREFECT_API_KEY": "pnu_1",
    "PREFECT_API_SSL_CERT_FILE": "/gone.pem",
    "PREFECT_PROFILE": "gone",
}
SCHEDULE = [{"schedule": {"interval": 3600}, "active": True}]


@pytest.fixture
def clean(tmp_path, monkeypatch):
    """No setting of Prefect's, and its home in the working folder."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")
    }
    environment["PREFECT_HOME"] = str(tmp_path / "home")
    # what a server sets is put back after the test
    with mock.patch.dict(os.environ, environment, clear=True):
        yield tmp_path / "home"


def test_a_server_inserts_scheduled_runs(clean, databases, root):
    """Others use it, and it ends with a killed process. Settings of another server are none of it."""
    shutil.copytree(databases / ".longtail/prefect", clean, dirs_exist_ok=True)
    environment = os.environ | OF_ANOTHER_SERVER
    environment |= {"PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1", "PYTHONPATH": str(root)}
    # a proxy that takes connections, and answers none
    never = socket.create_server(("127.0.0.1", 0))
    environment |= dict.fromkeys(PROXIES, f"http://127.0.0.1:{never.getsockname()[1]}") | {
        "NO_PROXY": "intranet"
    }
    process = subprocess.Popen(
        [sys.executable, "-c", SERVING],
        cwd=clean,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
    )
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        asked = requests.get(f"{url.removesuffix('/api')}/ui-settings")
        settings = asked.json()
        assert settings["api_url"] == url, "its pages would be empty"
        assert settings["default_ui"] == "v1", "the newer pages ask another host for settings"
        assert "default-src 'self'" in asked.headers["Content-Security-Policy"]
        with server.running(clean) as again:
            assert again == os.environ["PREFECT_API_URL"] == url, "a server that is up is used"

        # 503 while another writer has the database
        def post(path: str, body: dict) -> requests.Response:
            return until(
                lambda: (answer := requests.post(f"{url}/{path}", json=body)).ok and answer
            )

        flow = post("flows/", {"name": "trivial"}).json()["id"]
        post(
            "deployments/",
            {"name": "hourly", "flow_id": flow, "schedules": SCHEDULE, "paused": False},
        )
        until(lambda: post("flow_runs/filter", {"sort": "ID_DESC"}).json())
    finally:
        process.kill()
        process.communicate()
    until(lambda: not server._healthy(url))
    never.setblocking(False)
    with never, pytest.raises(BlockingIOError):
        never.accept()


def test_prefects_database_is_on_this_machine(clean, tmp_path, monkeypatch):
    """Prefect opens it in SQLite's WAL mode, for which a network file system won't do."""
    from prefect.settings import Settings

    def address() -> str:
        server.prepare(clean)
        return Settings().server.database.connection_url.get_secret_value()

    kind, local = "ext4", tmp_path / "local"
    mount = lambda all: [SimpleNamespace(mountpoint=str(tmp_path), fstype=kind)]  # noqa: E731
    monkeypatch.setattr(disks.psutil, "disk_partitions", mount)
    monkeypatch.setattr(disks, "LOCAL", local)
    assert address() == f"sqlite+aiosqlite:///{clean}/prefect.db"
    kind = "nfs4"
    database = Path(address().removeprefix("sqlite+aiosqlite:///"))
    assert database.is_relative_to(local / f"longtail-{os.geteuid()}")
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700
    del os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "sqlite+aiosqlite:////chosen.db")
    assert address() == "sqlite+aiosqlite:////chosen.db"


def test_a_server_that_can_not_start_is_one_line(clean, monkeypatch):
    monkeypatch.setattr(server.sys, "executable", shutil.which("false"))
    with (
        pytest.raises(LongtailError, match=r"did not start; see .*server\.log"),
        server.running(clean),
    ):
        pass


def test_a_database_that_does_not_answer_and_a_bad_setting_are_named(clean, monkeypatch):
    log = clean / "server.log"
    log.write_text("Traceback\nConnectionRefusedError: [Errno 111] Connect call failed\n")
    assert server._reason(log) == ": [Errno 111] Connect call failed"
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "postgresql+asyncpg://a@gone/b")
    assert server._reason(log).endswith("; correct or unset PREFECT_API_DATABASE_CONNECTION_URL")
    monkeypatch.setenv("PREFECT_TASKS_DEFAULT_RETRIES", "many")
    log.write_text("a.ValidationError: 1 validation error for TasksSettings\ndefault_retries\n  In")
    assert server._reason(log).endswith("Settings; correct or unset PREFECT_TASKS_DEFAULT_RETRIES")


@pytest.mark.slow  # what a new version of MLflow could break
def test_mlflow_serves_the_runs_of_the_folder_and_ends(clean, databases, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(databases / "mlflow.db", tmp_path)
    port = server.port_for(0)
    url = f"http://127.0.0.1:{port}"
    with server.mlflow_pages(clean, port) as address:
        assert address == f"{url}/#/experiments", "before the first run"
        name = {"experiment_name": EXPERIMENT}
        made = requests.post(
            f"{url}/api/2.0/mlflow/experiments/create", json={"name": EXPERIMENT}
        ).json()
        found = requests.get(f"{url}/api/2.0/mlflow/experiments/get-by-name", params=name).json()
        assert found["experiment"]["experiment_id"] == made["experiment_id"]
        assert "default-src 'self'" in requests.get(url).headers["Content-Security-Policy"]
        runs = f"{url}/#/experiments/{made['experiment_id']}/runs?workflowType=machine_learning"
        assert server._list_of_runs(url) == runs
        assert server.port_for(port) not in (port, 0), "a usual port that is taken"
    with pytest.raises(requests.ConnectionError):
        requests.get(url)
