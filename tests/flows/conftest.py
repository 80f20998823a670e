"""The quick project before and after its first run, a Prefect server for all tests, and the folder
of a user.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import dvc  # noqa: F401 - its log goes to what is standard output at its first import
import pytest
import quick_project
from once import once
from quick_project import LAST, Prefect, Project
from user_folder import LAPTOP

NAME = "a project"  # of its folder


@pytest.fixture(scope="session")
def prefect(databases, tmp_path_factory) -> Iterator[Prefect]:
    """A server that is up for all tests here."""
    from flows import server

    home = shutil.copytree(
        databases / ".longtail/prefect", tmp_path_factory.mktemp("prefect") / "home"
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")
    }
    environment |= {"PREFECT_HOME": str(home)} | quick_project.FEW_SERVICES
    environment |= {"PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false"}
    with ExitStack() as stack:
        with mock.patch.dict(os.environ, environment, clear=True):
            url = stack.enter_context(server.start(home))
        yield Prefect(url, home)


@pytest.fixture(scope="session")
def fresh(root, databases, tmp_path_factory) -> Path:
    """The quick project with nothing run yet. Tests work on copies."""

    def make(folder: Path) -> None:
        quick_project.make(shutil.copytree(databases, folder, dirs_exist_ok=True), root)

    return once(tmp_path_factory, "fresh", make)


@pytest.fixture
def unserved(root, tmp_path, fresh) -> Project:
    """The quick project, with nothing run yet.

    A run in a process of its own starts a server of its own.
    """
    return Project(_copy(fresh, tmp_path), root)


@pytest.fixture
def project(root, tmp_path, fresh, prefect) -> Project:
    """The quick project, with nothing run yet."""
    return Project(_copy(fresh, tmp_path), root, prefect)


@pytest.fixture(scope="session")
def first(root, fresh, prefect, tmp_path_factory) -> Path:
    """The quick project after its first run, in a folder beside said.json, which has what that said
    and logged.

    Tests work on copies.
    """

    def make(folder: Path) -> None:
        project = Project(_copy(fresh, folder), root, prefect)
        done = project.longtail("run", tracked=True)
        assert done.returncode == 0, done.stdout + done.stderr
        logged = prefect.ask(f"SELECT message FROM log WHERE flow_run_id = {LAST}")
        results = prefect.ask("SELECT count(*) FROM artifact WHERE type = 'result'")
        said = {"out": done.stdout, "err": done.stderr, "logged": logged, "results": results}
        (folder / "said.json").write_text(json.dumps(said), encoding="utf-8")

    return once(tmp_path_factory, "first", make) / NAME


@pytest.fixture
def ran(root, tmp_path, first, prefect) -> Project:
    """The quick project after its first run."""
    return Project(_copy(first, tmp_path), root, prefect)


def _copy(template: Path, folder: Path) -> Path:
    return shutil.copytree(template, folder / NAME, symlinks=True)


@pytest.fixture
def checkout(root, tmp_path, monkeypatch) -> Path:
    """The working folder, with the project's conf/; `data` in it is the user's folder."""
    from flows.init import write_profile

    shutil.copytree(root / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(write_profile, "this_machine", lambda: LAPTOP)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"
