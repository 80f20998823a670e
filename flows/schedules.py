"""Run prefect.yaml's schedules on this machine: Prefect's server, the deployments, and a worker for one run at a time.

Server and worker end with `serve`, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import psutil

from flows import server, workspace
from pipelines.errors import LongtailError

POOL = "longtail"
LONGEST_STOP = 60  # seconds that a run may take to end in good order


def serve(home: Path, port: int, make_up: bool) -> None:
    """Run what prefect.yaml schedules until interrupted. If another process does so already, say so and return.

    With `make_up`, each deployment that fell due while no process did this runs once, at once. Raises LongtailError
    where the server, the deployments or the worker fail.
    """
    server.prepare(home)
    with (home / "schedule.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"the schedules run already, see {(server.already_up(home) or '').removesuffix('/api')}")
            return
        with server.start(home.resolve(), port) as url:
            os.environ["PREFECT_API_URL"] = url
            _end_lost_runs()
            missed = _missed() if make_up else set()
            _deploy(home)
            print(f"Prefect: {url.removesuffix('/api')} (Ctrl-C ends it and what runs)")
            for line in _deployed():
                print(line)
            for name in _begin(missed):
                print(f"{name} fell due while nothing ran: it runs now, once")
            with _worker(home) as worker:
                print("waiting for their times", flush=True)
                worker.wait()
        raise LongtailError(f"the worker ended, see {home / 'worker.log'}")


def _end_lost_runs() -> None:
    """Mark runs as crashed that Prefect takes to be at work although their process was killed."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    if not workspace.is_free():  # a run is at work, and nothing here says which one it is
        return
    at_work = FlowRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING, StateType.CANCELLING])
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=at_work))):
            client.set_flow_run_state(run.id, Crashed(message="its process is gone"), force=True)


def _deploy(home: Path) -> None:
    """Create the work pool, and deploy prefect.yaml as it stands now."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    log = home / "deploy.log"
    with log.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, "PWD": str(Path.cwd())},
        )
    if done.returncode:
        raise LongtailError(f"prefect.yaml: could not be deployed, see {log}")


def _deployed() -> Iterator[str]:
    """Yield a line for each deployment: its name, when it runs, and what it does."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            active = [entry.schedule for entry in deployment.schedules if entry.active]
            when = ", ".join(getattr(times, "cron", None) or f"every {times.interval}" for times in active)
            yield f"  {deployment.name:10} {when or 'on demand':12} {deployment.description or ''}"


def _missed() -> set[UUID]:
    """The deployments with a scheduled run whose time passed before it began; Prefect drops these runs in `_deploy`."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType

    due = filters.FlowRunFilter(
        state=filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
        expected_start_time=filters.FlowRunFilterExpectedStartTime(before_=datetime.now(UTC)),
    )
    with get_client(sync_client=True) as client:

        def is_due(deployment: UUID) -> bool:
            # a deployment at a time, since an answer lists at most 200 runs
            id_ = filters.FlowRunFilterDeploymentId(any_=[deployment])
            runs = client.read_flow_runs(flow_run_filter=due.model_copy(update={"deployment_id": id_}))
            return any(run.auto_scheduled for run in runs)

        return {deployment.id for deployment in client.read_deployments() if is_due(deployment.id)}


def _begin(missed: set[UUID]) -> Iterator[str]:
    """Begin one run of each of these deployments that is still on a schedule; yields their names."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            if deployment.id in missed and any(entry.active for entry in deployment.schedules):
                client.create_flow_run_from_deployment(deployment.id)
                yield deployment.name


@contextmanager
def _worker(home: Path) -> Iterator[subprocess.Popen]:
    """Yield the worker's process. At the end of the block it stops its run, then itself."""
    with (home / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.schedules"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for this process; closing the pipe ends the worker
        )
    try:
        yield process
    finally:
        workspace.close(process, patience=LONGEST_STOP + 10)


def main() -> None:
    """Work as Prefect's worker until standard input closes."""

    def stop_runs() -> None:
        # a run stops its own stages, and then tells Prefect that it was stopped
        workspace.stop([run.pid for run in psutil.Process().children()], LONGEST_STOP, roots_only=True)

    workspace.end_with_standard_input(before=stop_runs)
    sys.argv[1:] = ["worker", "start", "--pool", POOL, "--type", "process", "--limit", "1", "--install-policy", "never"]
    from prefect.cli import app

    app()


if __name__ == "__main__":
    main()
