"""Keep secrets and paths of the machine out of a release: leave them out of params, and look for them in every text."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pipelines.errors import LongtailError

TEXTS = {".json", ".md", ".tsv", ".html", ".cff", ".yaml", ".py"}
LEFT_OUT = ("contact", "compute.dask")  # params that say who computes where
SHAPES = {  # patterns by which a secret is known
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "an address with a password": r"\w+://[^\s/:@\"']+:[^\s/:@\"']+@",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a GitHub token": r"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{22,})",
    "an AWS key": r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
}
PATHS = {  # in tables such a text may be an answer, so there they are not looked for
    "a path of a machine": r"(?<![\w/.:<])/(home|Users|root|mnt|tmp|var|srv|opt|work|media|data|scratch)/[\w.-]",
}
ESCAPE = re.compile(r"\\(.)")  # JSON's
SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)", re.IGNORECASE)
SHORTEST = 8  # characters of a secret: a shorter value of a variable called TOKEN is a setting


def of_machine(environment: Mapping[str, str], folders: Iterable[Path]) -> dict[str, str]:
    """Patterns of what only this machine has, by name: values of secret environment variables, and folders."""
    secrets = {
        f"${name}": re.escape(value)
        for name, value in environment.items()
        if SECRET.search(name) and len(value) >= SHORTEST
    }
    paths = {path: rf"(?<![\w.]){re.escape(str(path))}(?![\w-])" for path in folders if path != Path("/")}
    return secrets | {f"the folder {path.name}": pattern for path, pattern in paths.items()}


def shown(value: Any, prefix: str = "") -> Any:
    """Params as a release shows them: without LEFT_OUT, and with only the last name of a path outside the project."""
    if isinstance(value, Mapping):
        names = [name for name in value if f"{prefix}{name}" not in LEFT_OUT]
        return {name: shown(value[name], f"{prefix}{name}.") for name in names}
    if isinstance(value, list):
        return [shown(item, prefix) for item in value]
    if isinstance(value, str):
        path = PurePosixPath(value)
        if path.is_absolute() or value.startswith("~") or ".." in path.parts:
            return f"(outside the project)/{path.name}"
    return value


def check_no_secrets(folder: Path, machine: Mapping[str, str]) -> None:
    """Raise LongtailError, which shows no secret, where a text below `folder` has one, or a path of the machine."""
    for file in sorted(path for path in folder.rglob("*") if path.suffix in TEXTS):
        name = file.relative_to(folder).as_posix()
        shapes = SHAPES | (PATHS if file.suffix not in {".tsv", ".html"} else {}) | dict(machine)
        text = ESCAPE.sub(lambda escape: " " if escape[1] in "nrt" else escape[1], file.read_text(encoding="utf-8"))
        for what, shape in shapes.items():
            if hit := re.search(shape, text):
                line = text.count("\n", 0, hit.start()) + 1
                raise LongtailError(f"{name}: {what} in line {line}, expected nothing of the machine; take it out")
