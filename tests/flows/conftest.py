"""A small DVC project whose stages are quick, a -> (b1, b2) -> c; and a checkout with the folder of a user."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest
import yaml
from quick_project import LAST, Prefect, Project, dvc_init, git
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
    with open("begun.txt", "a") as log:
        log.write(f"{name}\\n")
    if text.startswith(f"fail {name}"):
        raise LongtailError("input.txt: says fail, expected anything else; edit it")
    if text.startswith(f"away {name}") and not os.path.exists("back"):
        Path("back").touch()
        raise Unreachable("http://127.0.0.1: no connection; run again to go on")
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
    with shards.atomic(f"data/{name}") as temporary:
        temporary.write_text(text if name == "a" else name)
    if name == "a":
        value = 0.3 if text.endswith("worse") else 0.5
        accuracy = {"value": value, "low": value - 0.1, "high": value + 0.1}
        shards.write_json("data/metrics/a.json", {"rows": 3, "accuracy": accuracy})
    return {"rows": 3.0, "loss": [3.0, 2.0, 1.0]}
stage.run(name, ("seed",), work, out=f"data/{name}")
"""

SERVICES = (
    "SCHEDULER",
    "LATE_RUNS",
    "FOREMAN",
    "PAUSE_EXPIRATIONS",
    "CANCELLATION_CLEANUP",
    "EVENT_PERSISTER",
    "TRIGGERS",
)


@pytest.fixture(scope="session")
def prefect(databases, tmp_path_factory) -> Iterator[Prefect]:
    """A server that is up for all tests here, without the services that no test here needs."""
    from flows import server

    home = shutil.copytree(databases / ".longtail/prefect", tmp_path_factory.mktemp("prefect") / "home")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    environment |= {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in SERVICES}
    with ExitStack() as stack:
        with mock.patch.dict(os.environ, environment, clear=True):
            url = stack.enter_context(server.start(home))
        yield Prefect(url, home)


@pytest.fixture(scope="session")
def fresh(root, databases, tmp_path_factory) -> Path:
    """The quick project in a git repository, with nothing run yet. Tests work on copies."""
    from flows import profiles

    folder = shutil.copytree(databases, tmp_path_factory.mktemp("fresh") / "project")
    (folder / "conf").mkdir()
    (folder / "conf/config.yaml").touch()
    params = yaml.safe_load(profiles.compose("sample", root))
    params["compute"]["threads"] = 2  # so that no run loads torch beforehand, which none of these stages needs
    (folder / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    (folder / "dvc.yaml").write_text(DVC_YAML.format(python=sys.executable))
    (folder / "work.py").write_text(WORK)
    (folder / "input.txt").write_text("one")
    (folder / ".gitignore").write_text(".longtail\nmlflow.db\nmlruns\n")
    git(folder, "init", "-q")
    dvc_init(folder, scm=True)
    (folder / "data").mkdir()
    (folder / "data/.gitignore").write_text("*\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a project")
    return folder


@pytest.fixture(scope="session")
def place(tmp_path_factory) -> Iterator[Path]:
    """The one folder of all runs in this process, because the process that forks DVC and stages stays in it."""
    from flows import warm

    folder = tmp_path_factory.mktemp("runs") / "a project"
    folder.mkdir()
    yield folder
    if warm._server:
        process, requests = warm._server
        requests.close()
        process.wait()
        warm._server = None


def refill(place: Path, template: Path) -> Path:
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return shutil.copytree(template, place, symlinks=True, dirs_exist_ok=True)


@pytest.fixture
def unserved(root, place, fresh) -> Project:
    """The quick project, with nothing run yet. A run in a process of its own starts a server of its own."""
    return Project(refill(place, fresh), root)


@pytest.fixture
def project(root, place, fresh, prefect) -> Project:
    """The quick project, with nothing run yet."""
    return Project(refill(place, fresh), root, prefect)


@pytest.fixture(scope="session")
def first(root, place, fresh, prefect, tmp_path_factory) -> Project:
    """The quick project after its first run, as a user starts it: what it said is `done`. Tests work on copies."""
    project = Project(refill(place, fresh), root, prefect)
    done = project.real("run")
    assert done.returncode == 0, done.stdout + done.stderr
    project.folder = shutil.copytree(place, tmp_path_factory.mktemp("ran") / "project", symlinks=True)
    project.done, project.run = done, prefect.ask(f"SELECT {LAST}")[0][0]
    return project


@pytest.fixture
def ran(root, place, first, prefect) -> Project:
    """The quick project after its first run."""
    return Project(refill(place, first.folder), root, prefect)


@pytest.fixture
def call(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """The longtail command in this process, called from the working folder. Gives exit code, output and errors."""
    from flows import cli, terminal

    def call(*words, command="longtail"):
        monkeypatch.setattr(terminal, "CALLED_FROM", Path.cwd())
        monkeypatch.setattr(sys, "argv", [command, *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (ended.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def checkout(root, tmp_path, monkeypatch) -> Path:
    """The working folder, with the project's conf/; `data` in it is the user's folder."""
    from flows import init_profile

    shutil.copytree(root / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init_profile, "this_machine", lambda: LAPTOP)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"
