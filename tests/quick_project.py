"""A project in a folder of its own, and the commands that tests run in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import PATIENCE, until

from pipelines import QUIET

SERVER = """
import sys
from flows import running, server
server.prepare(running.HOME)
with server.start(running.HOME) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


class Project:
    """The project's folder, and the longtail command in it."""

    def __init__(self, folder: Path, root: Path):
        self.folder, self.root = folder, root
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_", "DVC_"))}
        self.environment |= QUIET | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "2"}
        self.environment |= {"PREFECT_TASKS_DEFAULT_RETRY_DELAY_SECONDS": "0"}

    def start(self, *words: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "flows.cli", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=pipe,
            stderr=pipe,
            # a shell has what it runs in the background ignore Ctrl-C, these tests included
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def start_asleep(self) -> subprocess.Popen:
        """A run of the quick project whose stage a sleeps."""
        (self.folder / "asleep").unlink(missing_ok=True)
        (self.folder / "input.txt").write_text("sleep a")
        child = self.start("run")
        until(lambda: (self.folder / "asleep").exists() or child.poll() is not None)
        assert child.poll() is None
        return child

    @contextmanager
    def served(self) -> Iterator[None]:
        """Prefect's server is up in the folder, as beside `longtail ui`: no run starts one of its own."""
        command, pipe = [sys.executable, "-c", SERVER], subprocess.PIPE
        with subprocess.Popen(command, cwd=self.folder, env=self.environment, stdin=pipe, stdout=pipe) as server:
            assert server.stdout.readline().startswith(b"http")
            yield
            server.stdin.close()

    def longtail(self, *words: str) -> subprocess.CompletedProcess:
        child = self.start(*words)
        out, err = child.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(words, child.returncode, out, err)

    def dvc(self, *words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "dvc", *words]
        return subprocess.run(command, cwd=self.folder, env=self.environment, text=True, capture_output=True)

    def runs(self):
        """MLflow's parent runs and, by parent, the children by name."""
        from mlflow import MlflowClient

        client = MlflowClient(f"sqlite:///{self.folder}/mlflow.db")
        experiment = client.get_experiment_by_name("longtail").experiment_id
        runs = client.search_runs([experiment], order_by=["attributes.start_time"])
        parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
        children = {
            parent.info.run_id: {
                run.info.run_name: run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id
            }
            for parent in parents
        }
        return client, parents, children
