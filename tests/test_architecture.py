"""docs/architecture.md and pyproject.toml are true: names on the map exist, and rooms import
only rooms above them.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from itertools import pairwise
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuptools import Distribution

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
ROOMS = re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE)
FILES = sorted(file for top in ("pipelines", "flows") for file in (ROOT / top).rglob("*.py"))
LIBRARIES = ("dvc", "prefect", "mlflow", "transformers", "dask", "distributed")

HEAVY = {  # package that takes long to load -> the stages that import it before any work
    "requests": {"fetch", "popularity"},
    "torch": {"base_retriever"},
    "transformers": {"base_retriever"},
    "mlflow": set(),
    "prefect": set(),
}


@cache
def code() -> dict[Path, list[ast.AST]]:
    """The nodes of each file."""
    return {file: [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))] for file in FILES}


def defined(file: Path) -> set[str]:
    body = ast.parse(file.read_text(encoding="utf-8")).body
    names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return names | {
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    }


def test_every_name_on_the_map_exists():
    """A name without a folder of the root is below pipelines/, or in the root."""
    names = set(re.findall(r"`([\w/.]+\.(?:py|yaml|md))(?::(\w+))?`", PAGE))
    assert len(names) > 50
    for path, attribute in names:
        file = next(
            (file for top in ("pipelines", "") if (file := ROOT / top / path).is_file()), None
        )
        assert file, path
        assert not attribute or attribute in defined(file), (path, attribute)


def test_every_stage_of_the_journey_is_in_the_graph():
    journey = PAGE.split("## One record's journey")[1].split("##")[0]
    stages = re.findall(r"^\| `(\w+)` \|", journey, re.MULTILINE)
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    assert len(stages) >= 10
    assert [stage for stage in stages if f"\n  {stage}:\n" not in text] == []


def imports(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def test_the_rooms_are_all_on_the_map():
    """A room imports only rooms above it."""
    assert {*ROOMS} == {path.parent.name for path in (ROOT / "pipelines").glob("*/__init__.py")} | {
        "flows"
    }
    back = []
    for file, nodes in code().items():
        top, *folders, _ = file.relative_to(ROOT).parts
        room = (
            ROOMS.index("flows") if top == "flows" else ROOMS.index(folders[0]) if folders else -1
        )
        for name in imports(nodes):
            of = (
                name.split(".")[0]
                if name.startswith("flows")
                else name.removeprefix("pipelines.").split(".")[0]
            )
            if name.startswith(("flows", "pipelines.")) and of in ROOMS and ROOMS.index(of) > room:
                back.append((str(file), name))
    assert back == []


def imported_at_once(nodes: list[ast.stmt]) -> Iterator[str]:
    """The names that a module imports when it is imported: not those in functions and for types."""
    for node in nodes:
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from imported_at_once(node.body + node.orelse)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def loaded(module: str) -> set[str]:
    """All names that come with a module of the project."""
    names, pending = set(), [module]
    while pending:
        name = pending.pop()
        nodes = code().get(ROOT / f"{name.replace('.', '/')}.py")
        if name not in names and nodes:
            pending += imported_at_once(nodes[0].body)
        names.add(name)
    return names


def test_stages_import_heavy_packages_only_where_they_are_used():
    commands = re.findall(r"python -m ([\w.]+)", (ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    names = {command.rpartition(".")[2]: loaded(command) for command in commands}
    assert len(names) > 20
    assert {
        package: {
            stage
            for stage, modules in names.items()
            if any(name.partition(".")[0] == package for name in modules)
        }
        for package in HEAVY
    } == HEAVY


def test_the_product_imports_nothing_of_the_sample():
    """A wheel has no sample."""
    names = {name.partition(".")[0] for nodes in code().values() for name in imports(nodes)}
    assert "pipelines" in names
    assert "sample" not in names


def assigned(nodes: list[ast.AST]) -> Iterator[str]:
    """The attributes that code sets on modules of LIBRARIES, or on what it imports from them."""
    names = {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).partition(".")[0] in LIBRARIES
    }
    for node in nodes:
        changed = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
        called = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("setattr", "delattr")
        )
        target = node.value if changed else node.args[0] if called else None
        while isinstance(target, ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name) and target.id in names:
            yield ast.unparse(node)


def test_nothing_is_assigned_into_a_library():
    swapped = "import dvc.dvcfile\nfrom dvc.stage import run\nrun._run = f\nsetattr(dvc.dvcfile, 'modify_yaml', f)"
    nodes = [*ast.walk(ast.parse(swapped))]
    assert [*assigned(nodes)] == ["run._run", "setattr(dvc.dvcfile, 'modify_yaml', f)"]
    found = {str(file): [*assigned(nodes)] for file, nodes in code().items()}
    assert {file: names for file, names in found.items() if names} == {}


def test_no_two_modules_have_one_name():
    times = Counter(
        file.name
        for file in (*FILES, *(ROOT / "benchmarks").rglob("*.py"))
        if file.name != "__init__.py"
    )
    assert {name for name, count in times.items() if count > 1} == set()


def test_one_module_writes_and_reads_parquet_files():
    """So that every page has a checksum, and every reader looks at it."""
    users = {
        file.relative_to(ROOT).as_posix()
        for file, nodes in code().items()
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom) and "pyarrow.parquet" in ast.unparse(node)
    }
    assert users == {"pipelines/storage/parquet.py"}


def sql() -> Iterator[tuple[Path, ast.Constant | ast.JoinedStr, str]]:
    """The texts with SQL in all modules, with their source."""
    for file, nodes in code().items():
        for node in nodes:
            text = ast.unparse(node) if isinstance(node, ast.Constant | ast.JoinedStr) else ""
            if re.search(r"\b(SELECT|FROM|COPY|INSERT|SET|CREATE)\b .", text):
                yield file, node, text


def test_sql_has_no_path_and_no_value_in_quotes():
    """What an f-string puts between quotes ends the quotes where it has one; only constants may
    stand there.
    """
    bad = []
    for file, node, text in sql():
        if re.search(r"\b(read_parquet|read_csv|parquet_scan)\b", text):
            bad.append((file.name, node.lineno, "names a file in SQL"))
        for before, value in pairwise(node.values) if isinstance(node, ast.JoinedStr) else ():
            opened = (
                isinstance(before, ast.Constant)
                and before.value.count("'")
                and before.value.endswith("'")
            )
            if opened and not re.fullmatch(r"[A-Z_]+", ast.unparse(value.value)):
                bad.append((file.name, node.lineno, ast.unparse(value)))
    assert bad == []


BOUNDS = {"fastapi", "sqlalchemy"}  # of pyproject.toml, for Prefect; no code of ours imports them


def test_every_package_that_code_imports_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = {
        canonicalize_name(Requirement(line).name)
        for line in project["dependencies"] + extras["pipeline"]
    }
    optional = {
        canonicalize_name(Requirement(line).name)
        for name in ("dask", "large")
        for line in extras[name]
    }
    modules = {
        (alias.name if isinstance(node, ast.Import) else node.module).partition(".")[0]
        for nodes in code().values()
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    } - {*sys.stdlib_module_names, "pipelines", "flows"}
    packages = metadata.packages_distributions()
    imported = {
        module: {*map(canonicalize_name, packages.get(module, [module]))} for module in modules
    }
    assert {module: of for module, of in imported.items() if not of & (declared | optional)} == {}
    assert declared - BOUNDS - set().union(*imported.values()) == set(), "nothing imports them"


def test_a_wheel_holds_each_file_of_both_packages(monkeypatch):
    monkeypatch.chdir(ROOT)
    wheel = Distribution({"script_name": "setup.py"})
    wheel.parse_config_files(["pyproject.toml"])
    built = wheel.get_command_obj("build_py")
    built.ensure_finalized()
    packed = {
        os.path.relpath(file, built.build_lib) for file in built.get_outputs(include_bytecode=False)
    }
    tracked = subprocess.run(
        ["git", "ls-files", "pipelines", "flows"], capture_output=True, text=True, check=True
    )
    assert sorted(packed) == tracked.stdout.splitlines()
