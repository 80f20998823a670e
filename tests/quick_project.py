"""A DVC project whose stages are quick, a -> (b1, b2) -> c, and commands in it: in this
process, or in their own.
"""

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
from typing import NamedTuple
from unittest import mock
from uuid import uuid4

import pytest
import yaml
from profile_values import values_of
from waiting import PATIENCE, until

from pipelines import QUIET
from pipelines.work.run_log import FLOW, Run

STAGES = """
stages:
  a:
    cmd: PYTHON -m work a
    deps: [work.py, input.txt]
    params: [seed]
    outs: [data/a]
    metrics: [data/metrics/a.json]
  b:
    matrix: {n: [1, 2]}
    cmd: PYTHON -m work b${item.n}
    meta: {workers: all}
    deps: [work.py, data/a]
    outs: ["data/b${item.n}"]
  c:
    cmd: python -m work c
    deps: [work.py, data/b1, data/b2]
    params: [{data/metrics/a.json: [rows]}]
    outs: [data/c]
"""

WORK = """
import os, signal, sys, time
from pathlib import Path

from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage
from pipelines.errors import LongtailError, Unreachable
name = sys.argv[1]
def work(params):
    text = Path("input.txt").read_text()
    with open("begun.txt", "a") as log:
        log.write(f"{name}\\n")
    if text.startswith(f"fail {name}"):
        raise LongtailError("input.txt: says fail, expected anything else; edit it")
    if text.startswith(f"away {name}") and not os.path.exists("back"):
        Path("back").touch()
        raise Unreachable("http://127.0.0.1: no connection; run again to go on")
    if text.startswith(f"crash {name}"):
        raise ZeroDivisionError("a bug")
    if text.startswith(f"sleep {name}"):
        Path("asleep").write_text(str(os.getpid()))
        time.sleep(600)
    if f"bar {name}" in text:
        from tqdm import tqdm
        with tqdm(total=8, desc=name, unit="row", mininterval=0) as bar:
            bar.update(2)
            while not os.path.exists("on"):
                time.sleep(0.05)
            bar.update(6)
    if f"kill {name}" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    with atomic(f"data/{name}") as temporary:
        temporary.write_text(text if name == "a" else name)
    if name == "a":
        write_json("data/metrics/a.json", {"rows": 3})
    return {"rows": 3.0, "loss": [3.0, 2.0, 1.0]}
from pipelines.params.param_types import Section
class Settings(Section):
    seed: int
stage.run(name, Settings, work, out=f"data/{name}")
"""
FEW_SERVICES = QUIET | {  # of a Prefect server; no test needs the others
    f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false"
    for name in [
        "LATE_RUNS",
        "FOREMAN",
        "PAUSE_EXPIRATIONS",
        "CANCELLATION_CLEANUP",
        "EVENT_PERSISTER",
        "TRIGGERS",
    ]
}
# the flow run that began last, in SQL
LAST = "(SELECT id FROM flow_run ORDER BY start_time DESC LIMIT 1)"


class Prefect(NamedTuple):
    """A Prefect server that is up, and the folder of its database."""

    url: str
    home: Path

    def ask(self, query: str) -> list[tuple]:
        with closing(sqlite3.connect(self.home / "prefect.db")) as database:
            return database.execute(query).fetchall()


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def started(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen:
    """The command in a process of its own."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # a shell has what it runs in the background ignore Ctrl-C, these tests included
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def dvc_init(folder: Path, *, scm: bool = False) -> None:
    from dvc.repo import Repo

    Repo.init(str(folder), no_scm=not scm).close()


def reproduce(folder: Path, **options) -> None:
    """`dvc repro` in this process."""
    from dvc.repo import Repo

    with chdir(folder), Repo(".") as repo:
        repo.reproduce(**options)


def make(folder: Path, root: Path) -> Path:
    """Make a folder the quick project, in a git repository, with nothing run yet."""

    (folder / "conf").mkdir()
    (folder / "conf/config.yaml").touch()
    shutil.copy(root / "conf/alerts.yaml", folder / "conf")
    params = values_of("sample")
    (folder / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    (folder / "dvc.yaml").write_text(STAGES.replace("PYTHON", sys.executable))
    (folder / "work.py").write_text(WORK)
    (folder / "input.txt").write_text("one")
    (folder / ".gitignore").write_text(".longtail\nmlflow.db\nmlruns\nbegun.txt\n__pycache__\n")
    git(folder, "init", "-q")
    dvc_init(folder, scm=True)
    (folder / ".dvc/config").write_text("[core]\n    site_cache_dir = .longtail/dvc\n")
    (folder / "data").mkdir()
    (folder / "data/.gitignore").write_text("*\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a project")
    return folder


class Untracked(Run):
    """A run without MLflow, which takes seconds to load."""

    def __init__(self, *_) -> None:
        self._client = None


class Project:
    """The project's folder, and commands in it.

    With a `prefect`, no run starts a server of its own.
    """

    def __init__(self, folder: Path, root: Path, prefect: Prefect | None = None):
        self.folder, self.root, self.prefect = folder, root, prefect
        self.environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_", "DVC_"))
        }
        self.environment |= QUIET | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "2"}
        self.environment |= {"PREFECT_TASKS_DEFAULT_RETRY_DELAY_SECONDS": "0"}
        elsewhere = [
            folder for folder in os.get_exec_path() if folder != str(Path(sys.executable).parent)
        ]
        # not activated: stage c's python is found all the same
        self.environment["PATH"] = os.pathsep.join(elsewhere)
        if prefect:
            self.environment["PREFECT_API_URL"] = prefect.url

    def start(self, *words: str) -> subprocess.Popen:
        return started([sys.executable, "-m", "flows.cli", *words], self.folder, self.environment)

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

    def longtail(self, *words: str, tracked: bool = False) -> subprocess.CompletedProcess:
        """The command in this process. Only a run that is `tracked` is logged to MLflow."""
        from flows import cli, terminal

        with self._said(words) as done, self.here(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["longtail", *words])
            patch.setattr(terminal, "CALLED_FROM", self.folder)
            if not tracked:
                patch.setattr("pipelines.work.run_log.Run", Untracked)
            if words[0] == "run" and self.prefect:
                _prefect_says_on_standard_error(patch)
            try:
                cli.main()
            except SystemExit as end:
                done.returncode = end.code or 0
        return done

    def dvc(self, *words: str) -> subprocess.CompletedProcess:
        """`dvc WORDS` in this process.

        Stages take it for a flow's, so that none logs itself to MLflow.
        """
        from dvc.cli import main

        with self._said(words) as done, self.here(), mock.patch.dict(os.environ, {FLOW: "none"}):
            done.returncode = main([*words])
        return done

    @contextmanager
    def here(self) -> Iterator[None]:
        """This process works in the folder, with the project's environment and Prefect server."""
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            chdir(self.folder),
            ExitStack() as stack,
        ):
            if self.prefect:
                from prefect.settings import temporary_settings

                settings = {
                    "api.url": self.prefect.url,
                    "home": self.prefect.home,
                    "results.persist_by_default": False,
                }
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

        # MLflow keeps connections to a path for as long as a process lives, so each call reads
        # another file
        copy = shutil.copy(self.folder / "mlflow.db", self.folder.parent / f"{uuid4()}.db")
        client = MlflowClient(f"sqlite:///{copy}")
        experiment = client.get_experiment_by_name("longtail").experiment_id
        runs = client.search_runs([experiment], order_by=["attributes.start_time"])
        parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
        children = {
            parent.info.run_id: {
                run.info.run_name: run
                for run in runs
                if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id
            }
            for parent in parents
        }
        return client, parents, children


def _prefect_says_on_standard_error(patch: pytest.MonkeyPatch) -> None:
    """Prefect's handlers write to what is standard error now, and a task is tried again at once."""
    from prefect.logging.configuration import setup_logging
    from prefect.logging.handlers import PrefectConsoleHandler
    from rich.console import Console

    from flows import dvc_tasks

    setup_logging()
    loggers = [logging.getLogger(name) for name in ("", *logging.root.manager.loggerDict)]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    for handler in handlers:
        if isinstance(handler, PrefectConsoleHandler):
            patch.setattr(
                handler, "console", Console(file=sys.stderr, markup=False, highlight=False)
            )
    for task in (dvc_tasks.reproduce_stage, dvc_tasks.push_outputs):
        patch.setattr(task, "retry_delay_seconds", 0)
