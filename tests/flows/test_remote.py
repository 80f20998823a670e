"""What was pushed comes back in a fresh clone without computing; from a folder, and from a server that speaks S3."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from quick_project import Project, git


@pytest.fixture
def remote(ran, tmp_path) -> Path:
    """The folder that is the default remote of the project, in which b is called as the stage that `corpus` names."""
    dvc_yaml = ran.folder / "dvc.yaml"
    dvc_yaml.write_text(dvc_yaml.read_text().replace("  b:\n", "  chunk:\n"))
    assert ran.dvc("remote", "add", "--default", "here", str(tmp_path / "remote")).returncode == 0
    for log in (ran.folder / ".longtail/logs").iterdir():
        log.unlink()
    return tmp_path / "remote"


def clone(project: Project, folder: Path) -> Project:
    git(project.folder, "add", "dvc.lock")
    git(project.folder, "commit", "-qam", "what was run")
    git(project.folder, "clone", "-q", ".", str(folder))
    return Project(folder, project.root)


def test_what_was_pushed_comes_back_in_a_clone_and_nothing_is_left_to_do(ran, remote, tmp_path):
    """A part is run with what it needs, and pushed with DVC's run cache."""
    done = ran.longtail("run", "corpus", "--push")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 ran, 2 restored from the cache, 1 unchanged; pushed: " in done.stdout
    logged = [path.name for path in (ran.folder / ".longtail/logs").iterdir()]
    assert sorted(logged) == ["chunk@1.log", "chunk@2.log", "push.log"]
    assert ran.dvc("push", "c").returncode == 0
    made = clone(ran, tmp_path / "clone")
    assert made.dvc("pull").returncode == 0
    assert made.dvc("status").stdout == "Data and pipelines are up to date.\n"
    assert (made.folder / "data/c").read_text() == "c"
    shutil.rmtree(made.folder / ".dvc/cache")
    for path in ("dvc.lock", "data/a", "data/metrics/a.json"):
        (made.folder / path).unlink()
    assert made.dvc("repro", "--pull", "a").returncode == 0
    assert (made.folder / "data/a").read_text() == "one"
    assert not (made.folder / "begun.txt").exists(), "no stage's command was run"


def test_a_push_that_can_not_help_itself_fails_once_by_name_and_the_data_stay(ran, remote, tmp_path):
    (tmp_path / "file").touch()
    ran.dvc("remote", "modify", "here", "url", str(tmp_path / "file/below"))
    done = ran.longtail("run", "corpus", "--push")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: push: failed to transfer"), last
    assert "Not a directory" in last
    assert last.endswith(
        "the data are whole here, `dvc push --run-cache` sends them (all it said: .longtail/logs/push.log)"
    )
    tried = [line.split("ERROR: ")[1] for line in done.stderr.splitlines() if "ERROR: failed" in line]
    assert len(tried) == len(set(tried)) > 1
    assert ran.dvc("status").stdout == "Data and pipelines are up to date.\n"


@pytest.mark.slow
def test_a_clone_pulls_from_a_server_that_speaks_s3(ran, tmp_path):
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        secret = {"aws_access_key_id": "anyone", "aws_secret_access_key": "anything"}
        boto3.client("s3", endpoint_url=url, region_name="us-east-1", **secret).create_bucket(Bucket="longtail")
        ran.environment |= {name.upper(): value for name, value in secret.items()}
        ran.dvc("remote", "add", "--default", "bucket", "s3://longtail/data")
        ran.dvc("remote", "modify", "bucket", "endpointurl", url)
        assert ran.dvc("push", "--run-cache").returncode == 0
        made = clone(ran, tmp_path / "clone")
        made.environment = ran.environment
        assert made.dvc("pull").returncode == 0
        assert made.dvc("status").stdout == "Data and pipelines are up to date.\n"
    finally:
        server.stop()
