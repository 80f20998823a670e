"""A small DVC project whose stages are quick, a -> (b1, b2) -> c; and a checkout with the folder of a user."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from quick_project import Project
from user_folder import LAPTOP

DVC_YAML = """
stages:
  a:
    cmd: {python} -m work a
    deps: [work.py, input.txt]
    params: [seed]
    outs: [data/a]
    metrics: [data/metrics/a.json]
  b:
    matrix: {{n: [1, 2]}}
    cmd: {python} -m work b${{item.n}}
    meta: {{workers: all}}
    deps: [work.py, data/a]
    outs: ["data/b${{item.n}}"]
  c:
    cmd: {python} -m work c
    deps: [work.py, data/b1, data/b2]
    params: [{{data/metrics/a.json: [rows]}}]
    outs: [data/c]
"""

WORK = """
import os, signal, sys, time
from pathlib import Path
from pipelines import shards, stage
from pipelines.errors import LongtailError, Unreachable
name = sys.argv[1]
def work(params):
    text = Path("input.txt").read_text()
    started = time.time()
    with open("begun.txt", "a") as log:
        log.write(f"{name}\\n")
    if text.startswith(f"fail {name}"):
        raise LongtailError("input.txt: says fail, expected anything else; edit it")
    if text.startswith(f"away {name}") and not os.path.exists("back"):
        Path("back").touch()
        raise Unreachable("http://127.0.0.1: no connection; run again to go on")
    if text.startswith(f"crash {name}"):
        raise ZeroDivisionError("a bug")
    if text.startswith(f"sleep {name}"):
        Path("asleep").write_text(str(os.getpid()))
        time.sleep(600)
    if f"bar {name}" in text:
        from tqdm import tqdm
        with tqdm(total=8, desc=name, unit="row", mininterval=0) as bar:
            bar.update(2)
            while not os.path.exists("on"):
                time.sleep(0.05)
            bar.update(6)
    if f"kill {name}" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    with shards.atomic(f"data/{name}") as temporary:
        temporary.write_text(text if name == "a" else name)
    with open("times.txt", "a") as log:
        log.write(f"{name} {started} {time.time()}\\n")
    if name == "a":
        value = 0.3 if text.endswith("worse") else 0.5
        accuracy = {"value": value, "low": value - 0.1, "high": value + 0.1}
        shards.write_json("data/metrics/a.json", {"rows": 3, "accuracy": accuracy})
    return {"rows": 3.0, "loss": [3.0, 2.0, 1.0]}
stage.run(name, ("seed",), work, out=f"data/{name}")
"""


@pytest.fixture(scope="module")
def project(root, databases, tmp_path_factory) -> Project:
    """One for each file of tests, in a git repository, with nothing run yet."""
    from flows import profiles

    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(databases, folder, dirs_exist_ok=True)
    (folder / "conf").mkdir()
    (folder / "conf/config.yaml").touch()
    params = yaml.safe_load(profiles.compose("sample", root))
    params["compute"]["threads"] = 2  # so that no run loads torch beforehand, which none of these stages needs
    (folder / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    (folder / "dvc.yaml").write_text(DVC_YAML.format(python=sys.executable))
    (folder / "work.py").write_text(WORK)
    (folder / "input.txt").write_text("one")
    (folder / ".gitignore").write_text(".longtail\nmlflow.db\nmlruns\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=folder, check=True)
    (folder / "data").mkdir()
    (folder / "data/.gitignore").write_text("*\n")
    subprocess.run([*git, "add", "-A"], cwd=folder, check=True)
    subprocess.run([*git, "commit", "-qm", "a project"], cwd=folder, check=True)
    return Project(folder, root)


@pytest.fixture(scope="module")
def served(project) -> Iterator[None]:
    with project.served():
        yield


@pytest.fixture
def checkout(root, tmp_path, monkeypatch) -> Path:
    """The working folder, with the project's conf/; `data` in it is the user's folder."""
    from flows import init_profile

    shutil.copytree(root / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init_profile, "this_machine", lambda: LAPTOP)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"
