"""What was pushed comes back in a fresh clone without computing; from a folder, and from a server that speaks S3."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from quick_project import Project

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]


class Pushed(NamedTuple):
    """A project whose commit and default remote hold everything."""

    project: Project
    clones: Path

    def clone(self, name: str) -> Project:
        folder = self.clones / name
        subprocess.run(["git", "clone", "-q", str(self.project.folder), str(folder)], check=True)
        made = Project(folder, self.project.root)
        made.environment = self.project.environment
        return made


def commit(project: Project) -> None:
    for words in (["add", "dvc.lock"], ["commit", "-qam", "what was run"]):
        subprocess.run([*GIT, *words], cwd=project.folder, check=True)


@pytest.fixture(scope="module")
def first(project, served, tmp_path_factory):
    """A run of a part of the project, pushed to a folder, and by plain DVC the rest of it."""
    dvc_yaml = project.folder / "dvc.yaml"
    dvc_yaml.write_text(dvc_yaml.read_text().replace("  b:\n", "  chunk:\n"))
    project.dvc("remote", "add", "--default", "here", str(tmp_path_factory.mktemp("remote")))
    return project.longtail("run", "corpus", "--push")


def test_a_part_is_run_with_what_it_needs_and_pushed(project, first):
    assert first.returncode == 0, first.stdout + first.stderr
    assert "3 ran, 0 restored from the cache, 0 unchanged; pushed: " in first.stdout
    assert not (project.folder / "data/c").exists()
    assert "in sync" in project.dvc("status", "--cloud", "chunk").stdout
    logged = [path.name for path in (project.folder / ".longtail/logs").iterdir()]
    assert sorted(logged) == ["a.log", "chunk@1.log", "chunk@2.log", "push.log"]


def test_a_push_that_can_not_help_itself_fails_once_by_name_and_the_data_stay(project, first):
    (project.folder / "file").touch()
    project.dvc("remote", "modify", "--local", "here", "url", str(project.folder / "file/below"))
    done = project.longtail("run", "corpus", "--push")
    (project.folder / ".dvc/config.local").unlink()
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: push: failed to transfer"), last
    assert "Not a directory" in last
    assert last.endswith(
        "the data are whole here, `dvc push --run-cache` sends them (all it said: .longtail/logs/push.log)"
    )
    tried = [line.split("ERROR: ")[1] for line in done.stderr.splitlines() if "ERROR: failed" in line]
    assert len(tried) == len(set(tried)) > 1
    assert "up to date" in project.dvc("status", "chunk").stdout


@pytest.fixture(scope="module", params=["folder", "s3"])
def pushed(request, project, first, tmp_path_factory) -> Iterator[Pushed]:
    """The whole project, pushed to the folder that is there, or to S3."""
    assert project.dvc("repro").returncode == 0
    if request.param == "folder":
        commit(project)
        assert project.dvc("push", "--run-cache").returncode == 0
        yield Pushed(project, tmp_path_factory.mktemp("clones"))
        return
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        import boto3

        secret = {"aws_access_key_id": "anyone", "aws_secret_access_key": "anything"}
        boto3.client("s3", endpoint_url=url, region_name="us-east-1", **secret).create_bucket(Bucket="longtail")
        project.environment |= {name.upper(): value for name, value in secret.items()}
        project.dvc("remote", "add", "--default", "bucket", "s3://longtail/data")
        project.dvc("remote", "modify", "bucket", "endpointurl", url)
        commit(project)
        done = project.dvc("push", "--run-cache")
        assert done.returncode == 0, done.stderr
        yield Pushed(project, tmp_path_factory.mktemp("clones"))
    finally:
        server.stop()


def test_pull_brings_everything_and_nothing_is_left_to_do(pushed):
    clone = pushed.clone("pull")
    done = clone.dvc("pull")
    assert done.returncode == 0, done.stderr
    assert clone.dvc("status").stdout == "Data and pipelines are up to date.\n"
    assert "Running stage" not in clone.dvc("repro").stdout
    assert not (clone.folder / "begun.txt").exists(), "no stage's command was run"
    assert (clone.folder / "data/c").read_text() == "c"


def test_repro_pull_takes_from_the_run_cache_what_the_lock_does_not_know(pushed):
    clone = pushed.clone("run_cache")
    (clone.folder / "dvc.lock").unlink()
    done = clone.dvc("repro", "--pull")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("is cached - skipping run") == 4
    assert not (clone.folder / "begun.txt").exists()
    lock = (pushed.project.folder / "dvc.lock").read_text()
    assert (clone.folder / "dvc.lock").read_text() == lock
