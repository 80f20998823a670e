"""The scheduler and workers of docs/cluster.md: who has no certificate stays out, and status
links their pages.
"""

import os
import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import PATIENCE, until

from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.work import executors


def commands(root: Path, mark: str) -> list[list[str]]:
    """The commands of the block of docs/cluster.md that has `mark`."""
    blocks = (root / "docs/cluster.md").read_text(encoding="utf-8").split("```sh\n")[1:]
    (block,) = (block.partition("```")[0] for block in blocks if mark in block)
    return [
        shlex.split(line, comments=True)
        for line in block.replace("\\\n", " ").splitlines()
        if line.strip()
    ]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", port))


@pytest.fixture
def address(root, workplace):
    """A scheduler with two workers, started here as the guide says, with the certificates of
    its openssl commands.
    """
    for command in commands(root, "openssl req"):
        subprocess.run(command, check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ExitStack() as stack:
        for words in commands(root, "dask scheduler --protocol tls"):
            here = [
                word.replace("10.0.0.1", "127.0.0.1").replace(":8786", f":{port}") for word in words
            ]
            here += (
                ["--port", str(port), "--dashboard-address", ":0"]
                if "scheduler" in words
                else ["--no-dashboard"]
            )
            command = [sys.executable, "-m", "dask", *here[1:]]
            environment = {**os.environ, "PYTHONPATH": str(root)}
            process = stack.enter_context(
                subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.terminate)
            until(lambda: listens(port))
        yield f"tls://127.0.0.1:{port}"


@pytest.mark.slow
def test_shards_go_over_tls_as_the_guide_says(root, address, monkeypatch):
    import dask
    import distributed  # noqa: F401 - Dask's settings of certificates come with it

    monkeypatch.setattr(executors, "PATIENCE_SECONDS", 1)
    compute = params.Compute(threads=1, workers=2, dask=address, device="cpu")
    with (
        pytest.raises(LongtailError, match=r"no scheduler answers at tls://127"),
        executors.processes(compute),
    ):
        pass
    monkeypatch.setattr(executors, "PATIENCE_SECONDS", PATIENCE)
    exported = dict(
        word.replace("$PWD", os.getcwd()).split("=") for _, word in commands(root, "export DASK_")
    )
    names = {
        name: name.removeprefix("DASK_").lower().replace("__", ".").replace("_", "-")
        for name in exported
    }

    def workers() -> int:
        with executors.processes(compute, gpu=True) as executor:
            assert list(executor.map(abs, [-1, -2])) == [1, 2]
            return executor.workers

    with dask.config.set({names[name]: value for name, value in exported.items()}):
        until(lambda: workers() == 2)
