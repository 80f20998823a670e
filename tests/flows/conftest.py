"""The quick project before and after its first run, a Prefect server for all tests, and the folder of a user."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest
import quick_project
from quick_project import LAST, Prefect, Project
from user_folder import LAPTOP


@pytest.fixture(scope="session")
def prefect(databases, tmp_path_factory) -> Iterator[Prefect]:
    """A server that is up for all tests here."""
    from flows import server

    home = shutil.copytree(databases / ".longtail/prefect", tmp_path_factory.mktemp("prefect") / "home")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"PREFECT_HOME": str(home)} | quick_project.FEW_SERVICES
    environment |= {"PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false"}
    with ExitStack() as stack:
        with mock.patch.dict(os.environ, environment, clear=True):
            url = stack.enter_context(server.start(home))
        yield Prefect(url, home)


@pytest.fixture(scope="session")
def fresh(root, databases, tmp_path_factory) -> Path:
    """The quick project with nothing run yet. Tests work on copies."""
    return quick_project.make(shutil.copytree(databases, tmp_path_factory.mktemp("fresh") / "project"), root)


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
    """The quick project after its first run, which said `done`, and `logged` to Prefect. Tests work on copies."""
    project = Project(refill(place, fresh), root, prefect)
    done = project.longtail("run")
    assert done.returncode == 0, done.stdout + done.stderr
    project.folder = shutil.copytree(place, tmp_path_factory.mktemp("ran") / "project", symlinks=True)
    project.done, project.logged = done, prefect.ask(f"SELECT message FROM log WHERE flow_run_id = {LAST}")
    return project


@pytest.fixture
def ran(root, place, first, prefect) -> Project:
    """The quick project after its first run."""
    return Project(refill(place, first.folder), root, prefect)


@pytest.fixture
def checkout(root, tmp_path, monkeypatch) -> Path:
    """The working folder, with the project's conf/; `data` in it is the user's folder."""
    from flows import init_profile

    shutil.copytree(root / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init_profile, "this_machine", lambda: LAPTOP)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"
