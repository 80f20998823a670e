"""The refresh flow: every stage of DVC's graph as one task that has DVC reproduce it, independent ones side by side.

DVC alone decides what is done again; the flow only spares it the processes of stages that can't have changed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.futures import PrefectFuture, as_completed
from prefect.runtime import flow_run
from prefect.states import Completed, Failed, State

from flows import graph
from pipelines import params, params_file, tracking
from pipelines.errors import LongtailError

UNCHANGED, RESTORED, RAN = "unchanged", "restored from the cache", "ran"
PROGRESS_SECONDS = 15  # of a progress bar, at most one line in this time reaches the log
RETRY_DELAYS = [60, 300]  # seconds; only for downloads

_children: set[subprocess.Popen] = set()


@flow(name="refresh", description="Bring every dataset, model, index and the report up to date.")
def refresh() -> State:
    """Reproduce what changed; the state's message says how many stages ran, or which failed and why."""
    root = Path.cwd()
    stages, changed = graph.read(root)
    given = params_file.load("fetch", "compute")
    futures: dict[str, PrefectFuture] = {}
    running: dict[PrefectFuture, graph.Stage] = {}
    failed: list[str] = []
    with _recording(failed), _stopping_children():
        while running or (not failed and len(futures) < len(stages)):
            for stage in [] if failed else graph.ready(stages, set(futures), list(running.values()), given.compute):
                needed = [futures[name] for name in stage.needs]
                spare = stage.name not in changed and all(future.result() == UNCHANGED for future in needed)
                one = reproduce.with_options(name=stage.name, task_run_name=stage.name, **_retries(stage, given.fetch))
                futures[stage.name] = one.submit(stage, spare, wait_for=needed)
                running[futures[stage.name]] = stage
            done = next(as_completed(list(running)))
            stage = running.pop(done)
            done.wait()  # its state may be a moment late
            if not done.state.is_completed():
                failed.append(done.state.message or f"{stage.name}: {done.state.name}")
    if failed:
        return Failed(message="; ".join(failed))
    outcomes = [future.result() for future in futures.values()]
    return Completed(message=", ".join(f"{outcomes.count(kind)} {kind}" for kind in (RAN, RESTORED, UNCHANGED)))


def _retries(stage: graph.Stage, fetch: params.Fetch) -> dict:
    """Task options: only a download gets better by itself."""
    downloads = stage.name == "fetch" and fetch.source == "wikimedia"
    return {"retries": len(RETRY_DELAYS), "retry_delay_seconds": RETRY_DELAYS} if downloads else {}


@task(persist_result=False)
def reproduce(stage: graph.Stage, spare: bool) -> str | State:
    """One stage by DVC, or nothing (`spare`); UNCHANGED, RESTORED or RAN, or a Failed state with a one-line error."""
    if spare:
        get_run_logger().info("up to date")
        return UNCHANGED
    outcome, error = _dvc_repro(stage.name)
    if error:
        return Failed(message=error)
    if outcome == RAN:
        tracking.commit(stage.name)
    _publish(stage)
    return outcome


def _dvc_repro(name: str) -> tuple[str, str | None]:
    """Run `dvc repro --single-item` on a stage, its output line by line in the task's log: (outcome, error or None)."""
    log = get_run_logger()
    flow_run_id = str(flow_run.root_flow_run_id or flow_run.id)
    context = {"run": f"prefect-{flow_run_id}", "tags": {"prefect.flow_run_id": flow_run_id}}
    child = subprocess.Popen(
        [sys.executable, "-m", "flows.dvc", "--wait-for-lock", "repro", "--single-item", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, tracking.CONTEXT: json.dumps(context), "PYTHONUNBUFFERED": "1"},
    )
    _children.add(child)
    outcome, error, last = UNCHANGED, None, ""
    try:
        for line in _lines(child.stdout):
            log.info(line)
            if line.startswith("Running stage "):
                outcome = RAN
            elif "is cached - skipping run" in line:
                outcome = RESTORED
            elif line.startswith("error: "):
                error = line.removeprefix("error: ")
            elif not line.startswith("ERROR: "):
                last = line
        code = child.wait()
    finally:
        _children.discard(child)
    if code:
        return outcome, error or f"{name}: {last or f'DVC ended with exit code {code}'}"
    return outcome, None


def _lines(stream) -> Iterator[str]:
    """Lines of a stage's output; a progress bar redraws itself after carriage returns, so of that only some."""
    shown, rest = 0.0, b""
    while block := os.read(stream.fileno(), 1 << 16):
        *parts, rest = re.split(rb"(?<=[\r\n])", rest + block)
        for part in parts:
            text = part.decode(errors="replace").strip()
            bar = part.endswith(b"\r")
            if text and not (bar and time.monotonic() - shown < PROGRESS_SECONDS):
                shown = time.monotonic() if bar else shown
                yield text
    if text := rest.decode(errors="replace").strip():
        yield text


def _publish(stage: graph.Stage) -> None:
    """A stage's metrics as a table among the flow run's artifacts."""
    rows = []
    for path in stage.metrics:
        for name, value in json.loads(path.read_text(encoding="utf-8")).items():
            rows.append({"metric": name, **(value if isinstance(value, dict) else {"value": value})})
    if rows:
        key = re.sub("[^a-z0-9]+", "-", stage.name.lower())
        create_table_artifact(key=key, table=rows, description=stage.description)


@contextmanager
def _recording(failed: list[str]) -> Iterator[None]:
    """Have MLflow's recorder beside the block; at the end wait until it has logged everything."""
    recorder = tracking.start_recorder()
    state = "FAILED"
    try:
        yield
        state = "FAILED" if failed else "FINISHED"
    finally:
        with suppress(BrokenPipeError):  # it has ended before: .longtail/tracking.log says why
            recorder.communicate(state.encode())


@contextmanager
def _stopping_children() -> Iterator[None]:
    """However the block is left, no stage goes on working: Ctrl-C reaches them by itself, SIGTERM does not."""
    try:
        yield
    finally:
        processes = []
        for child in list(_children):
            try:
                processes += [*psutil.Process(child.pid).children(recursive=True), psutil.Process(child.pid)]
            except psutil.NoSuchProcess:
                continue
        for process in processes:
            process.terminate()
        for process in psutil.wait_procs(processes, timeout=10)[1]:
            process.kill()


def run() -> State:
    """The flow as the command line runs it: its final state, without a traceback for a failed stage."""
    try:
        return refresh(return_state=True)
    except LongtailError as error:
        return Failed(message=str(error))
