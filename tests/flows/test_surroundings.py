"""What is wrong around a command is one line that says what to do."""

import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from flows import cli, data_branch, dvc_repo, landing, named_server, server, surroundings
from flows.commands import looking
from pipelines import name_user
from pipelines.errors import LongtailError

JSON = "application/json"
HTML = "text/html"


@contextmanager
def answering(status: int, body: str, kind: str) -> Iterator[str]:
    """The address of a server that gives one answer to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/api"
    finally:
        httpd.shutdown()
        httpd.server_close()


def problem_of(url: str) -> str:
    """What is said of the server that Prefect's settings name."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: url}), pytest.raises(LongtailError) as error:
        named_server.check_named_server(url)
    message = str(error.value)
    assert message.startswith(f"PREFECT_API_URL={url}: ")
    assert "unset PREFECT_API_URL" in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("status", "body", "kind", "problem"),
    [
        (200, "<html>a portal</html>", HTML, "something else than a Prefect server answers"),
        (200, '{"a": 1}', JSON, "something else than a Prefect server answers"),
        (404, "no such page", HTML, "no Prefect server answers there, but status 404"),
        (500, "oops", HTML, "no Prefect server answers there, but status 500"),
        (302, "", HTML, "no Prefect server answers there, but status 302"),
        (401, '{"detail": "Unauthorized"}', JSON, "it wants a key .*PREFECT_API_KEY"),
        (403, '{"detail": "Forbidden"}', JSON, "it wants a key .*PREFECT_API_AUTH_STRING"),
        (200, '"2.20.0"', JSON, r"incompatible versions: .*server: 2\.20\.0"),
    ],
)
def test_a_named_server_that_is_no_use(status: int, body: str, kind: str, problem: str) -> None:
    with answering(status, body, kind) as url:
        message = problem_of(url)
    assert re.search(problem, message)


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/api", "127.0.0.1:{}/api"])
def test_a_named_server_that_is_not_there(url: str) -> None:
    assert "nothing answers there" in problem_of(url.format(server.port_for(0)))


def test_a_damaged_database_of_prefect_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    (tmp_path / "prefect.db").write_bytes(b"no database" * 500)
    message = rf"did not start: .*PREFECT_HOME={tmp_path}.*move prefect\.db there away"
    with pytest.raises(LongtailError, match=message), server.start(tmp_path):
        pass


CONFLICT = "a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> other\n"


@pytest.mark.parametrize("name", ["dvc.lock", "params.yaml", "conf/profile/c.yaml", ".dvc/config"])
def test_conflict_marks_explain_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CONFLICT)
    expected = f"{name}: line 2: git's conflict marks (<<<<<<<), "
    for error in (yaml.YAMLError("could not find ':'"), LongtailError(f"{name}: not YAML")):
        message = surroundings.explain(error)
        assert message is not None
        assert message.startswith(expected)
        assert message.endswith(f"git checkout HEAD -- {name}")
    assert surroundings.explain(LongtailError("another trouble")) == "another trouble"


def test_a_cut_dvc_lock_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "dvc.lock").write_text("schema: '2.0'\nstages:\n  fetch:\n    cm")
    with pytest.raises(LongtailError, match=r"dvc\.lock: cut or damaged, .*git checkout HEAD"):
        dvc_repo.stages_of_lock(tmp_path)


def test_a_folder_without_git_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dvc").mkdir()
    message = r"not a git repository.*; .*run git init in it"
    with pytest.raises(LongtailError, match=message), dvc_repo.opened(tmp_path):
        pass
    with pytest.raises(LongtailError, match=message):
        data_branch.check_committed()


def test_a_damaged_git_config_is_one_line(tmp_path: Path) -> None:
    (tmp_path / ".dvc").mkdir()
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".git/config").write_text("[[[")
    with (
        pytest.raises(LongtailError, match=r"DVC: .*whether \.git and \.dvc"),
        dvc_repo.opened(tmp_path),
    ):
        pass


def test_a_project_whose_path_is_not_utf8_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "caf\udce9"
    for name in ("dvc.yaml", "conf/config.yaml"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    monkeypatch.chdir(project)
    monkeypatch.setattr("sys.argv", ["longtail", "status"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    assert "bytes that are not UTF-8, expected a path in UTF-8" in capsys.readouterr().err


def test_a_damaged_git_index_is_one_line(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    surroundings.check_git_index(tmp_path)
    (tmp_path / ".git/index").write_bytes(b"DIRC\0\0\0\x09" + bytes(40))
    with pytest.raises(LongtailError, match=r"bad index .*move \.git/index away"):
        surroundings.check_git_index(tmp_path)


def test_a_machine_without_git_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LongtailError, match=r"'git'; install git"):
        data_branch.check_committed()


def test_the_command_of_a_copied_checkout_says_that_it_is_of_the_first(tmp_path, monkeypatch):
    for name in ("first", "copy"):
        (tmp_path / name / ".venv").mkdir(parents=True)
        (tmp_path / name / ".venv/place").write_text(f"{tmp_path / 'first'}\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "first/.venv"))
    surroundings.check_environment(tmp_path / "first")
    with pytest.raises(
        LongtailError, match=rf"^\.venv: the environment of {tmp_path}/first, .* `make install`"
    ):
        surroundings.check_environment(tmp_path / "copy")


def test_a_user_without_a_name_has_one(monkeypatch):
    """As in a container that runs as a number: DVC and MLflow ask for the user's name."""
    environment = {"HOME": "/home/ada"}
    name_user(environment)
    assert environment == {"HOME": "/home/ada"}, "this user has a name"

    def unknown(uid: int):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    name_user(environment)
    assert environment == {"HOME": "/home/ada", "USER": "12345"}
    without_home: dict[str, str] = {}
    name_user(without_home)
    assert without_home == {"HOME": "/", "USER": "12345"}


def test_the_reports_address_is_in_data_where_dvc_links_it_to_its_cache(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/report").mkdir(parents=True)
    (tmp_path / "5077").write_text("<html>")
    (tmp_path / "data/report/index.html").symlink_to(tmp_path / "5077")
    looking.report()
    page = str(tmp_path / "data/report/index.html")
    assert capsys.readouterr().out == f"{page}\n"
    assert f"`{page}`" in landing.link_report(landing.REPORT)
