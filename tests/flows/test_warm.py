"""A stage forked from a process with everything loaded does what `python -m` would do, and ends with its run."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys

import psutil
import pytest
import yaml
from waiting import PATIENCE

from flows import warm

DVC_YAML = """
stages:
  tell:
    cmd: {python} -m tell one two=2
    outs: [told.json]
  fail:
    cmd: {python} -m tell fail
    outs: [never]
  shell:
    cmd: echo out > shell.txt
    outs: [shell.txt]
"""
TELL = """
import json, multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
def double(number):
    return 2 * number
if __name__ == "__main__":
    if sys.argv[1] == "fail":
        print("it fails", flush=True)
        raise SystemExit(75)
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
from pathlib import Path
from flows import warm
warm.begin(SimpleNamespace(threads=int(sys.argv[1]), device=sys.argv[2]))
for words in [word.split() for word in sys.argv[3:]]:
    process = warm.dvc(["--wait-for-lock", "repro", *words], dict(os.environ))
    print(process.stdout.read().decode(), process.wait(), flush=True)
"""


@pytest.fixture
def folder(root, tmp_path):
    """A DVC project whose stage tells how it was started."""
    (tmp_path / "dvc.yaml").write_text(DVC_YAML.format(python=sys.executable))
    (tmp_path / "tell.py").write_text(TELL)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], cwd=tmp_path, check=True)
    return tmp_path


def run(root, folder, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def told(folder) -> dict:
    return json.loads((folder / "told.json").read_text())


def test_a_forked_stage_is_started_as_dvc_starts_it(root, folder):
    run(root, folder, "-m", "dvc", "repro", "-q", "--single-item", "tell")
    alone, lock = told(folder), (folder / "dvc.lock").read_bytes()
    said = run(root, folder, "-c", WARM, "1", "cpu", "--single-item --force tell")
    assert said.splitlines()[:3] == ["Running stage 'tell':", f"> {sys.executable} -m tell one two=2", "told"]
    assert told(folder)["told"] == alone["told"]
    assert (told(folder)["pid"], (folder / "dvc.lock").read_bytes()) != (alone["pid"], lock)


def test_the_exit_code_is_the_stages_and_other_commands_get_their_shell(root, folder):
    said = run(
        root, folder, "-c", WARM, "1", "cpu", "--single-item fail", "--single-item shell", "--single-item nosuch"
    )
    assert "it fails" in said
    assert f"ERROR: failed to reproduce 'fail': failed to run: {sys.executable} -m tell fail, exited with 75" in said
    assert (folder / "shell.txt").read_text() == "out\n"
    assert "ERROR: Stage 'nosuch' not found inside 'dvc.yaml' file" in said
    assert [line.split()[-1] for line in said.splitlines() if line.strip().lstrip("-").isdigit()] == ["255", "0", "255"]


@pytest.mark.parametrize(("threads", "device", "loaded"), [(1, "cpu", True), (2, "cpu", False), (1, "cuda", False)])
def test_torch_is_loaded_beforehand_only_for_one_thread_of_the_cpu(root, folder, threads, device, loaded):
    """Its number of threads is that of the process that loads it, and a GPU is not for forks."""
    wait = "import time, psutil, os\nfrom flows import warm\n"
    ready = """
server = psutil.Process(warm._server[0].pid)
while "ready" not in warm.LOG.read_text():
    time.sleep(0.1)
"""
    script = wait + WARM.replace("for words in", f"{ready}for words in", 1)
    run(root, folder, "-c", script, str(threads), device, "--single-item --force tell")
    assert told(folder)["loaded"] is loaded


@pytest.mark.parametrize("name", ["report", "answer@popqa-tiny-bm25", "chunk@pile", "a new one"])
def test_dvc_lock_gets_the_bytes_that_dvc_itself_writes(root, tmp_path, name):
    from dvc.utils.serialize import modify_yaml

    whole = (root / "dvc.lock").read_text()
    entry = yaml.safe_load(whole)["stages"].get(name) or {"cmd": "true"}
    entry |= {"params": {"params.yaml": {"passage": "{title}\n{text}", "none": None, "share": 1e-05, "yes": "no"}}}
    for folder, modify in (("dvc", modify_yaml), ("here", functools.partial(warm.modified_lock, None))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dvc.lock").write_text(whole)
        with modify(str(tmp_path / folder / "dvc.lock")) as data:
            data["stages"].update({name: entry})
    written = (tmp_path / "here/dvc.lock").read_text()
    assert written == (tmp_path / "dvc/dvc.lock").read_text()
    assert written != whole


@pytest.mark.parametrize(
    "text", ["", "schema: '2.0'\n# mine\nstages:\n  a:\n    cmd: b\n", "schema: '2.0'\nstages: {}\n"]
)
def test_a_dvc_lock_that_dvc_did_not_write_so_is_left_to_dvc(tmp_path, text):
    from dvc.utils.serialize import modify_yaml

    (tmp_path / "dvc.lock").write_text(text)
    with warm.modified_lock(modify_yaml, str(tmp_path / "dvc.lock")) as data:
        data.setdefault("stages", {})["b"] = {"cmd": "c"}
    assert yaml.safe_load((tmp_path / "dvc.lock").read_text())["stages"]["b"] == {"cmd": "c"}
    assert ("# mine" in text) == ("# mine" in (tmp_path / "dvc.lock").read_text())


def test_a_killed_run_leaves_no_process(project):
    child = project.start_asleep()
    family = psutil.Process(child.pid).children(recursive=True)
    child.kill()
    child.communicate(timeout=PATIENCE)
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == []


def test_a_run_whose_forking_process_is_killed_says_so_and_leaves_no_process(project):
    child = project.start_asleep()
    family = psutil.Process(child.pid).children(recursive=True)
    (server,) = [process for process in family if process.ppid() == child.pid and "flows.warm" in process.cmdline()]
    server.kill()
    _, said = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1
    assert "error: a: killed by signal 9" in said
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == []
    (project.folder / "input.txt").write_text("one")
    done = project.longtail("run")
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_requests_that_come_at_once_are_two():
    sender, receiver = socket.socketpair()
    with sender, receiver:
        for number in range(2):
            output, told_at = os.pipe()
            request = json.dumps({"number": number}).encode()
            socket.send_fds(sender, [warm.LENGTH.pack(len(request))], [output, told_at])
            sender.sendall(request)
            os.close(output)
            os.close(told_at)
        for number in range(2):
            output, told_at, content = warm._receive(receiver)
            assert content == {"number": number}
            os.write(told_at, b"open")
            assert os.read(output, 4) == b"open"
            os.close(output)
            os.close(told_at)
