"""A stage forked from a process with everything loaded does what `python -m` would do, and ends with its run."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest
import yaml
from quick_project import dvc_init
from waiting import PATIENCE, until

from flows import warm

DVC_YAML = """
stages:
  tell:
    cmd: {python} -m tell one two=2
    outs: [told.json]
  fail:
    cmd: {python} -m tell fail
  sleep:
    cmd: {python} -m tell sleep
  shell:
    cmd: echo out > shell.txt
    outs: [shell.txt]
"""
TELL = """
import json, multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
def double(number):
    return 2 * number
if __name__ == "__main__":
    if sys.argv[1] == "fail":
        print("it fails", flush=True)
        raise SystemExit(75)
    if sys.argv[1] == "sleep":
        open("asleep", "w").close()
        time.sleep(600)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        doubled = pool.submit(double, 21).result()
    loaded = "torch" in sys.modules
    of_shell = ("_", "SHLVL", "PWD", "OLDPWD", "PYTHONUNBUFFERED")
    environment = {name: value for name, value in os.environ.items() if name not in of_shell}
    told = [sys.argv[1:], __name__, __spec__.name, os.getcwd(), sys.path[0] or os.getcwd(), environment, doubled]
    with open("told.json", "w") as file:
        json.dump({"told": told, "loaded": loaded, "pid": os.getpid()}, file)
    print("told")
"""
WARM = """
import os, sys, time
from types import SimpleNamespace
from flows import warm
warm.begin(SimpleNamespace(threads=1, device="cpu"))
while "ready" not in warm.LOG.read_text():
    time.sleep(0.1)
for words in [word.split() for word in sys.argv[1:]]:
    process = warm.dvc(["--wait-for-lock", "repro", *words], dict(os.environ))
    print(process.stdout.read().decode(), process.wait(), flush=True)
"""


@pytest.fixture
def folder(tmp_path):
    """A DVC project whose stage tells how it was started."""
    (tmp_path / "dvc.yaml").write_text(DVC_YAML.format(python=sys.executable))
    (tmp_path / "tell.py").write_text(TELL)
    dvc_init(tmp_path)
    return tmp_path


def start(root, folder, *words: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def run(root, folder, *words: str) -> str:
    process = start(root, folder, *words)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out
    return out


def told(folder) -> dict:
    return json.loads((folder / "told.json").read_text())


def test_a_forked_stage_is_started_as_dvc_starts_it_and_its_exit_code_is_dvcs(root, folder):
    """Other commands get their shell. On one thread of the CPU torch is loaded beforehand."""
    run(root, folder, "-m", "dvc", "repro", "-q", "--single-item", "tell")
    alone, lock = told(folder), (folder / "dvc.lock").read_bytes()
    of_warm = ["--single-item --force tell", "--single-item fail", "--single-item shell", "--single-item nosuch"]
    said = run(root, folder, "-c", WARM, *of_warm)
    assert said.splitlines()[:3] == ["Running stage 'tell':", f"> {sys.executable} -m tell one two=2", "told"]
    assert told(folder)["told"] == alone["told"]
    assert (told(folder)["pid"], (folder / "dvc.lock").read_bytes()) != (alone["pid"], lock)
    assert (told(folder)["loaded"], alone["loaded"]) == (True, False)
    assert "it fails" in said
    assert f"ERROR: failed to reproduce 'fail': failed to run: {sys.executable} -m tell fail, exited with 75" in said
    assert (folder / "shell.txt").read_text() == "out\n"
    assert "ERROR: Stage 'nosuch' not found inside 'dvc.yaml' file" in said
    codes = [line.split()[-1] for line in said.splitlines() if line.strip().lstrip("-").isdigit()]
    assert codes == ["0", "255", "0", "255"]


@pytest.mark.parametrize(("threads", "device", "stages"), [(1, "cpu", True), (2, "cpu", False), (1, "cuda", False)])
def test_torch_is_loaded_beforehand_only_for_one_thread_of_the_cpu(workplace, monkeypatch, threads, device, stages):
    """Its number of threads is that of the process that loads it, and a GPU is not for forks."""
    commands = []
    monkeypatch.setattr(warm, "_server", None)
    monkeypatch.setattr(warm.subprocess, "Popen", lambda command, **_: commands.append(command))
    warm.begin(SimpleNamespace(threads=threads, device=device))
    warm._server[1].close()
    assert commands == [[sys.executable, "-m", "flows.warm", *["stages"] * stages]]


def test_dvc_lock_gets_the_bytes_that_dvc_itself_writes(root, tmp_path):
    from dvc.utils.serialize import modify_yaml

    whole = (root / "dvc.lock").read_text()
    odd = {"passage": "{title}\n{text}", "none": None, "share": 1e-05, "yes": "no"}
    stages = yaml.load(whole, yaml.CSafeLoader)["stages"]
    names = ("report", "answer@popqa-tiny-bm25", "a new one")
    entries = {name: stages.get(name, {"cmd": "true"}) | {"params": {"params.yaml": {**odd}}} for name in names}
    for folder, modify in (("dvc", modify_yaml), ("here", functools.partial(warm.modified_lock, None))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dvc.lock").write_text(whole)
        with modify(str(tmp_path / folder / "dvc.lock")) as data:
            data["stages"].update(entries)
    written = (tmp_path / "here/dvc.lock").read_text()
    assert written == (tmp_path / "dvc/dvc.lock").read_text()
    assert written != whole


def test_a_dvc_lock_that_dvc_did_not_write_so_is_left_to_dvc(tmp_path):
    from dvc.utils.serialize import modify_yaml

    lock = tmp_path / "dvc.lock"
    for text in ("", "schema: '2.0'\n# mine\nstages:\n  a:\n    cmd: b\n", "schema: '2.0'\nstages: {}\n"):
        lock.write_text(text)
        with warm.modified_lock(modify_yaml, str(lock)) as data:
            data.setdefault("stages", {})["b"] = {"cmd": "c"}
        assert yaml.safe_load(lock.read_text())["stages"]["b"] == {"cmd": "c"}
        assert ("# mine" in text) == ("# mine" in lock.read_text())


@pytest.mark.parametrize("killed", ["the process that runs", "the process that forks"])
def test_of_a_killed_process_no_fork_is_left_at_work(root, folder, killed):
    """A flow whose process that forks is killed hears that of DVC's process too."""
    script = WARM[: WARM.index("while")] + WARM[WARM.index("for words") :]
    process = start(root, folder, "-c", script.replace("threads=1", "threads=2"), "--single-item sleep")
    until(lambda: (folder / "asleep").exists() or process.poll() is not None)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 3, "the process that forks, DVC and the stage"
    (server,) = [child for child in family if child.ppid() == process.pid]
    (process if killed == "the process that runs" else server).kill()
    out, _ = process.communicate(timeout=PATIENCE)
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
    if killed == "the process that forks":
        assert out.split()[-1] == "-9"


def test_two_requests_that_come_at_once_are_two():
    sender, receiver = socket.socketpair()
    with sender, receiver, open(os.devnull) as file:
        for number in range(2):
            request = json.dumps({"number": number}).encode()
            socket.send_fds(sender, [warm.LENGTH.pack(len(request))], [file.fileno()] * 2)
            sender.sendall(request)
        for number in range(2):
            *descriptors, content = warm._receive(receiver)
            assert content == {"number": number}
            assert all(os.fstat(descriptor).st_rdev for descriptor in descriptors), "each with its own"
            for descriptor in descriptors:
                os.close(descriptor)
