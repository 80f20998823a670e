"""DVC's hashes of files and folders, as they stand in dvc.lock."""

import hashlib
import json
from pathlib import Path


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
