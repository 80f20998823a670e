"""Whether every output is byte for byte what dvc.lock says, which DVC itself judges by sizes and times."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

from flows import dvc_files
from pipelines.errors import LongtailError
from pipelines.storage import outputs

CACHE = Path(".dvc/cache/files/md5")


def faults(root: Path, threads: int, paths: Collection[Path] | None = None) -> tuple[int, list[str]]:
    """Hash all outputs of dvc.lock, or those at `paths`, anew; returns (number of files, a line on each that differs).

    Raises LongtailError where there is no dvc.lock.
    """
    outs = _locked(root, paths)
    every = [file for out in outs for file in _files(root / out["path"])]
    with ThreadPoolExecutor(threads) as pool:
        hashed = tqdm(pool.map(outputs.md5, every), total=len(every), unit=" files", desc="verify")
        digests = dict(zip(every, hashed, strict=True))
    return len(every), [line for out in outs for line in _of_output(root, out, digests)]


def drop_damaged(root: Path, paths: Collection[Path]) -> list[str]:
    """Remove the files in .dvc/cache, of the outputs at `paths`, that are not what their names say; returns the files.

    An output that such a file is part of is removed too. DVC itself takes what is in its cache for whole.
    """
    damaged = []
    for out in _locked(root, paths):
        names = {out["path"]: out["md5"]}
        with suppress(OSError, ValueError):  # a damaged list of files is found below
            names |= {f"{out['path']}/{entry['relpath']}": entry["md5"] for entry in _listing(root, out["md5"])}
        files = {name: _cached(root, md5) for name, md5 in names.items()}
        bad = [name for name, file in files.items() if file.is_file() and outputs.md5(file) != names[name][:32]]
        for name in bad:
            files[name].unlink()
        if bad:
            shutil.rmtree(root / out["path"], ignore_errors=True)
            (root / out["path"]).unlink(missing_ok=True)
        damaged += bad
    return damaged


def _locked(root: Path, paths: Collection[Path] | None) -> list[dict[str, Any]]:
    """The outputs of dvc.lock, or those at `paths`."""
    if not (root / dvc_files.LOCK).is_file():
        raise LongtailError(f"{dvc_files.LOCK}: no such file, expected the hashes of a run; `longtail run` makes it")
    lock = yaml.load((root / dvc_files.LOCK).read_text(encoding="utf-8"), yaml.CSafeLoader)
    outs = [out for stage in lock["stages"].values() for out in stage.get("outs", [])]
    return [out for out in outs if paths is None or Path(out["path"]) in paths]


def _cached(root: Path, md5: str) -> Path:
    return root / CACHE / md5[:2] / md5[2:]


def _listing(root: Path, md5: str) -> list[dict[str, str]]:
    """The files of a folder, as .dvc/cache has them; none for a file."""
    return json.loads(_cached(root, md5).read_text(encoding="utf-8")) if md5.endswith(".dir") else []


def _files(path: Path) -> list[Path]:
    """The files of an output that is a file or a folder; those that DVC ignores are none."""
    inside = [file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    return [path] if path.is_file() else inside


def _of_output(root: Path, out: dict[str, Any], digests: dict[Path, str]) -> Iterator[str]:
    """A line for each file of an output that differs from dvc.lock."""
    path, expected = root / out["path"], out["md5"]
    if not path.exists():
        yield f"{out['path']}: missing"
    elif not expected.endswith(".dir"):
        yield from [f"{out['path']}: changed"] * (digests.get(path) != expected)
    else:
        here = {file.relative_to(path).as_posix(): digests[file] for file in _files(path)}
        if outputs.of_listing(here) == expected:
            return
        try:
            listing = _listing(root, expected)
        except (OSError, ValueError):
            yield f"{out['path']}: changed; .dvc/cache does not say which file"
            return
        there = {entry["relpath"]: entry["md5"] for entry in listing}
        for name in sorted(here.keys() | there.keys()):
            if here.get(name) != there.get(name):
                what = "missing" if name not in here else "not in dvc.lock" if name not in there else "changed"
                yield f"{out['path']}/{name}: {what}"
