"""DVC opened, dvc.lock and .dvc/tmp/rwlock put right where a killed DVC left half of one, and outputs hashed anew.

The flow keeps a copy of dvc.lock after each stage, and calls `mend` before DVC starts.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from tqdm import tqdm

from pipelines.errors import LongtailError
from pipelines.params.params_file import value_at
from pipelines.storage import disks, dvc_hashes
from pipelines.storage.atomic import SCRATCH, atomic

if TYPE_CHECKING:
    from dvc.repo import Repo

LOCK = Path("dvc.lock")
COPY = SCRATCH / "dvc.lock"
CACHE = Path(".dvc/cache/files/md5")
SITE_CACHE = SCRATCH / "dvc"  # as in .dvc/config
RWLOCK = Path(".dvc/tmp/rwlock")  # the processes that read or write outputs, as JSON


@contextmanager
def opened(root: Path) -> Iterator[Repo]:
    """DVC's Repo of a project, which waits for DVC's lock, with DVC's caches where `site_cache` says."""
    from dvc.repo import Repo

    with Repo(
        str(root), config={"core": {"site_cache_dir": site_cache(root)}}, _wait_for_lock=True
    ) as repo:
        yield repo


def site_cache(root: Path) -> str:
    """A folder for DVC's caches of hashes, which DVC reads as pickles: only this user can write there.

    It is $DVC_SITE_CACHE_DIR where that is set; else .longtail/dvc or, if that is another user's or on a network file
    system, a folder of this machine.
    """
    if chosen := os.environ.get("DVC_SITE_CACHE_DIR"):
        return chosen
    folder = root.resolve() / SITE_CACHE
    if disks.is_on_network(root) or (folder.exists() and folder.stat().st_uid != os.geteuid()):
        return str(disks.local(folder))
    disks.private(folder)
    if (
        mode := folder.parent.stat().st_mode
    ) & stat.S_IWOTH:  # DVC called by hand made it, open to all
        folder.parent.chmod(stat.S_IMODE(mode) & ~stat.S_IWOTH)
    return str(folder)


def link_outputs(root: Path) -> bool:
    """Have DVC link outputs to its cache and not copy them, in .dvc/config.local; False where cache.type is set.

    A link and the cache's file are one file, so nothing may write into an output. Stages replace theirs.
    """
    with opened(root) as repo:
        if "type" in repo.config["cache"]:
            return False
        with repo.config.edit("local") as config:
            config["cache"]["type"] = "reflink,hardlink,copy"
    return True


def mend(root: Path, repo: Repo | None = None) -> None:
    """Undo what killed DVC processes left; call this before DVC starts, or before `repo` has read anything.

    A cut dvc.lock is replaced by its copy, or removed: the results are in DVC's run cache. One with git's conflict
    marks stays, since a person must choose. A rwlock that names no living process is removed.
    """
    with _no_dvc_writing(root, repo):
        rwlock = root / RWLOCK
        if rwlock.exists() and not at_work(root):
            rwlock.unlink()
        if not (root / LOCK).exists():
            return
        text, copy = (root / LOCK).read_text(encoding="utf-8", errors="replace"), _copied(root)
        if _is_readable(text):
            _write(root / COPY, text)
        elif "\n<<<<<<< " not in text:
            if copy:
                _write(root / LOCK, copy)
            else:
                (root / LOCK).unlink()


def keep(root: Path) -> dict[str, Any]:
    """Write all to disk, which DVC leaves to the system, and copy dvc.lock; returns its stages by name."""
    os.sync()
    with _no_dvc_writing(root):
        text = (root / LOCK).read_text(encoding="utf-8")
        if _is_readable(text):
            _write(root / COPY, text)
    return kept(root)


def kept(root: Path) -> dict[str, Any]:
    """The stages of the copy, by name; none where there is no copy yet."""
    return _stages(_copied(root) or "stages: {}")


def locked(root: Path) -> dict[str, Any]:
    """The stages of dvc.lock, by name; none where there is no such file."""
    return _stages((root / LOCK).read_text(encoding="utf-8")) if (root / LOCK).is_file() else {}


def reads_same_params(root: Path, reader: str, outputs: Collection[Path]) -> bool:
    """Whether stage `reader` takes only params from the JSON files `outputs`, with the values of its last run."""
    locked = kept(root).get(reader, {})
    read = [Path(dep["path"]) for dep in locked.get("deps", [])]
    if any(
        path.is_relative_to(output) or output.is_relative_to(path)
        for path in read
        for output in outputs
    ):
        return False
    for file, params in locked.get("params", {}).items():
        if Path(file) in outputs:
            values = json.loads((root / file).read_text(encoding="utf-8"))
            if any(value_at(values, key) != value for key, value in params.items()):
                return False
    return True


def faults(
    root: Path, threads: int, paths: Collection[Path] | None = None
) -> tuple[int, list[str]]:
    """Hash the outputs of dvc.lock, all or at `paths`; returns (number of files, a line on each that differs)."""
    outs = _outputs(root, paths)
    every = [file for out in outs for file in _files(root / out["path"])]
    with ThreadPoolExecutor(threads) as pool:
        hashed = tqdm(
            pool.map(dvc_hashes.md5, every), total=len(every), unit=" files", desc="verify"
        )
        digests = dict(zip(every, hashed, strict=True))
    return len(every), [line for out in outs for line in _of_output(root, out, digests)]


def drop_damaged(root: Path, paths: Collection[Path]) -> list[str]:
    """Remove files of the outputs at `paths` in .dvc/cache that are not what their names say; returns the files.

    An output that has such a file goes too: DVC takes what is in its cache for whole.
    """
    damaged = []
    for out in _outputs(root, paths):
        names = {out["path"]: out["md5"]}
        with suppress(OSError, ValueError):  # a damaged list of files is found below
            names |= {
                f"{out['path']}/{entry['relpath']}": entry["md5"]
                for entry in _listing(root, out["md5"])
            }
        files = {name: _cached(root, md5) for name, md5 in names.items()}
        bad = [
            name
            for name, file in files.items()
            if file.is_file() and dvc_hashes.md5(file) != names[name][:32]
        ]
        for name in bad:
            files[name].unlink()
        if bad:
            shutil.rmtree(root / out["path"], ignore_errors=True)
            (root / out["path"]).unlink(missing_ok=True)
        damaged += bad
    return damaged


@contextmanager
def _no_dvc_writing(root: Path, repo: Repo | None = None) -> Iterator[None]:
    """Hold .dvc/tmp/lock, as a DVC process does while it writes either file, but not while a stage's command runs."""
    with nullcontext(repo) if repo else opened(root) as project, project.lock:
        yield


def at_work(root: Path) -> list[psutil.Process]:
    """The DVC processes at work by the rwlock, such as one that outlived its killed `longtail run`."""
    rwlock = root / RWLOCK
    try:
        entries = json.loads(rwlock.read_text(encoding="utf-8"))
        readers = [reader for path in entries.get("read", {}).values() for reader in path]
        pids = {entry["pid"] for entry in [*readers, *entries.get("write", {}).values()]}
        written = rwlock.stat().st_mtime
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return []
    living = []
    for pid in sorted(pids):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(
                pid
            )  # a zombie has ended, but nobody took note, as in a container without an init
            # a process that began later was only given the same number
            if process.create_time() <= written and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living


def _is_readable(text: str) -> bool:
    """Whether a dvc.lock ends with a whole line, and DVC finds a command in each stage and no empty part."""
    try:
        whole = all("cmd" in stage and all(stage.values()) for stage in _stages(text).values())
    except (yaml.YAMLError, AttributeError, TypeError, KeyError):
        return False
    return whole and text.endswith("\n")


def _stages(text: str) -> dict[str, Any]:
    return yaml.load(text, yaml.CSafeLoader)["stages"]


def _copied(root: Path) -> str:
    return (root / COPY).read_text(encoding="utf-8") if (root / COPY).exists() else ""


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8", errors="replace") != text:
        with atomic(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _outputs(root: Path, paths: Collection[Path] | None) -> list[dict[str, Any]]:
    if not (root / LOCK).is_file():
        raise LongtailError(
            f"{LOCK}: no such file, expected the hashes of a run; `longtail run` makes it"
        )
    outs = [out for stage in locked(root).values() for out in stage.get("outs", [])]
    return [out for out in outs if paths is None or Path(out["path"]) in paths]


def _cached(root: Path, md5: str) -> Path:
    return root / CACHE / md5[:2] / md5[2:]


def _listing(root: Path, md5: str) -> list[dict[str, str]]:
    return (
        json.loads(_cached(root, md5).read_text(encoding="utf-8")) if md5.endswith(".dir") else []
    )


def _files(path: Path) -> list[Path]:
    """The files of an output that is a file or a folder, without the files that DVC ignores."""
    inside = [
        file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    ]
    return [path] if path.is_file() else inside


def _of_output(root: Path, out: dict[str, Any], digests: dict[Path, str]) -> Iterator[str]:
    path, expected = root / out["path"], out["md5"]
    if not path.exists():
        yield f"{out['path']}: missing"
    elif not expected.endswith(".dir"):
        yield from [f"{out['path']}: changed"] * (digests.get(path) != expected)
    else:
        here = {file.relative_to(path).as_posix(): digests[file] for file in _files(path)}
        if dvc_hashes.of_listing(here) == expected:
            return
        try:
            listing = _listing(root, expected)
        except (OSError, ValueError):
            yield f"{out['path']}: changed; .dvc/cache does not say which file"
            return
        there = {entry["relpath"]: entry["md5"] for entry in listing}
        for name in sorted(here.keys() | there.keys()):
            if here.get(name) != there.get(name):
                what = (
                    "missing"
                    if name not in here
                    else "not in dvc.lock"
                    if name not in there
                    else "changed"
                )
                yield f"{out['path']}/{name}: {what}"
