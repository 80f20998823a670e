"""DVC's part of a flow as Prefect tasks: reproduce one stage, or push to the remote, each in a process of its own.

What DVC prints goes to the task's log and to .longtail/logs. What became of a stage is not read from it: a stage that
ran leaves a record, and dvc.lock says whether its outputs have other hashes than before.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import httpx
from prefect import get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run, task_run
from prefect.states import Failed, Pending, Running, State

from flows import dvc_files, graph, live, workspace
from flows.live import AWAY, FAILED, RAN, RESTORED, UNCHANGED, WORK, Work
from pipelines import safe_text
from pipelines.storage import disks
from pipelines.work.run_log import FLOW, record_of

UNREACHABLE = "Unreachable"  # state of a task whose server gave no answer: the one failure that a retry can help
RETRIES = 2  # after PREFECT_TASKS_DEFAULT_RETRY_DELAY_SECONDS, which server.prepare sets
SILENT_SECONDS = (
    10  # after which DVC, which says what it does once it has its lock, counts as waiting for it
)
PROGRESS_SECONDS = 15  # of a progress bar, at most one line in this time reaches the log
HOPELESS = re.compile(  # what a remote says that it will say again
    "config file error|unknown remote|requires|not installed|does not exist|no such|nosuch|credential|denied|forbidden"
    "|unauthorized|permission|not a director|read-only|no space",
    re.IGNORECASE,
)
KILLED = re.compile("exited with (-9|137)$")
HINT = re.compile(  # what DVC says after each stage to who runs it by hand
    "To track the changes with git, run:|git add .*|To enable auto staging, run:|dvc config core.autostage true"
    "|Use `dvc push` to send your updates to remote storage."
)

_children: set[subprocess.Popen] = set()


def _can_help(_task, _run, state: State) -> bool:
    return state.name == UNREACHABLE


@dataclass(frozen=True)
class Outcome:
    """What became of a stage."""

    kind: str  # UNCHANGED, RESTORED or RAN
    same_outputs: (
        bool  # its outputs have the hashes that they had before, so what reads them need not run
    )


@task(persist_result=False, retries=RETRIES, retry_condition_fn=_can_help)
def reproduce_stage(
    stage: graph.Stage, spare: bool, force: bool, outputs_changed: bool
) -> Outcome | State:
    """Have DVC bring one stage up to date; returns its Outcome, or a Failed state with a one-line error.

    With `spare` nothing is done, with `force` the stage runs though nothing changed. `outputs_changed` says that its
    outputs were not those of dvc.lock when the flow began.
    """
    if spare:
        get_run_logger().info("up to date")
        return Outcome(UNCHANGED, same_outputs=True)
    before = dvc_files.kept(Path.cwd()).get(stage.name, {})
    log, work = graph.LOGS / f"{stage.name}.log", WORK[stage.name]
    work.begin()
    began = time.time()
    done = _dvc(
        "repro", "--single-item", *(["--force"] if force else []), stage.name, log=log, work=work
    )
    work.record = record_of(stage.name, since=began)
    if done.code:
        problem = done.error or f"{stage.name}: {done.cause()}"
        kind = UNREACHABLE if done.unreachable else "Failed"
        work.state = AWAY if done.unreachable else work.state
        return Failed(name=kind, message=f"{problem} (all it said: {log})")
    after = dvc_files.keep(Path.cwd()).get(stage.name, {})
    restored = RESTORED if outputs_changed or after != before else UNCHANGED
    kind = RAN if work.record else restored
    if kind == RESTORED and (damaged := dvc_files.drop_damaged(Path.cwd(), stage.outs)):
        files = f"{damaged[0]} and {len(damaged) - 1} more" if len(damaged) > 1 else damaged[0]
        return Failed(
            message=f"{stage.name}: .dvc/cache had {files} damaged; it is removed, run again to make it anew"
        )
    _publish(stage)
    return Outcome(
        kind, same_outputs=not outputs_changed and after.get("outs") == before.get("outs")
    )


@task(
    name="push",
    task_run_name="push",
    persist_result=False,
    retries=RETRIES,
    retry_condition_fn=_can_help,
)
def push_outputs(names: list[str]) -> str | State:
    """Send the stages' outputs and DVC's run cache to the default remote; returns a message, or a Failed state."""
    log, work = graph.LOGS / "push.log", WORK.setdefault("push", Work())
    work.begin()
    done = _dvc("push", "--run-cache", *names, log=log, work=work)
    live.end("push", FAILED if done.code else RAN)
    if done.code:
        again = f"the data are whole here, `dvc push --run-cache` sends them (all it said: {log})"
        kind = "Failed" if HOPELESS.search("\n".join(done.errors)) else UNREACHABLE
        return Failed(name=kind, message=f"push: {next(iter(done.errors), done.last)}; {again}")
    return f"pushed: {done.last}"


@dataclass
class Done:
    """How a DVC process ended, and what it said."""

    code: int = 0
    last: str = ""  # the last line that is no error
    error: str | None = None  # the line in which a stage says why it failed
    errors: list[str] = field(default_factory=list)  # DVC's own
    unreachable: bool = False  # the stage says that a server did not answer

    def cause(self) -> str:
        """Why a stage failed that did not say it: DVC's error, unless that only repeats that the stage failed."""
        if self.code == -signal.SIGKILL or any(map(KILLED.search, self.errors)):
            return "killed by signal 9, as a system without memory does; run again to go on"
        of_dvc = [error for error in self.errors if "failed to run: " not in error]
        of_disk = filter(None, map(disks.meaning_of, of_dvc or [self.last]))
        return next(
            of_disk, next(iter(of_dvc), self.last or f"DVC ended with exit code {self.code}")
        )


def _dvc(*words: str, log: Path, work: Work) -> Done:
    """Run DVC. Each line of its output, but for hints, goes to the task's log, to the file `log`, and to `work`.

    The `python` of dvc.yaml's commands is the one of this process's environment, whether or not a shell activated it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = os.environ | {FLOW: str(flow_run.id), "PYTHONUNBUFFERED": "1", "PATH": path}
    environment["DVC_SITE_CACHE_DIR"] = dvc_files.site_cache(Path.cwd())
    child = subprocess.Popen(
        [sys.executable, "-m", "dvc", "--wait-for-lock", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    _children.add(child)
    logger, done = get_run_logger(), Done()
    try:
        if words[0] == "repro":
            _show_waiting(child.stdout)
        with child.stdout, log.open("w", encoding="utf-8") as file:
            for line in _lines(child.stdout, work.say):
                if HINT.fullmatch(line):
                    continue
                work.say(line)
                logger.info(line)
                print(line, file=file, flush=True)
                if line.startswith("error: "):
                    done.error = line.removeprefix("error: ")
                elif line.startswith("ERROR: "):
                    done.errors.append(line.removeprefix("ERROR: "))
                    done.unreachable = done.unreachable or line.endswith(
                        f"exited with {os.EX_TEMPFAIL}"
                    )
                else:
                    done.last = line
        done.code = child.wait()
    finally:
        _children.discard(child)
    return done


def _show_waiting(stream) -> None:
    """Show this task as pending on Prefect's pages for as long as DVC has said nothing, as it waits for its lock."""

    def show(state: State) -> bool:
        with suppress(PrefectException, httpx.HTTPError), get_client(sync_client=True) as client:
            client.set_task_run_state(UUID(task_run.id), state, force=True)
            return True
        return False  # the server has not heard of the task yet

    waits, message = False, "DVC waits for its lock, or looks at what changed"
    while not select.select([stream], [], [], None if waits else SILENT_SECONDS)[0]:
        waits = show(Pending(name="AwaitingLock", message=message))
    if waits:
        show(Running())


def _lines(stream, say: Callable[[str], None]) -> Iterator[str]:
    """Yield the lines of a process's output. Of a progress bar, which redraws itself, most go only to `say`."""
    shown, rest = 0.0, b""
    while block := os.read(stream.fileno(), 1 << 16):
        *parts, rest = re.split(rb"(?<=[\r\n])|(?<=])(?=ERROR: )", rest + block)
        for part in parts:
            text = safe_text.line(part.decode(errors="replace").strip())
            bar = part.endswith((b"\r", b"]"))
            if text and bar and time.monotonic() - shown < PROGRESS_SECONDS:
                say(text)
            elif text:
                shown = time.monotonic() if bar else shown
                yield text
        if rest.endswith(b"]"):  # a bar, until it redraws itself
            say(safe_text.line(rest.decode(errors="replace").strip()))
    if text := safe_text.line(rest.decode(errors="replace").strip()):
        yield text


def _publish(stage: graph.Stage) -> None:
    """Show a stage's metrics as a table among the flow run's artifacts."""
    rows = []
    for path in stage.metrics:
        for name, value in json.loads(path.read_text(encoding="utf-8")).items():
            rows.append(
                {"metric": name, **(value if isinstance(value, dict) else {"value": value})}
            )
    if rows:
        key = re.sub("[^a-z0-9]+", "-", stage.name.lower())
        create_table_artifact(
            key=key, table=safe_text.values(rows, safe_text.markdown), description=stage.description
        )


@contextmanager
def stopping_children() -> Iterator[None]:
    """At the end of the block, stop every DVC process and its stage. Ctrl-C reaches them by itself, SIGTERM not."""
    try:
        yield
    finally:
        workspace.stop([child.pid for child in _children], patience=10)
