"""Stage `code`: a fingerprint of the code that each stage runs. A changed formula reruns a stage, a comment does not.

DVC cannot see imports. This stage writes data/code.json, which DVC follows as params: under "stage" a hash of each
stage's module and of every project file that it imports at any depth; under "dataset" one of each data set's entry in
the catalogue and of its reader's or builder's code. Of languages only the files of English and of the run's language
count. Comments, docstrings and blank lines do not count, nor do the modules of TRANSPORT: they carry data, messages and
settings.
"""

import ast
import hashlib
import io
import tokenize
from functools import cache
from pathlib import Path

from pipelines import catalogue
from pipelines.storage.atomic import write_json
from pipelines.work import stage

ROOT = Path(__file__).resolve().parents[2]
OUT = Path("data/code.json")
CARRIERS = """
errors progress catalogue
params.params params.params_file params.params_rules params.param_types
storage.atomic storage.checkpoint storage.disks storage.dvc_hashes storage.kept_answers
storage.work_store
work.code work.executors work.http work.registry work.run_log work.stage work.workers
sources.download sources.wikimedia_client lm.http_client
"""
LANGUAGES, ENGLISH = (
    "languages",
    "en",
)  # a folder, and the language whose prompts and words serve all languages
MAIN = 'if __name__ == "__main__":'  # in a module that dvc.yaml names
TRANSPORT = frozenset(f"pipelines.{name}" for name in CARRIERS.split())
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def of_stages(root: Path = ROOT, language: str = ENGLISH) -> dict[str, str]:
    """Name of each module that runs as a stage -> the fingerprint of its code in a run of this language."""
    files = sorted((root / "pipelines").glob("*/*.py"), key=lambda file: file.stem)
    stages = [
        file
        for file in files
        if file.parent.name != "work" and MAIN in file.read_text(encoding="utf-8")
    ]
    return {
        file.stem: fingerprint(f"pipelines.{file.parent.name}.{file.stem}", root, language)
        for file in stages
    }


def of_datasets(root: Path = ROOT, language: str = ENGLISH) -> dict[str, str]:
    """Name of each data set of the catalogue -> the fingerprint of its entry and of its own code."""
    parts = {
        name: [
            catalogue.facts(name),
            *(fingerprint(module, root, language) for module in dataset.code),
        ]
        for name, dataset in catalogue.DATASETS.items()
        if dataset.code
    }
    return {name: hashlib.sha256(repr(of).encode()).hexdigest()[:16] for name, of in parts.items()}


def fingerprint(module: str, root: Path = ROOT, language: str = ENGLISH) -> str:
    """The hash of all code that a module (dotted name) runs: its own code and the code of the files it reaches."""
    digest = hashlib.sha256()
    for file in files(module, root, language):
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
        digest.update(_substance(file))
    return digest.hexdigest()[:16]


def files(module: str, root: Path = ROOT, language: str = ENGLISH) -> list[Path]:
    """The project's files that a module reaches by imports, and data files that its strings name, sorted by path."""
    reached, pending = set(), _files_of(module, root)
    while pending:
        if (file := pending.pop()) not in reached:
            reached.add(file)
            if file.suffix == ".py":
                pending += _reached_directly(file, root, language)
    return sorted(reached)


@cache
def _reached_directly(file: Path, root: Path, language: str) -> list[Path]:
    """The files that a module's own imports and strings name."""
    reached = []
    for node in _running_nodes(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:  # `from a import b` is a, or a.b
            names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        else:
            names = set()
        for name in names - TRANSPORT:
            reached += _files_of(name, root)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            reached += _data_files(file.parent, node.value, language)
    return reached


def _running_nodes(tree: ast.AST):
    """Every node of a module except below `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        typed = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not typed:
            yield node
            yield from _running_nodes(node)


def _files_of(name: str, root: Path) -> list[Path]:
    """The file of a module of this project, or the `__init__.py` of a package; nothing for other names."""
    path = root / name.replace(".", "/")
    found = (path.with_suffix(".py"), path / "__init__.py") if name.startswith("pipelines.") else ()
    return [file for file in found if file.is_file()]


def _data_files(folder: Path, text: str, language: str) -> list[Path]:
    """The data file, or the files of the data folder, that a string names beside a module."""
    if not 0 < len(text) < 60 or not text.replace("_", "").replace(".", "").isalnum():
        return []
    path = folder / text
    if path.is_dir() and not any(path.glob("*.py")):
        found = [file for file in path.rglob("*") if file.is_file()]
        return [file for file in found if text != LANGUAGES or file.stem in (ENGLISH, language)]
    return [path] if path.is_file() and path.suffix != ".py" else []


@cache
def _substance(file: Path) -> bytes:
    """What of a file can change a result: of Python the text without comments, docstrings and blank lines.

    The text is hashed, not the syntax tree: trees and their dumps differ between versions of Python.
    """
    content = file.read_bytes()
    if file.suffix != ".py":
        return content
    lines = content.decode().splitlines()
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            docstring = node.body[0]
            lines[docstring.lineno - 1 : docstring.end_lineno] = [""] * (
                docstring.end_lineno - docstring.lineno + 1
            )
    for token in tokenize.generate_tokens(io.StringIO(content.decode()).readline):
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1]:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    return "\n".join(line.rstrip() for line in lines if line.strip()).encode()


def write_fingerprints(out: Path, language: str) -> stage.Metrics:
    """Write the fingerprints of every stage and data set in a run of this language to a JSON file."""
    written = {"stage": of_stages(language=language), "dataset": of_datasets(language=language)}
    write_json(out, written)
    return {f"{kind}s": float(len(hashes)) for kind, hashes in written.items()}


if __name__ == "__main__":
    stage.run(
        "code", ("language",), lambda params: write_fingerprints(OUT, params.language), out=str(OUT)
    )
