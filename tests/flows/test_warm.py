"""A stage forked from a process with everything loaded does what `python -m` would do, and ends with its run."""

from __future__ import annotations

import functools
import json
import os
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


def run(root, folder, *words: str) -> tuple[str, dict]:
    """What the command says, and what the stage `tell` has told."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout, json.loads((folder / "told.json").read_text())


def test_a_forked_stage_is_started_as_dvc_starts_it_and_its_exit_code_is_dvcs(root, folder):
    """Other commands get their shell. On one thread of the CPU torch is loaded beforehand."""
    _, alone = run(root, folder, "-m", "dvc", "repro", "-q", "--single-item", "tell")
    lock = (folder / "dvc.lock").read_bytes()
    of_warm = ["--single-item --force tell", "--single-item fail", "--single-item shell", "--single-item nosuch"]
    said, forked = run(root, folder, "-c", WARM, *of_warm)
    assert said.splitlines()[:3] == ["Running stage 'tell':", f"> {sys.executable} -m tell one two=2", "told"]
    assert forked["told"] == alone["told"]
    assert (forked["pid"], (folder / "dvc.lock").read_bytes()) != (alone["pid"], lock)
    assert (forked["loaded"], alone["loaded"]) == (True, False)
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
    """One that DVC did not write so is left to DVC."""
    from dvc.utils.serialize import modify_yaml

    whole = (root / "dvc.lock").read_text()
    odd = {"passage": "{title}\n{text}", "none": None, "share": 1e-05, "yes": "no"}
    stages = yaml.load(whole, yaml.CSafeLoader)["stages"]
    names = ("report", "answer@popqa-tiny-bm25", "a new one")
    entries = {name: stages.get(name, {"cmd": "true"}) | {"params": {"params.yaml": {**odd}}} for name in names}
    mine, here = (
        "schema: '2.0'\n# mine\nstages:\n  a:\n    cmd: b\n",
        functools.partial(warm.modified_lock, modify_yaml),
    )
    for before in (whole, "", mine, "schema: '2.0'\nstages: {}\n"):
        written = []
        for modify in (modify_yaml, here):
            (tmp_path / "dvc.lock").write_text(before)
            with modify(str(tmp_path / "dvc.lock")) as data:
                data.setdefault("stages", {}).update(entries)
            written.append((tmp_path / "dvc.lock").read_text())
        assert written[0] == written[1] != before


@pytest.mark.parametrize("killed", ["the process that runs", "the process that forks"])
def test_of_a_killed_process_no_fork_is_left_at_work(root, folder, killed):
    """A flow whose process that forks is killed hears that of DVC's process too."""
    script = (WARM[: WARM.index("while")] + WARM[WARM.index("for words") :]).replace("threads=1", "threads=2")
    command = [sys.executable, "-c", script, "--single-item sleep"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    until(lambda: (folder / "asleep").exists() or process.poll() is not None)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 3, "the process that forks, DVC and the stage"
    (server,) = [child for child in family if child.ppid() == process.pid]
    (process if killed == "the process that runs" else server).kill()
    out, _ = process.communicate(timeout=PATIENCE)
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
    assert killed == "the process that runs" or out.split()[-1] == "-9"
