"""Run prefect.yaml's schedules here: Prefect's server and a worker for one run at a time; both end with `serve`."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from flows import server, workspace
from pipelines.errors import LongtailError

POOL = "longtail"
LONGEST_STOP = 60  # seconds that a run may take to end in good order


def serve(home: Path, port: int) -> None:
    """Run what prefect.yaml schedules until interrupted, unless another process does; LongtailError where it fails."""
    server.prepare(home)
    with (home / "schedule.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                f"the schedules run already, see {(server.already_up(home) or '').removesuffix('/api')}"
            )
            return
        with server.start(home.resolve(), port) as url:
            os.environ["PREFECT_API_URL"] = url
            _deploy(home)
            print(f"Prefect: {url.removesuffix('/api')} (Ctrl-C ends it and what runs)")
            with _worker(home) as worker:
                print("waiting for their times", flush=True)
                worker.wait()
        raise LongtailError(f"the worker ended, see {home / 'worker.log'}")


def _deploy(home: Path) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    log, words = home / "deploy.log", ["prefect", "--no-prompt", "deploy", "--all"]
    if workspace.start_module(words, log, {**os.environ, "PWD": str(Path.cwd())}).wait():
        raise LongtailError(f"prefect.yaml: could not be deployed, see {log}")


@contextmanager
def _worker(home: Path) -> Iterator[subprocess.Popen]:
    """Yield the worker's process. At the end of the block it stops its run, then itself."""
    process = workspace.start_module(["flows.schedules"], home / "worker.log")
    try:
        yield process
    finally:
        workspace.close(process, patience=LONGEST_STOP + 10)


def main() -> None:
    """Work as Prefect's worker until standard input closes."""

    def stop_runs() -> None:
        # a run stops its own stages, and then tells Prefect that it was stopped
        workspace.stop(
            [run.pid for run in psutil.Process().children()], LONGEST_STOP, roots_only=True
        )

    workspace.end_with_standard_input(before=stop_runs)
    sys.argv[1:] = [
        "worker",
        "start",
        "--pool",
        POOL,
        "--type",
        "process",
        "--limit",
        "1",
        "--install-policy",
        "never",
    ]
    from prefect.cli import app

    app()


if __name__ == "__main__":
    main()
