"""dvc.lock and .dvc/tmp/rwlock, put right where a killed DVC left half of one.

DVC empties these files and then writes them. A process killed in that moment leaves a file that stops the next DVC. So
the flow keeps a copy of dvc.lock after each stage, and calls `mend` before DVC starts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml

from pipelines.storage import shards

if TYPE_CHECKING:
    from dvc.repo import Repo

LOCK = Path("dvc.lock")
COPY = shards.SCRATCH / "dvc.lock"
RWLOCK = Path(".dvc/tmp/rwlock")  # which process reads and writes which outputs, as JSON


def mend(root: Path, repo: Repo | None = None) -> None:
    """Undo what killed DVC processes left; call this before DVC starts, or before `repo` has read anything.

    A cut dvc.lock is replaced by its copy. Without one it is removed: the stages' results are still in DVC's run cache.
    One with git's conflict marks stays, since a person must choose. A rwlock that names no process that is alive is
    removed.
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
    """Copy dvc.lock after a DVC process has ended well; returns the stages that it holds, by name.

    All that DVC wrote is on disk before: of itself it has nothing written, so that after a power cut there would be
    empty files in data/ and in its cache that it takes for whole.
    """
    os.sync()
    with _no_dvc_writing(root):
        text = (root / LOCK).read_text(encoding="utf-8")
        if _is_readable(text):
            _write(root / COPY, text)
    return kept(root)


def kept(root: Path) -> dict[str, Any]:
    """The stages of the copy, by name; none where there is no copy yet."""
    return _stages(_copied(root) or "stages: {}")


def reads_same_params(root: Path, reader: str, outputs: Collection[Path]) -> bool:
    """Whether stage `reader` takes only params from the JSON files `outputs`, with the values of its last run."""
    locked = kept(root).get(reader, {})
    read = [Path(dep["path"]) for dep in locked.get("deps", [])]
    if any(path.is_relative_to(output) or output.is_relative_to(path) for path in read for output in outputs):
        return False
    for file, params in locked.get("params", {}).items():
        if Path(file) in outputs:
            values = json.loads((root / file).read_text(encoding="utf-8"))
            if any(_value(values, key) != value for key, value in params.items()):
                return False
    return True


@contextmanager
def _no_dvc_writing(root: Path, repo: Repo | None = None) -> Iterator[None]:
    """Wait for .dvc/tmp/lock and hold it: every DVC process holds it while it writes either file.

    DVC gives it up while a stage's command runs. `repo` is the project's, where it is open.
    """
    from dvc.repo import Repo

    with nullcontext(repo) if repo else Repo(str(root), _wait_for_lock=True) as opened, opened.lock:
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
            process = psutil.Process(pid)  # a zombie has ended, but nobody took note, as in a container without an init
            # a process that began later was only given the same number
            if process.create_time() <= written and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living


def _value(values: Any, key: str) -> Any:
    """The value of a dotted key; None where there is none."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


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
        with shards.atomic(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
