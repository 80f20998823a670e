"""The dvc command writes dvc.lock and its rwlock whole or not at all."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
import yaml
from dvc.utils.serialize import _yaml
from ruamel.yaml.representer import RepresenterError

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


def test_the_lock_is_written_as_dvc_writes_it(tmp_path):
    texts = [
        "no",
        "yes",
        "on",
        "null",
        "~",
        "",
        "1e-05",
        "2021-10",
        "012",
        "0x1f",
        "1:30",
        "1_000",
        "x: y",
        "# c",
        "'q'",
    ]
    texts += [
        '"',
        "é",
        "日本",
        "a\nb",
        "x: \ny",
        " before",
        "after ",
        "*a",
        "&b",
        "!t",
        "%",
        "@",
        "`",
        "- x",
        "{",
        "[",
        "|",
    ]
    data: dict = {text: text for text in texts} | {
        "none": None,
        "all": [None, 1, 1e-5, 1.0, True, 10**20, float("inf")],
    }
    data |= {"nested": [{"a": 1, "b": [OrderedDict(d=1, c={})]}, [[]]], "z": 1, "a": 2}
    ours, theirs = io.StringIO(), io.StringIO()
    dvc._dump_lock(data, ours)
    _yaml._dump(data, theirs)
    assert ours.getvalue() == theirs.getvalue()
    assert dvc._parse(ours.getvalue(), "dvc.lock") == data == _yaml.parse_yaml(theirs.getvalue(), "")


def test_a_file_with_comments_keeps_them(tmp_path):
    dvc.write_whole()
    path = tmp_path / "dvc.yaml"
    path.write_text("# why\na: 1 # so\n")
    with _yaml.modify_yaml(path) as data:
        data["a"] = 2
    assert path.read_text() == "# why\na: 2 # so\n"


@pytest.mark.parametrize("name", ["dvc.lock", "dvc.yaml"])
def test_a_dump_that_stops_half_way_leaves_the_old_file(tmp_path, name):
    path = tmp_path / name
    path.write_text("old")

    def half(data, stream):
        stream.write("ha")
        raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, RepresenterError)):
        dvc._dump_whole(path, {"a": 1, "b": object()}, half)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == [name]


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
