"""A project in a folder of its own, and commands in it: in this process, or in one of their own."""

from __future__ import annotations

import io
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock
from uuid import uuid4

import pytest
from waiting import PATIENCE, until

from pipelines import QUIET, tracking

LAST = "(SELECT id FROM flow_run ORDER BY start_time DESC LIMIT 1)"  # the flow run that began last, in SQL


class Prefect(NamedTuple):
    """A Prefect server that is up, and the folder of its database."""

    url: str
    home: Path

    def ask(self, query: str) -> list[tuple]:
        with closing(sqlite3.connect(self.home / "prefect.db")) as database:
            return database.execute(query).fetchall()


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def dvc_init(folder: Path, *, scm: bool = False) -> None:
    from dvc.repo import Repo

    Repo.init(str(folder), no_scm=not scm).close()


def reproduce(folder: Path, **options) -> None:
    """`dvc repro` in this process."""
    from dvc.repo import Repo

    with chdir(folder), Repo(".") as repo:
        repo.reproduce(**options)


class Project:
    """The project's folder, and commands in it. With a `prefect`, no run starts a server of its own."""

    def __init__(self, folder: Path, root: Path, prefect: Prefect | None = None):
        self.folder, self.root, self.prefect = folder, root, prefect
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_", "DVC_"))}
        self.environment |= QUIET | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "2"}
        self.environment |= {"PREFECT_TASKS_DEFAULT_RETRY_DELAY_SECONDS": "0"}
        if prefect:
            self.environment["PREFECT_API_URL"] = prefect.url
        self.told: str | None = None  # the state of the last run in this process, as MLflow's recorder is told it

    def start(self, *words: str) -> subprocess.Popen:
        """The command in a process of its own."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *words],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=pipe,
            stderr=pipe,
            # a shell has what it runs in the background ignore Ctrl-C, these tests included
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def start_asleep(self) -> subprocess.Popen:
        """A run whose stage a sleeps."""
        (self.folder / "input.txt").write_text("sleep a")
        child = self.start("run")
        until(lambda: (self.folder / "asleep").exists() or child.poll() is not None)
        assert child.poll() is None, child.communicate()
        return child

    def real(self, *words: str) -> subprocess.CompletedProcess:
        """The command in a process of its own, when it has ended."""
        child = self.start(*words)
        out, err = child.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(words, child.returncode, out, err)

    def longtail(self, *words: str) -> subprocess.CompletedProcess:
        """The command in this process. What a flow records for MLflow stays until `record`."""
        from flows import cli, terminal

        def say(state: bytes) -> None:
            self.told = state.decode()

        with self._said(words) as done, self.here(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["longtail", *words])
            patch.setattr(terminal, "CALLED_FROM", self.folder)
            patch.setattr(tracking, "start_recorder", lambda: SimpleNamespace(communicate=say))
            if words[0] == "run" and self.prefect:
                _prefect_says_on_standard_error(patch)
            try:
                cli.main()
            except SystemExit as end:
                done.returncode = end.code or 0
        return done

    def dvc(self, *words: str) -> subprocess.CompletedProcess:
        """`dvc WORDS` in this process. Stages take it for a flow's, so that none starts MLflow's recorder."""
        from dvc.cli import main

        context = {tracking.CONTEXT: '{"run": "by hand", "tags": {}}'}
        with self._said(words) as done, self.here(), mock.patch.dict(os.environ, context):
            done.returncode = main([*words])
        return done

    def record(self) -> None:
        """Have MLflow's recorder log what runs in this process have left."""
        with self.here():
            tracking.start_recorder().communicate(b"FINISHED")

    @contextmanager
    def here(self) -> Iterator[None]:
        """This process works in the folder, with the project's environment and Prefect server."""
        with mock.patch.dict(os.environ, self.environment, clear=True), chdir(self.folder), ExitStack() as stack:
            if self.prefect:
                from prefect.settings import temporary_settings

                settings = {"api.url": self.prefect.url, "home": self.prefect.home, "results.persist_by_default": False}
                stack.enter_context(temporary_settings(settings))
            yield

    @contextmanager
    def _said(self, words: tuple[str, ...]) -> Iterator[subprocess.CompletedProcess]:
        """What the block writes on standard output and standard error."""
        done = subprocess.CompletedProcess(words, 0)
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(err):
            yield done
        done.stdout, done.stderr = out.buffer.getvalue().decode(), err.buffer.getvalue().decode()

    def runs(self):
        """MLflow's client, the parent runs and, by parent, the children by name."""
        from mlflow import MlflowClient

        # MLflow keeps connections to a path for as long as a process lives, so each call reads another file
        copy = shutil.copy(self.folder / "mlflow.db", self.folder.parent / f"{uuid4()}.db")
        client = MlflowClient(f"sqlite:///{copy}")
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


def _prefect_says_on_standard_error(patch: pytest.MonkeyPatch) -> None:
    """Prefect's handlers write to what is standard error now, and a task is tried again at once."""
    from prefect.logging.configuration import setup_logging
    from prefect.logging.handlers import PrefectConsoleHandler
    from rich.console import Console

    from flows import reproduce

    setup_logging()
    loggers = [logging.getLogger(name) for name in ("", *logging.root.manager.loggerDict)]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    for handler in handlers:
        if isinstance(handler, PrefectConsoleHandler):
            patch.setattr(handler, "console", Console(file=sys.stderr, markup=False, highlight=False))
    for task in (reproduce.reproduce, reproduce.push_outputs):
        patch.setattr(task, "retry_delay_seconds", 0)
