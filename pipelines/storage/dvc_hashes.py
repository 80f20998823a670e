"""DVC's hashes of files and folders, as they stand in dvc.lock."""

import hashlib
import json
from pathlib import Path


def md5(path: Path) -> str:
    """DVC's hash of a file or a folder."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "md5").hexdigest()
    hashes = {}
    for file in path.rglob("*"):
        if file.is_file():
            hashes[file.relative_to(path).as_posix()] = md5(file)
    return of_listing(hashes)


def of_listing(files: dict[str, str]) -> str:
    """DVC's hash of a folder with the `files`: paths below the folder -> their hashes."""
    entries = [{"md5": files[name], "relpath": name} for name in sorted(files)]
    listing = json.dumps(entries, sort_keys=True)
    return hashlib.md5(listing.encode()).hexdigest() + ".dir"
