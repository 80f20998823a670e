"""The scheduler and workers of docs/cluster.md: who has no certificate stays out, and status links their pages."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE, until

from pipelines import params, pool
from pipelines.errors import LongtailError

pytestmark = pytest.mark.slow


def commands(root: Path, mark: str) -> list[list[str]]:
    """The commands of the block of docs/cluster.md that has `mark`."""
    blocks = (root / "docs/cluster.md").read_text(encoding="utf-8").split("```sh\n")[1:]
    (block,) = (block.partition("```")[0] for block in blocks if mark in block)
    return [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.fixture(scope="module")
def certificates(root, tmp_path_factory) -> Path:
    """What the guide's openssl commands write."""
    folder = tmp_path_factory.mktemp("certificates")
    for command in commands(root, "openssl req"):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def address(root, certificates):
    """A scheduler with a worker, started as the guide says, here."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []
    for words in commands(root, "dask scheduler --protocol tls"):
        words = [
            "127.0.0.1" if word == "10.0.0.1" else word.replace("10.0.0.1:8786", f"127.0.0.1:{port}") for word in words
        ]
        words += ["--port", str(port), "--dashboard-address", ":0"] if "scheduler" in words else ["--no-dashboard"]
        command = [sys.executable, "-m", "dask", *words[1:]]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        started.append(subprocess.Popen(command, cwd=certificates, env=environment, stderr=subprocess.DEVNULL))
        until(lambda: listens(port))
    yield f"tls://127.0.0.1:{port}"
    for process in started:
        process.terminate()
    for process in started:
        process.wait(PATIENCE)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", port))


@pytest.fixture
def trusted(root, certificates, monkeypatch):
    """Dask's settings, as the guide exports them for the run."""
    monkeypatch.setattr(pool, "PATIENCE", PATIENCE)
    import dask
    import distributed  # noqa: F401 - its settings come with it

    exported = [word.replace("$PWD", str(certificates)).split("=") for _, word in commands(root, "export DASK_")]
    keys = (name.removeprefix("DASK_").lower().replace("__", ".").replace("_", "-") for name, _ in exported)
    with dask.config.set(dict(zip(keys, (value for _, value in exported), strict=True))):
        yield


def test_shards_go_over_tls_to_the_workers_of_the_guide_and_without_a_certificate_no_scheduler_answers(
    workplace, address, request, monkeypatch
):
    compute = params.Compute(threads=1, workers=2, executor="dask", dask=address, device="cpu")
    with monkeypatch.context() as patch:
        patch.setattr(pool, "PATIENCE", 1)
        with pytest.raises(LongtailError, match=r"compute.dask: no scheduler answers at tls://127"):
            pool.about(address)
    request.getfixturevalue("trusted")
    with pool.processes(compute) as executor:
        assert list(executor.map(abs, [-1, -2])) == [1, 2]
    until(lambda: "has 2 workers" in pool.about(address))
    said = f"{address} has 2 workers, 2 of them with the resource GPU; its dashboard: http"
    assert pool.about(address).startswith(said)
