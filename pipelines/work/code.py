"""Stage `code`: a fingerprint of the code that each stage runs.

A changed formula makes a stage run again, a comment does not. DVC cannot see imports, so this stage
writes data/code.json, which DVC follows as params. Under "stage" it has a hash of each stage's
module and of every project file that it imports at any depth. Under "dataset" it has one of each
data set's entry in the catalogue and of its reader's or builder's code.

Of languages only the files of English and of the run's language count. Comments, docstrings, blank
lines and what a table's declaration says for readers do not count, nor do the modules of TRANSPORT,
which carry data, messages and settings.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pipelines import catalogue
from pipelines.params.param_types import Section
from pipelines.storage.atomic import write_json
from pipelines.work import stage

ROOT = Path(__file__).resolve().parents[2]
DECLARATIONS = ROOT / "pipelines/tables"
OUT = Path("data/code.json")
MAIN = 'if __name__ == "__main__":'  # in a module that dvc.yaml names
LANGUAGES = "languages"  # the folder of languages
ENGLISH = "en"  # the language whose prompts and words serve all languages
HASH_LENGTH = 16  # hexadecimal digits
DATA_NAME_LENGTH = 60  # characters that a string which names a data file has at most
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
TRANSPORT_NAMES = """
errors progress catalogue yaml_files
params.params params.params_file params.params_rules params.param_types
storage.atomic storage.checkpoint storage.disks storage.dvc_hashes storage.kept_answers
storage.work_store
work.code work.executors work.http work.registry work.run_log work.run_names work.stage
work.workers
sources.download sources.wikimedia_client lm.http_client
"""
TRANSPORT = frozenset(f"pipelines.{name}" for name in TRANSPORT_NAMES.split())


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    language: str


def write_fingerprints(out: Path, language: str) -> stage.Metrics:
    """Write the fingerprints of every stage and data set, in a run of this language, as JSON."""
    stages = of_stages(language)
    datasets = of_datasets(language)
    write_json(out, {"stage": stages, "dataset": datasets})
    return {"stages": float(len(stages)), "datasets": float(len(datasets))}


def of_stages(language: str = ENGLISH) -> dict[str, str]:
    """The name of each module that runs as a stage -> the fingerprint of its code."""
    fingerprints = {}
    files = (ROOT / "pipelines").glob("*/*.py")
    for file in sorted(files, key=lambda file: file.stem):
        room = file.parent.name
        if room != "work" and MAIN in file.read_text(encoding="utf-8"):
            module = f"pipelines.{room}.{file.stem}"
            fingerprints[file.stem] = fingerprint(module, ROOT, language)
    return fingerprints


def of_datasets(language: str = ENGLISH) -> dict[str, str]:
    """The name of each data set -> the fingerprint of its catalogue entry and of its code."""
    fingerprints = {}
    for name, dataset in catalogue.DATASETS.items():
        if dataset.code:
            parts: list[Any] = [catalogue.facts(name)]
            parts += [fingerprint(module, ROOT, language) for module in dataset.code]
            digest = hashlib.sha256(repr(parts).encode())
            fingerprints[name] = digest.hexdigest()[:HASH_LENGTH]
    return fingerprints


def fingerprint(module: str, root: Path = ROOT, language: str = ENGLISH) -> str:
    """The hash of all code that a module (dotted name) runs: its own, and that of its imports."""
    digest = hashlib.sha256()
    for file in files(module, root, language):
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
        digest.update(_substance(file))
    return digest.hexdigest()[:HASH_LENGTH]


def files(module: str, root: Path = ROOT, language: str = ENGLISH) -> list[Path]:
    """The project's files that a module reaches, sorted by path.

    These are its imports at any depth, and the data files that its strings name.
    """
    reached: set[Path] = set()
    pending = _files_of(module, root)
    while pending:
        file = pending.pop()
        if file in reached:
            continue
        reached.add(file)
        if file.suffix == ".py":
            pending += _reached_directly(file, root, language)
    return sorted(reached)


@cache
def _reached_directly(file: Path, root: Path, language: str) -> list[Path]:
    """The files that a module's own imports and strings name."""
    reached = []
    for node in _running_nodes(ast.parse(file.read_text(encoding="utf-8"))):
        for name in _imported(node) - TRANSPORT:
            reached += _files_of(name, root)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            reached += _data_files(file.parent, node.value, language)
    return reached


def _running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of a module except below `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not for_types:
            yield node
            yield from _running_nodes(node)


def _imported(node: ast.AST) -> set[str]:
    """The names of all that may be modules in an import: `from a import b` imports a, or a.b."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        members = {f"{node.module}.{alias.name}" for alias in node.names}
        return {node.module, *members}
    return set()


def _files_of(name: str, root: Path) -> list[Path]:
    """The file of a project's module, or a package's `__init__.py`; nothing for other names."""
    if not name.startswith("pipelines."):
        return []
    path = root / name.replace(".", "/")
    candidates = [path.with_suffix(".py"), path / "__init__.py"]
    return [file for file in candidates if file.is_file()]


def _data_files(folder: Path, text: str, language: str) -> list[Path]:
    """The data file, or the files of the data folder, that a string names beside a module."""
    letters = text.replace("_", "").replace(".", "")
    if not letters.isalnum() or len(text) >= DATA_NAME_LENGTH:
        return []
    path = folder / text
    if path.is_dir() and not any(path.glob("*.py")):
        data_files = [file for file in path.rglob("*") if file.is_file()]
        if text == LANGUAGES:
            return [file for file in data_files if file.stem in (ENGLISH, language)]
        return data_files
    if path.is_file() and path.suffix != ".py":
        return [path]
    return []


@cache
def _substance(file: Path) -> bytes:
    """The part of a file that can change a result.

    Of Python it is the text without comments, docstrings and blank lines. The text is hashed, not
    the syntax tree, because trees and their dumps differ between versions of Python. Of declared
    tables it is their files, columns and types.
    """
    content = file.read_bytes()
    if file.suffix != ".py":
        return content
    if file.parent == DECLARATIONS:
        declared = getattr(import_module(f"pipelines.tables.{file.stem}"), "TABLES", ())
        return "\n".join(f"{table.file}\n{table.schema}" for table in declared).encode()

    lines = content.decode().splitlines()
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            docstring = node.body[0]
            end = docstring.end_lineno or docstring.lineno
            for number in range(docstring.lineno - 1, end):
                lines[number] = ""
    for token in tokenize.generate_tokens(io.StringIO(content.decode()).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip()).encode()


if __name__ == "__main__":

    def work(settings: Settings) -> stage.Metrics:
        return write_fingerprints(OUT, settings.language)

    stage.run("code", Settings, work, out=str(OUT))
