"""DVC's repository: opened, repaired after a killed DVC, and its outputs compared with their md5s.

The flow keeps a copy of dvc.lock after each stage, and calls `repair_after_kill` before DVC starts
and after a run is stopped.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from tqdm import tqdm

from flows import surroundings
from pipelines import yaml_files
from pipelines.errors import LongtailError
from pipelines.params.params_file import value_at
from pipelines.storage import disks, dvc_hashes
from pipelines.storage.atomic import SCRATCH, read_json, write_text

if TYPE_CHECKING:
    from dvc.repo import Repo

STAGES = Path("dvc.yaml")
LOCK = Path("dvc.lock")
COPY = SCRATCH / "dvc.lock"
CACHE = Path(".dvc/cache/files/md5")
SITE_CACHE = SCRATCH / "dvc"
SITE_CACHE_VARIABLE = "DVC_SITE_CACHE_DIR"  # DVC's; it comes before its config
RWLOCK = Path(".dvc/tmp/rwlock")  # the processes that read or write outputs, as JSON
ITEM = re.compile(r"\$\{[^}]*\}")  # in an output of dvc.yaml: an item of a matrix, or a param
ANY_ITEM = "[!.]*"  # not a .gitignore
BAR_DELAY = 2.0  # seconds before a bar shows that hashes take longer
LINKED_BYTES = 10 << 30  # of sources, from which outputs are not stored twice
LINKED = (
    "outputs will be links to .dvc/cache, read-only and stored once (.dvc/config.local: cache.type)"
)
MD5_CHARACTERS = 32  # of the hash of a folder's list of files, before its .dir


@contextmanager
def opened(root: Path) -> Iterator[Repo]:
    """DVC's Repo of a project. It waits for DVC's lock; its caches are where `site_cache` says.

    `dvc` called by hand then has them there as well. Raises LongtailError where DVC or git can't
    open the project.
    """
    from dvc.repo import Repo

    folder = site_cache(root)
    config = {"core": {"site_cache_dir": folder}}
    try:
        repo = Repo(str(root), config=config, _wait_for_lock=True)
    except Exception as error:  # of DVC, or of what reads git's files for it
        raise LongtailError(f"DVC: {surroundings.with_advice(str(error))}") from None
    with repo:
        _name_site_cache(repo, folder)
        yield repo


def _name_site_cache(repo: Repo, folder: str) -> None:
    """Name the folder of DVC's caches in .dvc/config.local, which may be of a clone elsewhere.

    The path is absolute. DVC takes a relative one from where it was called, which is another folder
    for an experiment in the queue.
    """
    if SITE_CACHE_VARIABLE in os.environ:
        return
    named = repo.config.read("local").get("core", {}).get("site_cache_dir")
    if named != folder:
        with repo.config.edit("local") as config:
            config["core"]["site_cache_dir"] = folder


def site_cache(root: Path) -> str:
    """A folder for DVC's caches of hashes, which are pickles: only this user can write there.

    It is $DVC_SITE_CACHE_DIR where that is set; else .longtail/dvc or, if that is another user's or
    on a network file system, a folder of this machine.
    """
    chosen = os.environ.get(SITE_CACHE_VARIABLE)
    if chosen:
        return chosen
    folder = root.resolve() / SITE_CACHE
    is_foreign = folder.exists() and folder.stat().st_uid != os.geteuid()
    if disks.is_on_network(root) or is_foreign:
        return str(disks.local(folder))

    disks.private(folder)
    mode = folder.parent.stat().st_mode
    if mode & stat.S_IWOTH:  # DVC called by hand made it, open to all
        folder.parent.chmod(stat.S_IMODE(mode) & ~stat.S_IWOTH)
    return str(folder)


def link_outputs(root: Path, size: int) -> str:
    """Have DVC link outputs to its cache and not copy them, in .dvc/config.local, where the sources
    have LINKED_BYTES.

    Returns a line for the user, "" where nothing is done, as cache.type is set. A link and the
    cache's file are one file, so nothing may write into an output. Stages replace theirs.
    """
    if size < LINKED_BYTES:
        return ""
    with opened(root) as repo:
        if "type" in repo.config["cache"]:
            return ""
        with repo.config.edit("local") as config:
            config["cache"]["type"] = "hardlink,reflink,copy"
    return LINKED


def links_outputs(root: Path) -> bool:
    """Whether DVC's outputs are hard links to its cache."""
    with opened(root) as repo:
        return "hardlink" in repo.config["cache"].get("type", [])


# dvc.lock and .dvc/tmp/rwlock


def repair_after_kill(root: Path, repo: Repo | None = None) -> None:
    """Undo what killed DVC processes left, before DVC starts or `repo` has read anything.

    A cut dvc.lock is replaced by its copy, or removed: the results are in DVC's run cache. One with
    git's conflict marks stays, since a person must choose. A rwlock that names no living process is
    removed.
    """
    with _no_dvc_writing(root, repo):
        rwlock = root / RWLOCK
        if rwlock.exists() and not dvc_processes(root):
            rwlock.unlink()

        lock = root / LOCK
        if not lock.exists():
            return
        text = lock.read_text(encoding="utf-8", errors="replace")
        copy = _copied(root)
        if _is_readable(text):
            _write(root / COPY, text)
        elif surroundings.CONFLICT.search(text):
            return
        elif copy:
            _write(lock, copy)
        else:
            lock.unlink()


def sync_and_copy_lock(root: Path) -> dict[str, Any]:
    """Sync the disks, which DVC does not do, and copy dvc.lock; returns its stages by name."""
    os.sync()
    with _no_dvc_writing(root):
        text = (root / LOCK).read_text(encoding="utf-8")
        if _is_readable(text):
            _write(root / COPY, text)
    return stages_of_copy(root)


def stages_of_copy(root: Path) -> dict[str, Any]:
    """The stages of the copy of dvc.lock, by name; none where there is no copy yet."""
    text = _copied(root)
    return _stages(text) if text else {}


def stages_of_lock(root: Path) -> dict[str, Any]:
    """The stages of dvc.lock, by name; none where there is no such file.

    Raises LongtailError for one that is cut or damaged.
    """
    lock = root / LOCK
    if not lock.is_file():
        return {}
    text = lock.read_text(encoding="utf-8", errors="replace")
    if not _is_readable(text):
        raise LongtailError(
            f"{LOCK}: cut or damaged, expected what DVC wrote; `longtail run` restores it, or git "
            f"checkout HEAD -- {LOCK}"
        )
    return _stages(text)


def dvc_processes(root: Path) -> list[psutil.Process]:
    """The DVC processes at work by the rwlock, such as one whose `longtail run` was killed."""
    rwlock = root / RWLOCK
    try:
        entries = read_json(rwlock)
        users = [*entries.get("write", {}).values()]
        for readers in entries.get("read", {}).values():
            users += readers
        pids = {user["pid"] for user in users}
        written = rwlock.stat().st_mtime
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return []

    processes = []
    for pid in sorted(pids):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            # a process that began later was only given the same number
            is_older = process.create_time() <= written
            # a zombie has ended, but nobody took note, as in a container without an init
            if is_older and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def reads_same_params(root: Path, reader: str, outputs: Collection[Path]) -> bool:
    """Whether stage `reader` takes only params from the JSON files `outputs`, and the same ones."""
    entry = stages_of_copy(root).get(reader, {})
    for dependency in entry.get("deps", []):
        path = Path(dependency["path"])
        for output in outputs:
            if path.is_relative_to(output) or output.is_relative_to(path):
                return False

    for file, params in entry.get("params", {}).items():
        if Path(file) not in outputs:
            continue
        values = read_json(root / file)
        if any(value_at(values, key) != value for key, value in params.items()):
            return False
    return True


@contextmanager
def _no_dvc_writing(root: Path, repo: Repo | None = None) -> Iterator[None]:
    """Hold .dvc/tmp/lock, as a DVC process does while it writes either file.

    DVC does not hold it while a stage's command runs.
    """
    manager = nullcontext(repo) if repo else opened(root)
    with manager as project, project.lock:
        yield


def _is_readable(text: str) -> bool:
    """Whether a dvc.lock ends with a whole line, and each stage has a command and no empty part."""
    try:
        stages = _stages(text).values()
        is_complete = all("cmd" in stage and all(stage.values()) for stage in stages)
    except (yaml.YAMLError, AttributeError, TypeError, KeyError):
        return False
    return is_complete and text.endswith("\n")


def _stages(text: str) -> dict[str, Any]:
    return yaml_files.parse(text)["stages"]


def _copied(root: Path) -> str:
    copy = root / COPY
    return copy.read_text(encoding="utf-8") if copy.exists() else ""


def _write(path: Path, text: str) -> None:
    """Write a file that does not have this text yet."""
    if path.exists() and path.read_text(encoding="utf-8", errors="replace") == text:
        return
    write_text(path, text)


# outputs and their hashes


def remove_other_runs(root: Path, repo: Repo, outs: Mapping[str, Collection[Path]]) -> str:
    """Remove what other runs left beside `outs`, this run's outputs by stage; returns a line on it.

    A stage that reads a folder would read the others' outputs, too. They stay in DVC's cache.
    dvc.lock loses the stages of other runs. Raises LongtailError, and removes nothing, where the
    cache lacks a file of another run. The line is empty where there is nothing to remove.
    """
    files = _files_of_other_runs(root, outs)
    for file in tqdm(files, unit=" files", desc="of other runs", delay=BAR_DELAY):
        md5 = dvc_hashes.md5(file)
        if not Path(repo.cache.local.path, md5[:2], md5[2:]).is_file():
            raise LongtailError(
                f"{file.relative_to(root)}: of another run, and not in DVC's cache; move it out of "
                "data/, or remove it"
            )

    for file in files:
        file.unlink()
        with suppress(OSError):  # other files are there
            os.removedirs(file.parent)

    stages = stages_of_lock(root).keys() - outs.keys()
    if stages:
        from dvc.utils.serialize import modify_yaml

        with _no_dvc_writing(root, repo), modify_yaml(root / LOCK) as lock:
            for name in stages:
                del lock["stages"][name]
    if not files and not stages:
        return ""
    return (
        f"removed what other runs left in data/ (files: {len(files)}) and dvc.lock (stages: "
        f"{len(stages)}); DVC's cache keeps the files"
    )


def _files_of_other_runs(root: Path, outs: Mapping[str, Collection[Path]]) -> list[Path]:
    """The files of outputs that dvc.yaml has with other params, or dvc.lock, and not `outs`."""
    paths: set[Path] = set()
    for stage in stages_of_lock(root).values():
        paths.update(root / entry["path"] for entry in stage.get("outs", []))
    for stage in _stages((root / STAGES).read_text(encoding="utf-8")).values():
        for entry in stage.get("outs", []):
            (pattern,) = [entry] if isinstance(entry, str) else entry
            paths.update(root.glob(ITEM.sub(ANY_ITEM, pattern)))

    ours = {root / path for paths_of_stage in outs.values() for path in paths_of_stage}
    files = []
    for path in sorted(paths - ours):
        for file in _files(path):
            if ours.isdisjoint([file, *file.parents]):
                files.append(file)
    return files


def differing_outputs(root: Path, threads: int, stages: Collection[str]) -> tuple[int, list[str]]:
    """Hash the outputs that dvc.lock has of `stages`, which are names.

    Returns the number of files, and a line on each that differs.
    """
    outs = _outputs(root, stages)
    files = []
    for out in outs:
        files += _files(root / out["path"])
    with ThreadPoolExecutor(threads) as pool:
        md5s = pool.map(dvc_hashes.md5, files)
        bar = tqdm(md5s, total=len(files), unit=" files", desc="verify", delay=BAR_DELAY)
        digests = dict(zip(files, bar, strict=True))

    lines: list[str] = []
    for out in outs:
        lines += _faults_of_output(root, out, digests)
    return len(files), lines


def drop_damaged(root: Path, stages: Collection[str]) -> list[str]:
    """Remove files of the outputs of `stages` in .dvc/cache that are not what their names say.

    Returns the files. An output that has such a file goes too: DVC takes what is in its cache for
    complete.
    """
    dropped = []
    for out in _outputs(root, stages):
        damaged = _damaged_files(root, out)
        for name, file in damaged.items():
            file.unlink()
            dropped.append(name)
        if damaged:
            path = root / out["path"]
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
    return dropped


def _damaged_files(root: Path, out: dict[str, Any]) -> dict[str, Path]:
    """The files of an output in DVC's cache that are not what their names say, by their paths."""
    md5s = {out["path"]: out["md5"]}
    with suppress(OSError, ValueError):  # a damaged list of files is found below
        for entry in _listing(root, out["md5"]):
            md5s[f"{out['path']}/{entry['relpath']}"] = entry["md5"]

    damaged = {}
    for name, md5 in md5s.items():
        file = _cached(root, md5)
        if file.is_file() and dvc_hashes.md5(file) != md5[:MD5_CHARACTERS]:
            damaged[name] = file
    return damaged


def _outputs(root: Path, stages: Collection[str]) -> list[dict[str, Any]]:
    """The entries in dvc.lock of the outputs of `stages`.

    Raises LongtailError without dvc.lock.
    """
    if not (root / LOCK).is_file():
        raise LongtailError(
            f"{LOCK}: no such file, expected the hashes of a run; `longtail run` makes it"
        )
    entries = []
    for name, stage in stages_of_lock(root).items():
        if name in stages:
            entries += stage.get("outs", [])
    return entries


def _cached(root: Path, md5: str) -> Path:
    return root / CACHE / md5[:2] / md5[2:]


def _listing(root: Path, md5: str) -> list[dict[str, str]]:
    """The files of a folder, as DVC's cache lists them; none for a file."""
    if not md5.endswith(".dir"):
        return []
    return read_json(_cached(root, md5))


def _files(path: Path) -> list[Path]:
    """The files of an output that is a file or a folder, without the files that DVC ignores."""
    if path.is_file():
        return [path]
    return [file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts]


def _faults_of_output(root: Path, out: dict[str, Any], digests: dict[Path, str]) -> Iterator[str]:
    """A line on each file of an output that is not as in dvc.lock; `digests` are present MD5s."""
    path = root / out["path"]
    md5 = out["md5"]
    if not path.exists():
        yield f"{out['path']}: missing"
        return
    if not md5.endswith(".dir"):
        if digests.get(path) != md5:
            yield f"{out['path']}: changed"
        return

    present = {file.relative_to(path).as_posix(): digests[file] for file in _files(path)}
    if dvc_hashes.of_listing(present) == md5:
        return
    try:
        listing = _listing(root, md5)
    except (OSError, ValueError):
        yield f"{out['path']}: changed; .dvc/cache does not say which file"
        return
    expected = {entry["relpath"]: entry["md5"] for entry in listing}
    for name in sorted(present.keys() | expected.keys()):
        if name not in present:
            yield f"{out['path']}/{name}: missing"
        elif name not in expected:
            yield f"{out['path']}/{name}: not in dvc.lock"
        elif present[name] != expected[name]:
            yield f"{out['path']}/{name}: changed"
