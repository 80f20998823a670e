"""Run prefect.yaml's schedules here, by Prefect's server and a worker for one run at a time.

Both end with `serve`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from flows import data_branch, server, workspace
from flows.parts import Part
from pipelines import redaction
from pipelines.errors import LongtailError

POOL = "longtail"
WORKER = "flows.schedules"  # modules, as they stand in the command lines of processes
RUN = "prefect.engine"
RUN_STOP_SECONDS = 60  # that a run may take to end in good order
WORKER_STOP_SECONDS = RUN_STOP_SECONDS + 10
INTERRUPTED = "the machine or `longtail schedule` ended during this run; the next run goes on"


def serve(home: Path, port: int) -> None:
    """Run what prefect.yaml schedules until interrupted, unless another process does.

    Raises LongtailError where it fails.
    """
    server.prepare(home)
    with (home / "schedule.lock").open("a") as lock:
        if not workspace.try_lock(lock):
            page = (server.already_up(home) or "").removesuffix("/api")
            print(f"the schedules run already, see {page}")
            return

        print("starting Prefect's server and a worker, which may take a minute")
        _end_earlier_worker()
        with server.start(home.resolve(), port) as url:
            os.environ["PREFECT_API_URL"] = url
            _deploy(home)
            print(f"Prefect: {url.removesuffix('/api')} (Ctrl-C ends it and what runs)")
            with workspace.alone(waiting=print):
                _report_interrupted_runs()
            with _worker(home) as worker:
                print("waiting for their times")
                worker.wait()
        raise LongtailError(f"the worker ended, see {home / 'worker.log'}")


def _end_earlier_worker() -> None:
    """End what a killed schedule left at work: its runs would tell the new server why they ended.

    They would do so after `_report_interrupted_runs`, as a second cause.
    """
    here = str(Path.cwd())
    remaining = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = process.info["cmdline"] or []
        if process.info["cwd"] == here and {WORKER, RUN}.intersection(words):
            remaining.append(process.pid)
    workspace.stop(remaining)


def _deploy(home: Path) -> None:
    """Tell Prefect's server of the deployments of prefect.yaml."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    log = home / "deploy.log"
    environment = {**os.environ, "PWD": str(Path.cwd())}
    words = ["prefect", "--no-prompt", "deploy", "--all"]
    if workspace.start_module(words, log, environment).wait():
        raise LongtailError(f"prefect.yaml: could not be deployed, see {log}")


def _report_interrupted_runs() -> None:
    """Tell Prefect how runs and parts of runs ended which could not say so themselves.

    None is at work, as this process holds the checkout. A run whose month has landed completed, so
    that it is no alert; the others crashed.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import Completed, Crashed, State

    states = {"any_": ["PENDING", "RUNNING", "CANCELLING"]}
    at_work = FlowRunFilter.model_validate({"state": {"type": states}})
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=at_work):
            state: State = Crashed(message=INTERRUPTED)
            month = _landed_month(run.parameters, run.tags)
            if month:
                state = Completed(message=f"{month} has landed; {INTERRUPTED}")
            client.set_flow_run_state(run.id, state, force=True)


def _landed_month(parameters: Mapping[str, Any], tags: Sequence[str]) -> str | None:
    """The month of a flow run with these parameters and tags, if the run landed it.

    A run for the next month that has not landed is the only one of which git's tags tell.
    """
    named = dict(tag.split(": ") for tag in tags if tag.count(": ") == 1)  # by landing.tags
    month = named.get("month")
    if parameters.get("month") != "next" or not month:
        return None
    part = Part(parameters.get("part", Part.refresh))
    remote = parameters.get("git_remote")
    with suppress(LongtailError):  # git's remote does not answer
        if month in data_branch.landed_months(named.get("profile", ""), part, remote):
            return month
    return None


@contextmanager
def _worker(home: Path) -> Iterator[subprocess.Popen]:
    """Yield the worker's process. At the end of the block it stops its run, then itself."""
    process = workspace.start_module([WORKER], home / "worker.log")
    try:
        yield process
    finally:
        workspace.close(process, patience=WORKER_STOP_SECONDS)


def main() -> None:
    """Work as Prefect's worker until standard input closes."""
    redaction.guard()
    workspace.end_with_standard_input(before=_stop_runs)
    command = f"worker start --pool {POOL} --type process --limit 1 --install-policy never"
    sys.argv[1:] = command.split()
    from prefect.cli import app

    app()


def _stop_runs() -> None:
    """Stop the runs of this worker. A run stops its own stages, and then tells Prefect of it."""
    runs = [run.pid for run in psutil.Process().children()]
    workspace.stop(runs, RUN_STOP_SECONDS, roots_only=True)


if __name__ == "__main__":
    main()
