"""Whether every output is byte for byte what dvc.lock says, which DVC itself judges by sizes and times."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

from flows import dvc_files
from pipelines.errors import LongtailError

CACHE = Path(".dvc/cache/files/md5")


def faults(root: Path, threads: int) -> tuple[int, list[str]]:
    """Hash all outputs of dvc.lock anew; returns the number of files, and a line on each that is not as it was.

    Raises LongtailError where there is no dvc.lock.
    """
    if not (root / dvc_files.LOCK).is_file():
        raise LongtailError(f"{dvc_files.LOCK}: no such file, expected the hashes of a run; `longtail run` makes it")
    lock = yaml.load((root / dvc_files.LOCK).read_text(encoding="utf-8"), yaml.CSafeLoader)
    outs = [out for stage in lock["stages"].values() for out in stage.get("outs", [])]
    files = {out["path"]: sorted(_files(root / out["path"])) for out in outs}
    every = [file for found in files.values() for file in found]
    with (
        ThreadPoolExecutor(threads) as pool,
        tqdm(total=sum(file.stat().st_size for file in every), unit="B", unit_scale=True, desc="verify") as bar,
    ):

        def digest(file: Path) -> str:
            with file.open("rb") as stream:
                found = hashlib.file_digest(stream, "md5").hexdigest()
            bar.update(file.stat().st_size)
            return found

        digests = dict(zip(every, pool.map(digest, every), strict=True))
    lines = [
        line for out in outs for line in _of_output(root, out, {file: digests[file] for file in files[out["path"]]})
    ]
    return len(every), lines


def _files(path: Path) -> Iterator[Path]:
    """The files of an output that is a file or a folder; those that DVC ignores are none."""
    if path.is_file():
        yield path
    else:
        yield from (file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def _of_output(root: Path, out: dict[str, Any], digests: dict[Path, str]) -> Iterator[str]:
    path, expected = root / out["path"], out["md5"]
    if not path.exists():
        yield f"{out['path']}: missing"
    elif not expected.endswith(".dir"):
        if digests.get(path) != expected:
            yield f"{out['path']}: changed"
    else:
        here = {file.relative_to(path).as_posix(): found for file, found in digests.items()}
        entries = [{"md5": here[name], "relpath": name} for name in sorted(here)]
        if hashlib.md5(json.dumps(entries, sort_keys=True).encode()).hexdigest() == expected.removesuffix(".dir"):
            return
        try:
            listing = json.loads((root / CACHE / expected[:2] / expected[2:]).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            yield f"{out['path']}: changed; .dvc/cache does not say which file"
            return
        there = {entry["relpath"]: entry["md5"] for entry in listing}
        for name in sorted(here.keys() | there.keys()):
            if here.get(name) != there.get(name):
                what = "missing" if name not in here else "not in dvc.lock" if name not in there else "changed"
                yield f"{out['path']}/{name}: {what}"
