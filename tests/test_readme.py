"""README.md, CONTRIBUTING.md and docs/ name commands, files and folders that are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines import params_file
from pipelines.relations import RELATIONS
from pipelines.world.facts import RELATION_IDS, make_world


@pytest.fixture(scope="module")
def readme(root) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(root) -> dict[Path, str]:
    """The folder that links are relative to, and the text, of every page."""
    files = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
    return {file: file.read_text(encoding="utf-8") for file in files}


def test_links_lead_somewhere(pages):
    links = [(file, link) for file, text in pages.items() for link in re.findall(r"\]\((?!http)([^)#]+)\)", text)]
    assert len(links) > 30
    assert [(file.name, link) for file, link in links if not (file.parent / link).exists()] == []


def test_every_page_is_reached_from_the_index(root):
    index = (root / "docs/README.md").read_text(encoding="utf-8")
    assert [file.name for file in (root / "docs").glob("*.md") if f"({file.name})" not in index] == ["README.md"]


def test_make_targets_are_there(readme, root):
    targets = re.findall(r"^make (\w+)", readme, re.MULTILINE)
    assert targets == ["run", "test"]
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_commands_are_there_with_the_options_named(pages, root):
    modules = {"longtail": "flows.cli", "dvc": "dvc", "mlflow": "mlflow", "dask": "dask", "prefect": "prefect"}
    named: dict[tuple[str, ...], set[str]] = {}  # command -> options
    for text in pages.values():
        for program, rest in re.findall(r"^(?:\.venv/bin/)?(longtail|dvc|mlflow|dask|prefect) ([^#\n]+)", text, re.M):
            words = re.sub(r'"[^"]*"', "", rest).split()
            nested = program == "dvc" and words[0] in ("remote", "exp", "metrics", "plots")
            command = [word for word in words if not word.startswith("-")][: 2 if nested else 1]
            named.setdefault((program, *command), set()).update(w for w in words if w.startswith("--"))
    assert len(named) >= 15
    for (program, *command), options in named.items():
        done = subprocess.run(
            [sys.executable, "-m", modules[program], *command, "--help"],
            cwd=root,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert done.returncode == 0, f"{program} {command}: {done.stderr}"
        assert [option for option in options - {"--help"} if option not in done.stdout] == [], (program, command)


def test_what_is_asked_is_known_in_the_sample_world(pages, root):
    asked = {question for text in pages.values() for question in re.findall(r'longtail ask "([^"]+)"', text)}
    assert len(asked) >= 2
    given = params_file.load("seed", "world", path=root / "params.yaml")
    world = make_world(given.seed, given.world)
    known = {
        RELATIONS[RELATION_IDS[relation]].question(label).lower()
        for entity, label in enumerate(world.labels)
        for relation in world.relations[world.offsets[entity] : world.offsets[entity + 1]]
    }
    assert [question for question in asked if f"{question.lower().rstrip('?')}?" not in known] == []


def test_examples_of_params_are_allowed(pages, root):
    def over(base: dict, block: dict) -> dict:
        both = {name: over(base.get(name) or {}, value) for name, value in block.items() if isinstance(value, dict)}
        return {**base, **block, **both}

    base = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    blocks = [block for text in pages.values() for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    assert len(blocks) >= 5
    for block in blocks:
        params_file.parse(over(base, yaml.safe_load(block)))


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
