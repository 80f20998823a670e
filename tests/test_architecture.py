"""docs/architecture.md is true: every name on it exists, and rooms import only rooms above them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
ROOMS = re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE)
NAMES = sorted(set(re.findall(r"`([\w/.*]+\.(?:py|yaml|md)(?::\w+)?)`", PAGE)))


def place(name: str) -> Path:
    """The file that a name on the page means."""
    top = name.split("/")[0]
    return ROOT / name if top in ("flows", "conf", "tests", "docs", "data", "pipelines") else ROOT / "pipelines" / name


def defined(file: Path) -> set[str]:
    body = ast.parse(file.read_text(encoding="utf-8")).body
    names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return names | {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


@pytest.mark.parametrize("name", [name for name in NAMES if "*" not in name])
def test_every_name_on_the_map_exists(name):
    path, _, attribute = name.partition(":")
    file = place(path) if place(path).is_file() else ROOT / path
    assert file.is_file()
    assert not attribute or attribute in defined(file)


def test_the_rooms_are_all_on_the_map_in_order():
    rooms = {path.name for path in (ROOT / "pipelines").iterdir() if (path / "__init__.py").is_file()}
    assert {*ROOMS} == rooms | {"flows"}


def imports(file: Path) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom) and node.module]
    return {name for node in nodes for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))}


def test_a_room_imports_only_rooms_above_it():
    back = []
    for file in (ROOT / "pipelines").rglob("*.py"):
        parts = file.relative_to(ROOT / "pipelines").parts
        room = ROOMS.index(parts[0]) if len(parts) > 1 else -1
        for name in imports(file):
            top, _, rest = name.partition(".")
            if top == "flows":
                back.append((str(file), name))
            if top == "pipelines" and rest.split(".")[0] in ROOMS and ROOMS.index(rest.split(".")[0]) > room:
                back.append((str(file), name))
    assert back == []


def test_no_two_modules_have_one_name():
    files = [f for top in ("pipelines", "flows", "benchmarks") for f in (ROOT / top).rglob("*.py")]
    times = Counter(file.name for file in files if file.name != "__init__.py")
    assert {name for name, count in times.items() if count > 1} == set()


def test_every_stage_of_the_journey_is_in_the_graph():
    journey = PAGE.split("## One record's journey")[1].split("##")[0]
    stages = re.findall(r"^\| `(\w+)` \|", journey, re.MULTILINE)
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    assert len(stages) >= 10
    assert [stage for stage in stages if f"\n  {stage}:\n" not in text] == []


def modules(*tops: str) -> list[Path]:
    return sorted(file for top in tops for file in (ROOT / top).rglob("*.py"))


def test_one_module_writes_and_reads_parquet_files():
    """So that every page has a checksum, and every reader looks at it."""
    users = {
        file.relative_to(ROOT).as_posix()
        for file in modules("pipelines", "flows")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom) and "pyarrow.parquet" in ast.unparse(node)
    }
    assert users == {"pipelines/parquet.py"}


def sql_of(file: Path) -> list[tuple[ast.Constant | ast.JoinedStr, str]]:
    """The texts with SQL in a module, with their source."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    texts = [(node, ast.unparse(node)) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)]
    return [(node, text) for node, text in texts if re.search(r"\b(SELECT|FROM|COPY|INSERT|SET|CREATE)\b .", text)]


def test_sql_has_no_path_and_no_value_in_quotes():
    """What an f-string puts between quotes ends the quotes where it has one; only constants may stand there."""
    bad = []
    for file in modules("pipelines", "flows"):
        for node, text in sql_of(file):
            if re.search(r"\b(read_parquet|read_csv|parquet_scan)\b", text):
                bad.append((file.name, node.lineno, "names a file in SQL"))
            values = pairwise(node.values) if isinstance(node, ast.JoinedStr) else ()
            for before, value in values:
                opened = isinstance(before, ast.Constant) and before.value.count("'") and before.value.endswith("'")
                if opened and not re.fullmatch(r"[A-Z_]+", ast.unparse(value.value)):
                    bad.append((file.name, node.lineno, ast.unparse(value)))
    assert bad == []
