"""A process that has loaded DVC and what stages load, and forks one process for each DVC command of a flow.

Loading DVC, torch and transformers takes seconds of a core, and many a stage does its work in less. So this process
loads them once. It forks a process that is DVC. Where DVC would start a stage's `python -m`, that process forks again,
and the new process is the stage: same arguments, environment, folder and output. The project's own modules are not
loaded beforehand, so a stage runs the code that lies on disk when it starts. `dvc repro` by hand needs none of this.

The process ends with its standard input, and a fork with the process that forked it: a run that is killed leaves none
of them at work.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import multiprocessing
import os
import re
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines import params

PLAIN = re.compile(r"[\w./@=-]+ -m [\w.]+( [\w./@=-]+)*")  # a command for which DVC needs no shell
OF_DVC = "dvc.cli dvc.commands.repro dvc.repo dvc.repo.reproduce dvc.repo.index dvc.stage.run"
OF_STAGES = """yaml pydantic.main pydantic.json_schema psutil threadpoolctl tqdm requests msgspec.json mwparserfromhell
numpy pyarrow.parquet pyarrow.compute duckdb pandas scipy.stats scipy.special bm25s faiss tokenizers torch
transformers.generation transformers.models.auto.modeling_auto transformers.models.auto.tokenization_auto
transformers.models.llama.modeling_llama transformers.models.bert.modeling_bert
transformers.tokenization_utils_tokenizers"""
LOG = Path(".longtail/warm.log")
PR_SET_PDEATHSIG = 1  # of Linux
LOCK_HEAD = "schema: '2.0'\nstages:\n"
LENGTH = struct.Struct("q")  # of a request
FORK = multiprocessing.get_context("fork")

_server: tuple[subprocess.Popen, socket.socket] | None = None
_sending = threading.Lock()


def begin(compute: params.Compute) -> None:
    """Start the process that forks, unless it runs. Where forking is not safe, as on macOS, `dvc` does without.

    It loads DVC, and what stages need if all of them work on one thread of the CPU: torch takes the number of threads
    as it is loaded, and a GPU can't be used in a fork of a process that has looked at it.
    """
    global _server
    if sys.platform != "linux" or (_server and _server[0].poll() is None):
        return
    LOG.parent.mkdir(exist_ok=True)
    requests, standard_input = socket.socketpair()
    # torch and BLAS read the number of threads as they are loaded
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000000"}
    stages = ["stages"] if compute.threads == 1 and compute.device == "cpu" else []
    command = [sys.executable, "-m", "flows.warm", *stages]
    with standard_input, LOG.open("wb") as log:
        process = subprocess.Popen(command, stdin=standard_input, stdout=log, stderr=log, env=environment)
    _server = process, requests


def dvc(words: list[str], environment: dict[str, str]) -> Process | subprocess.Popen:
    """Start a DVC command. `stdout` has what DVC and the stage say, on standard error too."""
    if _server and _server[0].poll() is None:
        return Process(words, environment)
    command = [sys.executable, "-m", "dvc", *words]
    environment = {**environment, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)


class Process:
    """A DVC command in a process that `begin`'s process forked, with the parts of a Popen that a flow uses."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        output, written = os.pipe()
        status, told = os.pipe()
        self.stdout, self._status = os.fdopen(output, "rb", buffering=0), os.fdopen(status, "rb")
        request = json.dumps({"words": words, "environment": environment}).encode()
        with _sending, suppress(BrokenPipeError):  # the process that forks was killed: nobody tells a pid
            socket.send_fds(_server[1], [LENGTH.pack(len(request))], [written, told])
            _server[1].sendall(request)
        os.close(written)
        os.close(told)
        self.pid = int(self._status.readline() or 0)

    def wait(self) -> int:
        """The exit code, or minus the signal that ended DVC, or the process that forks."""
        with self._status, self.stdout:
            return int(self._status.readline() or -signal.SIGKILL)


def serve(stages: bool) -> None:
    """Fork a process for each request, until there can be no more.

    Requests that come while modules are still to be loaded are served between two of them.
    """
    requests = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for DVC and the stage
    running: dict[int, tuple[Any, int]] = {}  # sentinel of a process -> the process, and where to tell its end
    to_load = [*OF_DVC.split(), *OF_STAGES.split() * stages]
    while True:
        for ready in wait([requests, *running], 0 if to_load else None):
            if ready is not requests:
                process, told = running.pop(ready)
                process.join()
                _tell(told, process.exitcode)
                os.close(told)
            elif request := _receive(requests):
                written, told, content = request
                process = FORK.Process(
                    target=_be_dvc, args=(os.getpid(), requests, on_interrupt, written), kwargs=content
                )
                process.start()
                os.close(written)
                _tell(told, process.pid)
                running[process.sentinel] = process, told
            else:
                return
        if to_load:
            with suppress(ImportError):
                importlib.import_module(to_load.pop(0))
            if not to_load:
                print("ready")
                gc.freeze()  # no search for garbage in a fork touches, and so copies, what is loaded


def _receive(requests: socket.socket) -> tuple[int, int, dict[str, Any]] | None:
    """The two descriptors of a request, for output and for the end, and what it asks for; None: no more requests."""
    length, descriptors, _, _ = socket.recv_fds(requests, LENGTH.size, 2)
    if not length:
        return None
    content, size = bytearray(), LENGTH.unpack(length)[0]
    while len(content) < size:
        content += requests.recv(size - len(content))  # no more: the next request may wait behind this one
    written, told = descriptors
    return written, told, json.loads(content)


def _tell(told: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the flow has just ended
        os.write(told, b"%d\n" % number)


def _be_dvc(
    parent: int, requests: socket.socket, on_interrupt: Any, output: int, words: list[str], environment: dict[str, str]
):
    """Do as `dvc WORDS` would, and be a stage where it would start one."""
    _end_with(parent)
    requests.close()
    signal.signal(signal.SIGINT, on_interrupt)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    _set(environment)
    sys.argv = ["dvc", *words]
    import dvc.cli
    import dvc.dvcfile
    from dvc.stage import run
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # its thread only redraws bars
    run._run = partial(_run, run._run)
    dvc.dvcfile.modify_yaml = partial(modified_lock, dvc.dvcfile.modify_yaml)
    sys.exit(dvc.cli.main(words))


def _run(
    start: Callable[..., None], executable: str, command: str, *, cwd: str, env: dict[str, str], **options
) -> None:
    """Run a stage's command as DVC's own function `start` would: in a fork, where that is the same."""
    from dvc.stage.exceptions import StageCmdFailedError

    words = command.split()
    here = PLAIN.fullmatch(command) and Path(cwd).samefile(".") and _is_this_python(Path(words[0]))
    if not here or threading.active_count() > 1:  # a thread's locks would stay locked in the fork
        start(executable, command, cwd=cwd, env=env, **options)
        return
    process = FORK.Process(target=_be_stage, args=(os.getpid(), words[2], words[3:], env))
    process.start()
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    process.join()
    signal.signal(signal.SIGINT, on_interrupt)
    if process.exitcode:
        raise StageCmdFailedError(command, process.exitcode)


@contextmanager
def modified_lock(start: Callable[..., Any], path: str, fs: Any = None) -> Iterator[dict[str, Any]]:
    """Yield dvc.lock's content, and write what has changed in it, with the bytes that DVC's own function would write.

    `start`, that function, parses and writes all stages for one that changed, in a second. It is used for other files,
    and for a dvc.lock that is not as DVC writes it.
    """
    import yaml
    from dvc.utils.serialize import dumps_yaml

    file = Path(path)
    text = file.read_text(encoding="utf-8") if file.name == "dvc.lock" and file.exists() else ""
    head, *blocks = re.split(r"(?m)^  (?=[^ ])", text)
    data = yaml.load(text, yaml.CSafeLoader) if head == LOCK_HEAD else {}
    if [f"{name}:" for name in data.get("stages") or ()] != [
        block.partition("\n")[0] for block in blocks
    ] or not blocks:
        with start(path, fs=fs) as content:
            yield content
        return
    before, blocks = dict(data["stages"]), dict(zip(data["stages"], blocks, strict=True))
    yield data
    for name, entry in data["stages"].items():
        if entry is not before.get(name):
            blocks[name] = dumps_yaml({"stages": {name: entry}}).removeprefix("stages:\n  ")
    file.write_text(LOCK_HEAD + "".join(f"  {blocks[name]}" for name in data["stages"]), encoding="utf-8")


def _end_with(parent: int) -> None:
    """Have the system kill this process when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


def _is_this_python(python: Path) -> bool:
    return python.is_file() and python.parent.samefile(Path(sys.executable).parent)


def _be_stage(parent: int, module: str, words: list[str], environment: dict[str, str]) -> None:
    """Do as `python -m MODULE WORDS` would."""
    _end_with(parent)
    _set(environment)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _set(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


if __name__ == "__main__":
    try:
        serve("stages" in sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # an exit would wait for the forks
