"""README.md names commands, files and folders that are there."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml


@pytest.fixture(scope="module")
def readme(root) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


def test_links_lead_somewhere(readme, root):
    links = re.findall(r"\]\((?!http)([^)]+)\)", readme)
    assert links
    assert [link for link in links if not (root / link).exists()] == []


def test_make_targets_are_there(readme, root):
    targets = re.findall(r"^make (\w+)", readme, re.MULTILINE)
    assert targets == ["run", "test"]
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_commands_are_there_with_the_options_named(readme, root):
    lines = re.findall(r"^\.venv/bin/(\w+) ([^#\n]+)", readme, re.MULTILINE)
    assert len(lines) >= 8
    modules = {"longtail": "flows.cli", "dvc": "dvc", "mlflow": "mlflow", "dask": "dask"}
    for program, rest in lines:
        if program == "longtail" and rest.startswith("--"):
            continue
        words = re.sub(r'"[^"]*"', "", rest).split()
        command = [w for w in words if not w.startswith("-")][: 2 if program == "dvc" else 1]
        options = [w for w in words if w.startswith("--")]
        done = subprocess.run(
            [sys.executable, "-m", modules[program], *command, "--help"], cwd=root, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{program} {rest}: {done.stderr}"
        assert [option for option in options if option not in done.stdout] == []


def test_every_stage_is_in_the_picture(readme, root):
    picture = readme.split("```mermaid")[1].split("```")[0]
    stages = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert [name for name in stages if not re.search(rf"\b{name}\b", picture)] == []


def test_the_tree_and_the_profiles_are_complete(readme, root):
    for folder in (root / "pipelines").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            assert f"  {folder.name}/" in readme
    for profile in (root / "conf/profile").glob("*.yaml"):
        assert f"| `{profile.stem}` |" in readme
