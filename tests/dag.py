"""What dvc.yaml must say of each stage's code, read off that code; `python tests/dag.py` writes it there.

DVC can't see imports, so dvc.yaml lists every module (and file beside one) that a stage's module reaches, imports in
functions included. Left out are the modules that can't change a result: stage, tracking, errors, params and
params_file (DVC follows the values themselves), and `__init__` files with nothing but a docstring.
"""

from __future__ import annotations

import ast
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
NEUTRAL = {f"pipelines/{name}.py" for name in ("stage", "tracking", "errors", "params", "params_file")}
COMPUTES = {"torch", "transformers", "faiss"}  # libraries that keep a core busy


def module_of(command: str) -> Path:
    """The file of the module that a stage's command runs, relative to the root."""
    words = command.split()
    return Path(words[words.index("-m") + 1].replace(".", "/") + ".py")


def closure(module: Path, root: Path = ROOT) -> tuple[list[str], set[str]]:
    """The project's files that a module reaches, itself first, and the names of the libraries they import."""
    files, libraries, pending = {}, set(), [module]
    while pending:
        file = pending.pop()
        if str(file) in files or str(file) in NEUTRAL:
            continue
        files[str(file)] = None
        if file.suffix != ".py":
            continue
        for node in _running_nodes(ast.parse((root / file).read_text(encoding="utf-8"))):
            for name in _imported(node):
                pending += _files_of(name, root)
                libraries.add(name.split(".")[0])
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                pending += _beside(file, node.value, root)
    first, *rest = files
    return [first, *sorted(rest)], libraries


def sections(module: Path, root: Path = ROOT) -> set[str]:
    """The params that a stage's module hands to `stage.run`."""
    tree = ast.parse((root / module).read_text(encoding="utf-8"))
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    constants = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("stage.run", "run"):
            value = node.args[1]
            return set(ast.literal_eval(constants[value.id] if isinstance(value, ast.Name) else value))
    raise AssertionError(f"{module} does not call stage.run")


def followed(entry: dict, root: Path = ROOT) -> set[str]:
    """The params that DVC follows for a stage: its sections, but of `compute` only what can change a result.

    Of the language models, its item's own or the main one; which that is, the path of the model's folder says.
    """
    named = sections(module_of(entry["cmd"]), root)
    found = named - {"compute"} | {f"compute.{key}" for key in ("threads", "device") if "compute" in named}
    if "lm" in named:
        found = found - {"lm", "lms"} | {"lm.${item.lm}" if "lm" in entry.get("matrix", {}) else "lm.${lms[0]}"}
    return found


def computes(module: Path, root: Path = ROOT) -> bool:
    """Whether a stage takes its share of compute.workers: one, or all where its mark in dvc.yaml says so."""
    return bool(closure(module, root)[1] & COMPUTES) and "compute" in sections(module, root)


def stages(root: Path = ROOT) -> dict:
    """dvc.yaml's stages, before their matrix is laid out."""
    return YAML(typ="safe").load(root / "dvc.yaml")["stages"]


def write(root: Path = ROOT) -> None:
    """Bring the code dependencies, params and marks of dvc.yaml up to date; comments and order stay."""
    yaml = YAML()
    yaml.width = 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.preserve_quotes = True
    document = yaml.load(root / "dvc.yaml")
    for entry in document["stages"].values():
        module = module_of(entry["cmd"])
        files, _ = closure(module, root)
        data = [dep for dep in entry["deps"] if not dep.startswith("pipelines/")]
        if list(entry["deps"]) != files + data:
            entry["deps"] = files + data
        wanted = followed(entry, root)
        if set(entry["params"]) != wanted:
            kept = [name for name in entry["params"] if name in wanted]
            entry["params"][:] = kept + sorted(wanted.difference(kept))
        marks = entry.pop("meta", {})
        kept = {key: value for key, value in marks.items() if key != "workers"}
        if computes(module, root):
            kept = {"workers": marks.get("workers", "one")} | kept
        if kept:
            entry.insert(list(entry).index("deps"), "meta", kept)
    yaml.dump(document, root / "dvc.yaml")


def _running_nodes(tree: ast.AST):
    """Every node but those below `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _running_nodes(node)


def _imported(node: ast.AST) -> list[str]:
    """Dotted names that an import statement may mean: `from a import b` is a, or a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def _files_of(name: str, root: Path) -> list[Path]:
    """The file of a module of this project, and its package's where that has code; nothing for other names."""
    if not name.startswith("pipelines."):
        return []
    path = Path(name.replace(".", "/"))
    packages = [folder / "__init__.py" for folder in (path, path.parent)]
    with_code = [p for p in packages if (root / p).is_file() and len(ast.parse((root / p).read_text()).body) > 1]
    return [f for f in (path.with_suffix(".py"),) if (root / f).is_file()] + with_code


def _beside(file: Path, text: str, root: Path) -> list[Path]:
    """The data file, or folder of such, beside a module that a string in it names."""
    if not 0 < len(text) < 60 or not text.replace("_", "").replace(".", "").isalnum():
        return []
    path = file.parent / text
    folder = (root / path).is_dir() and not any((root / path).glob("*.py"))
    return [path] if folder or ((root / path).is_file() and path.suffix != ".py") else []


if __name__ == "__main__":
    write()
    print(f"{ROOT / 'dvc.yaml'} is up to date")
