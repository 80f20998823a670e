"""What dvc.lock says of the stages' outputs, and whether files are still what their stages left."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import yaml

LOCK = Path("dvc.lock")


def md5(path: Path) -> str:
    """DVC's hash of a file or a folder."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "md5").hexdigest()
    files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    return of_listing({name: md5(file) for name, file in files.items()})


def of_listing(files: dict[str, str]) -> str:
    """DVC's hash of a folder with these files: paths below it -> their hashes."""
    listed = [{"md5": files[name], "relpath": name} for name in sorted(files)]
    return hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest() + ".dir"


def changed_input() -> Path | None:
    """The first output of another stage that this process's stage reads and that is not what that stage left.

    None where dvc.lock does not know this stage, whose command line names it, or is not there.
    """
    try:
        stages = yaml.load(LOCK.read_text(encoding="utf-8"), yaml.CSafeLoader)["stages"].values()
        words = [sys.modules["__main__"].__spec__.name, *sys.argv[1:]]
        deps = [Path(dep["path"]) for stage in stages if stage["cmd"].split()[2:] == words for dep in stage["deps"]]
        outs = {Path(out["path"]): out["md5"] for stage in stages for out in stage.get("outs", [])}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
        return None
    parts = [out for dep in deps for out in outs if out == dep or dep in out.parents or out in dep.parents]
    return next((out for out in dict.fromkeys(parts) if not out.exists() or md5(out) != outs[out]), None)
