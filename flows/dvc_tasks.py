"""Prefect tasks in which DVC, in a process of its own, reproduces one stage or pushes.

In one more task git pushes the commits that name the data.

What DVC prints goes to the task's log and to .longtail/logs. What became of a stage is not read
from it: a stage that ran leaves a record, and dvc.lock says whether its outputs have other hashes
than before.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from prefect import get_run_logger, task
from prefect.runtime import flow_run
from prefect.states import Failed, State

from flows import data_branch, dvc_repo, graph, live, workspace
from flows.live import AWAY, FAILED, RAN, RESTORED, UNCHANGED, WORK, Work
from pipelines import redaction, safe_text
from pipelines.errors import LongtailError
from pipelines.storage import disks
from pipelines.work.run_log import FLOW, record_of

UNREACHABLE = "Unreachable"  # state of a task whose server gave no answer: a retry can help
RETRIES = 2  # after PREFECT_TASKS_DEFAULT_RETRY_DELAY_SECONDS, which server.prepare sets
PROGRESS_SECONDS = 15  # of a progress bar, at most one line in this time reaches the log
BLOCK_BYTES = 1 << 16  # of a process's output, read at a time
HOPELESS = re.compile(  # what a remote says that it will say again
    "config file error|unknown remote|requires|not installed|does not exist|no such|nosuch"
    "|credential|denied|forbidden|unauthorized|permission|not a director|read-only|no space"
    "|rejected|not appear to be a git",
    re.IGNORECASE,
)
TERMINAL_CONTROL = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")  # such as a move of the cursor
KILLED = re.compile("exited with (-9|137)$")
HINT = re.compile(  # what DVC says after each stage to who runs it by hand
    "To track the changes with git, run:|git add .*|To enable auto staging, run:"
    "|dvc config core.autostage true"
    "|Use `dvc push` to send your updates to remote storage."
)

_children: set[subprocess.Popen] = set()
_starting = threading.Lock()  # held while a DVC process starts, and while the run stops
_run_is_stopped = False


def _can_help(_task, _run, state: State) -> bool:
    """Whether it can help to try a task again that ended in this state."""
    return state.name == UNREACHABLE


@dataclass(frozen=True)
class Outcome:
    """What became of a stage."""

    kind: str  # UNCHANGED, RESTORED or RAN
    same_outputs: bool  # as before, by their hashes, so what reads them need not run


@task(persist_result=False, retries=RETRIES, retry_condition_fn=_can_help)
def reproduce_stage(
    stage: graph.Stage, needs_no_dvc: bool, force: bool, outputs_changed: bool
) -> Outcome | State:
    """Have DVC bring one stage up to date.

    Returns its Outcome, or a Failed state with a one-line error. With `needs_no_dvc` nothing is
    done, with `force` the stage runs though nothing changed. `outputs_changed` says that its
    outputs were not those of dvc.lock when the flow began.
    """
    if needs_no_dvc:
        get_run_logger().info("up to date")
        return Outcome(UNCHANGED, same_outputs=True)

    before = dvc_repo.stages_of_copy(Path.cwd()).get(stage.name, {})
    log = graph.LOGS / f"{stage.name}.log"
    work = WORK[stage.name]
    work.begin()
    began = time.time()
    options = ["--single-item"]
    if force:
        options.append("--force")
    ended = _dvc("repro", *options, stage.name, log=log, work=work)
    work.record = record_of(stage.name, since=began)
    if ended.code:
        problem = ended.error or f"{stage.name}: {ended.cause()}"
        message = f"{problem} (all it said: {log})"
        if ended.unreachable:
            work.state = AWAY
            return Failed(name=UNREACHABLE, message=message)
        return Failed(message=message)

    after = dvc_repo.sync_and_copy_lock(Path.cwd()).get(stage.name, {})
    if work.record:
        kind = RAN
    elif outputs_changed or after != before:
        kind = RESTORED
        damaged = dvc_repo.drop_damaged(Path.cwd(), {stage.name})
        if damaged:
            problem = f".dvc/cache had {damaged[0]} damaged ({len(damaged)} in all)"
            return Failed(message=f"{stage.name}: {problem}; removed, run again to make it anew")
    else:
        kind = UNCHANGED

    same_outputs = not outputs_changed and after.get("outs") == before.get("outs")
    return Outcome(kind, same_outputs)


@task(
    name="push",
    task_run_name="push",
    persist_result=False,
    retries=RETRIES,
    retry_condition_fn=_can_help,
)
def push_outputs(names: list[str]) -> str | State:
    """Send the stages' outputs and DVC's run cache to the default remote.

    Returns a message, or a Failed state.
    """
    log = graph.LOGS / "push.log"
    work = WORK.setdefault("push", Work())
    work.begin()
    ended = _dvc("push", "--run-cache", *names, log=log, work=work)
    if not ended.code:
        live.end("push", RAN)
        return f"pushed: {ended.last_line}"

    live.end("push", FAILED)
    problem = ended.errors[0] if ended.errors else ended.last_line
    again = "the data are whole here, `dvc push --run-cache` sends them"
    message = f"push: {problem}; {again} (all it said: {log})"
    return _failed_push(message, "\n".join(ended.errors))


@task(
    name="push commits",
    task_run_name="push commits",
    persist_result=False,
    retries=RETRIES,
    retry_condition_fn=_can_help,
)
def push_commits(remote: str, commit: str) -> str | State:
    """Send the data branch and the tags of a commit to git's `remote`.

    Returns a message, or a Failed state.
    """
    try:
        return data_branch.push(remote, commit)
    except LongtailError as error:
        return _failed_push(str(error), str(error))


def _failed_push(message: str, errors: str) -> State:
    """The state of a push that failed, which tells by the remote's errors if a retry can help."""
    return Failed(name="Failed" if HOPELESS.search(errors) else UNREACHABLE, message=message)


@dataclass
class Ended:
    """How a DVC process ended, and what it said."""

    code: int = 0
    last_line: str = ""  # the last one that is no error
    error: str | None = None  # the line in which a stage says why it failed
    errors: list[str] = field(default_factory=list)  # DVC's own
    unreachable: bool = False  # the stage says that a server did not answer

    def hear(self, line: str) -> None:
        """Take note of a line of the process's output."""
        if line.startswith("error: "):
            self.error = line.removeprefix("error: ")
        elif line.startswith("ERROR: "):
            self.errors.append(line.removeprefix("ERROR: "))
            if line.endswith(f"exited with {os.EX_TEMPFAIL}"):
                self.unreachable = True
        else:
            self.last_line = line

    def cause(self) -> str:
        """Why a stage failed that did not say it.

        It is DVC's error, unless that only repeats that the stage failed.
        """
        stage_was_killed = any(KILLED.search(error) for error in self.errors)
        if stage_was_killed or self.code == -signal.SIGKILL:
            return "killed by signal 9, as a system without memory does; run again to go on"
        of_dvc = [error for error in self.errors if "failed to run: " not in error]
        for line in of_dvc or [self.last_line]:
            of_disk = disks.meaning_of(line)
            if of_disk:
                return of_disk
        if of_dvc:
            return of_dvc[0]
        return self.last_line or f"DVC ended with exit code {self.code}"


def _dvc(*words: str, log: Path, work: Work) -> Ended:
    """Run DVC.

    Each line of its output, but for hints, goes to the task's log, to the file `log` and to `work`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *words]
    process = _start(command)
    if not process:
        return Ended(code=1, error="the run was stopped")
    logger = get_run_logger()
    ended = Ended()
    output = process.stdout
    assert output, "it is a pipe"
    with output, log.open("w", encoding="utf-8") as file:
        for line in _lines(output, work.say):
            if HINT.fullmatch(line):
                continue
            work.say(line)
            logger.log(logging.WARNING if line.startswith("warning:") else logging.INFO, line)
            print(line, file=file, flush=True)
            ended.hear(line)
    ended.code = process.wait()
    _children.discard(process)  # one that was not waited for is stopped with the run
    return ended


def _start(command: list[str]) -> subprocess.Popen | None:
    """Start a DVC process; None once the run is stopped."""
    with _starting:
        if _run_is_stopped:
            return None
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
        )
        _children.add(process)
    return process


def _environment() -> dict[str, str]:
    """The environment of a DVC process.

    The `python` of dvc.yaml's commands is that of this process, whether or not a shell activated
    its environment.
    """
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {
        **os.environ,
        FLOW: str(flow_run.id),
        "PYTHONUNBUFFERED": "1",
        "PATH": os.pathsep.join(path),
        dvc_repo.SITE_CACHE_VARIABLE: dvc_repo.site_cache(Path.cwd()),
    }


def _lines(stream, say: Callable[[str], None]) -> Iterator[str]:
    """Yield the lines of a process's output.

    Of a progress bar, which redraws itself, most lines go only to `say`.
    """
    bar_yielded = 0.0  # seconds of time.monotonic
    rest = b""
    while True:
        block = os.read(stream.fileno(), BLOCK_BYTES)
        if not block:
            break
        *parts, rest = re.split(rb"(?<=[\r\n])|(?<=])(?=ERROR: )", rest + block)
        for part in parts:
            text = _text(part)
            if not text:
                continue
            is_bar = part.endswith((b"\r", b"]"))
            now = time.monotonic()
            if is_bar and now - bar_yielded < PROGRESS_SECONDS:
                say(text)
                continue
            if is_bar:
                bar_yielded = now
            yield text
        if rest.endswith(b"]"):  # a bar, until it redraws itself
            say(_text(rest))

    text = _text(rest)
    if text:
        yield text


def _text(line: bytes) -> str:
    line = TERMINAL_CONTROL.sub(b"", line)
    return safe_text.line(redaction.hidden(line.decode(errors="replace").strip()))


@contextmanager
def stopping_children() -> Iterator[None]:
    """When the block raises, stop every DVC process and its stage, and let no task start another.

    Ctrl-C reaches them by itself, SIGTERM does not. Either may end a DVC process while it writes a
    file, so these files are repaired: the next DVC may be one that a user starts by hand. Where
    that fails, the next run does it.
    """
    global _run_is_stopped
    _run_is_stopped = False
    try:
        yield
    except BaseException:
        with _starting:
            _run_is_stopped = True
            pids = [child.pid for child in tuple(_children)]
        workspace.stop(pids)
        with suppress(LongtailError, OSError):
            dvc_repo.repair_after_kill(Path.cwd())
        raise
