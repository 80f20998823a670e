"""Profiles compose to what is committed, and to what params.py allows."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from flows import profiles
from pipelines.errors import LongtailError


def test_params_yaml_is_the_sample_profile_to_the_byte(root):
    assert (root / "params.yaml").read_text(encoding="utf-8") == profiles.compose("sample", root), (
        "`longtail profile sample` writes it"
    )


def test_every_profile_is_valid(root):
    names = profiles.names(root)
    assert {"sample", "excerpt", "paper", "tiny"} <= set(names)
    for name in names:
        assert f"profile: {name}\n" in profiles.compose(name, root)


def test_an_unknown_profile_names_those_there_are(root):
    with pytest.raises(LongtailError, match=r"'pepar'.*excerpt.*sample"):
        profiles.compose("pepar", root)


def test_dvc_composes_the_same_bytes(root, tmp_path):
    """`dvc exp run -S profile=…` and `longtail profile` must not fight over params.yaml."""
    from dvc.utils.hydra import compose_and_dump

    compose_and_dump(tmp_path / "params.yaml", str(root / "conf"), None, "config", str(tmp_path), ["profile=excerpt"])
    assert (tmp_path / "params.yaml").read_text(encoding="utf-8") == profiles.compose("excerpt", root)


def test_the_command_writes_params_yaml(root, tmp_path):
    shutil.copytree(root / "conf", tmp_path / "conf")
    shutil.copy(root / "dvc.yaml", tmp_path)
    (tmp_path / "below").mkdir()
    command = [sys.executable, "-m", "flows.cli", "profile", "excerpt"]
    environment = {"PYTHONPATH": str(root), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path / "below", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "params.yaml").read_text(encoding="utf-8") == profiles.compose("excerpt", root)
