"""The dvc command writes dvc.lock and its rwlock whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows import dvc


def repro(folder: Path, root: Path, module: str) -> bytes:
    command = [sys.executable, "-m", module, "repro", "-f"]
    subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(root), "PATH": "/bin:/usr/bin"}, check=True)
    return (folder / "dvc.lock").read_bytes()


def test_the_lock_is_the_one_that_dvc_writes(root, tmp_path):
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], cwd=tmp_path, check=True)
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"a": {"cmd": "echo a > a", "outs": ["a"]}}}))
    whole = repro(tmp_path, root, "flows.dvc")
    (tmp_path / "dvc.lock").unlink()
    assert repro(tmp_path, root, "dvc") == whole


def test_a_dump_that_stops_half_way_leaves_the_old_file(tmp_path):
    path = tmp_path / "dvc.lock"
    path.write_text("old")

    def half(data, stream):
        stream.write("ha")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dvc._dump_whole(path, {}, half)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["dvc.lock"]


def test_a_killed_dvc_leaves_no_half_rwlock(root, tmp_path):
    """Killed while the table of readers and writers is being written, DVC starts again as if nothing had been."""
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], cwd=tmp_path, check=True)
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"a": {"cmd": "echo a > a", "outs": ["a"]}}}))
    killed = (
        "import os, signal\nfrom dvc import rwlock\nfrom flows import dvc\n"
        "def half(data, stream):\n"
        "    stream.write('{\"read\": ')\n    stream.flush()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "rwlock.json.dump = half\ndvc.main()\n"
    )
    environment = {"PYTHONPATH": str(root), "PATH": "/bin:/usr/bin"}
    child = subprocess.run([sys.executable, "-c", killed, "repro"], cwd=tmp_path, env=environment)
    assert child.returncode == -signal.SIGKILL
    assert repro(tmp_path, root, "flows.dvc")
