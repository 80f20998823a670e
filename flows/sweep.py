"""What DVC's cache and remote hold that no kept commit needs: found, listed and removed.

Kept are the commits of the last landed months, of all other tags and of the branches' tips, and
experiments and the work folder. DVC says which files they need, and removes the others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from flows import data_branch, dvc_repo, workspace
from flows.months import MONTH
from pipelines.errors import LongtailError
from pipelines.sources import snapshots
from pipelines.storage.work_store import KEPT

if TYPE_CHECKING:
    from dvc.repo import Repo
    from dvc_data.hashfile.db import HashFileDB
    from dvc_data.hashfile.hash_info import HashInfo

MONTH_TAG = re.compile(rf"refs/tags/data/({MONTH})")
NO_MONTH = "no month"  # files of runs that did not land, and of commits that are no tip
RUN_CACHE = "run cache"  # DVC's entries on what stages made of which inputs


@dataclass(frozen=True)
class Commits:
    """The commits whose data stay, and the months whose data go."""

    months: list[str]  # that stay, oldest first
    expired: dict[str, set[str]]  # month -> its commits, oldest month first
    kept: set[str]


@dataclass
class Place:
    """A store of DVC's files, and what in it no kept commit needs."""

    name: str
    odb: HashFileDB
    runs: str  # the folder of the run cache
    sizes: dict[str, list[int]] = field(default_factory=dict)  # what it is of -> bytes of each file
    dead_runs: list[str] = field(default_factory=list)  # paths of entries on files that go


@dataclass
class Sweep:
    """All that a sweep removes."""

    commits: Commits
    needed: set[HashInfo]  # the files that stay
    places: list[Place]
    used_since: float  # unix seconds; what later months reuse goes if it was not used since then
    work_sizes: list[int]  # bytes of each such result


@contextmanager
def opened(root: Path) -> Iterator[Repo]:
    """The project's Repo while nothing else runs; errors of DVC become LongtailErrors."""
    from dvc.exceptions import DvcException

    with workspace.alone(), dvc_repo.opened(root) as repo, repo.lock:
        if dvc_repo.dvc_processes(root):
            raise LongtailError("DVC is at work in this folder; wait for it or stop it")
        try:
            yield repo
        except (DvcException, OSError) as error:
            raise LongtailError(f"DVC: {error}") from None


def find(root: Path, repo: Repo, n_months: int, with_remote: bool) -> Sweep:
    """Find what no kept commit needs, in the cache and `with_remote` in DVC's default remote.

    Raises LongtailError where the needs of a kept commit can't be known, or other projects may need
    the cache.
    """
    from dvc_data.hashfile.hash_info import HashInfo

    cache = repo.cache.local
    if not Path(cache.path).is_relative_to(root.resolve()):
        remedy = "use `dvc gc --projects`, which looks at each of them"
        raise LongtailError(f"{cache.path}: other projects may share this cache; {remedy}")

    git_remotes = data_branch.remotes(root) if with_remote else []
    commits = choose_commits(root, n_months, git_remotes)
    # dvc.lock has the outputs of other profiles too
    outputs = {HashInfo("md5", md5) for md5 in dvc_repo.outputs_of_lock(root)}
    outputs |= _outputs(repo, commits.kept, work_folder=True, experiments=True)
    needed = _files(repo, outputs)
    needed_by_month = {}
    for month, month_commits in commits.expired.items():
        needed_by_month[month] = _files(repo, _outputs(repo, month_commits))

    places = [Place("cache", cache, repo.stage_cache.cache_dir)]
    if with_remote:
        odb = repo.cloud.get_remote_odb()
        runs = odb.fs.join(repo.cloud.get_remote_odb(hash_name="md5-dos2unix").path, "runs")
        places.append(Place(f"remote {repo.config['core']['remote']}", odb, runs))
    for place in places:
        _find_unused(place, needed, needed_by_month)

    used_since = _end_of(commits.months[0]) if commits.months else 0.0
    work_sizes = [_size_of_result(path) for path in KEPT.unused(used_since)]
    return Sweep(commits, needed, places, used_since, work_sizes)


def choose_commits(root: Path, n_months: int, git_remotes: Iterable[str] = ()) -> Commits:
    """The commits of the last `n_months` landed months, of other tags, and of branches.

    Those of `git_remotes` count too. Raises LongtailError where one of these is not in this clone.
    """
    commits_by_month: dict[str, set[str]] = defaultdict(set)
    kept = {data_branch.checked_out(root)}
    for place in (".", *git_remotes):
        for ref, commit in data_branch.refs_at(root, place).items():
            if not data_branch.has_commit(root, commit):
                raise LongtailError(f"{ref} of {place} is not here; git fetch --tags {place} first")
            tag = MONTH_TAG.fullmatch(ref)
            if tag:
                commits_by_month[tag[1]].add(commit)
            else:
                kept.add(commit)

    landed = sorted(commits_by_month)
    months = landed[-n_months:]
    for month in months:
        kept |= commits_by_month[month]
    expired = {month: commits_by_month[month] for month in landed if month not in months}
    return Commits(months, expired, kept)


def remove(root: Path, repo: Repo, sweep: Sweep) -> None:
    """Remove what `find` found.

    The tags of expired months go if the remote is swept too, or there is none: else the remote can
    still bring their data.
    """
    from dvc_data.hashfile.db import get_index
    from dvc_data.hashfile.gc import gc

    for place in sweep.places:
        gc(place.odb, sweep.needed)
        if place.dead_runs:
            place.odb.fs.remove(place.dead_runs)
        if place.odb is not repo.cache.local:
            get_index(place.odb).clear()

    KEPT.sweep(sweep.used_since)
    if forgets_months(repo, sweep):
        data_branch.remove_tags(root, [f"data/{month}" for month in sweep.commits.expired])


def forgets_months(repo: Repo, sweep: Sweep) -> bool:
    """Whether the tags of expired months go."""
    return len(sweep.places) > 1 or not repo.config["core"].get("remote")


def _outputs(
    repo: Repo, commits: Collection[str], work_folder: bool = False, experiments: bool = False
) -> set[HashInfo]:
    """The hashes of the outputs of commits, and of the work folder and experiments if asked for."""
    from dvc.exceptions import DvcException

    outputs = set()
    for commit in repo.brancher(
        revs=sorted(commits), workspace=work_folder, all_experiments=experiments, sha_only=True
    ):
        try:
            outs = repo.index.outs
        except DvcException as error:
            raise LongtailError(f"what commit {commit} needs can't be known: {error}") from None
        for out in outs:
            if out.use_cache and out.hash_info:
                outputs.add(out.hash_info)
    return outputs


def _files(repo: Repo, outputs: Collection[HashInfo]) -> set[HashInfo]:
    """Outputs with the files of those that are folders.

    Raises LongtailError where a folder's list is in the remote and can't be brought here. A folder
    whose list is nowhere is lost already.
    """
    from dvc_data.hashfile.tree import Tree

    cache = repo.cache.local
    files = set(outputs)
    folders = [output for output in outputs if output.isdir]
    _bring_lists(repo, folders)
    for folder in folders:
        if cache.exists(folder.value):
            files |= {file for _, _, file in Tree.load(cache, folder)}
    return files


def _bring_lists(repo: Repo, folders: Collection[HashInfo]) -> None:
    """Bring the missing lists of folders from the default remote.

    `Repo.gc` would look for them while it has a commit's config, in which a remote with a relative
    path is another folder, and would count their files as unused.
    """
    cache = repo.cache.local
    missing = [folder for folder in folders if not cache.exists(folder.value)]
    if not missing or not repo.config["core"].get("remote"):
        return

    odb = repo.cloud.get_remote_odb()
    there = [folder for folder in missing if odb.exists(folder.value)]
    repo.cloud.pull(there)
    for folder in there:
        if not cache.exists(folder.value):
            problem = f"the list of files {folder.value} can't be read from the remote"
            raise LongtailError(f"{problem}; try again")


def _find_unused(
    place: Place, needed: set[HashInfo], needed_by_month: dict[str, set[HashInfo]]
) -> None:
    """Fill in what no kept commit needs. A file of several expired months counts for the last."""
    needed_md5s = {file.value for file in needed}
    month_of = {}
    for month, files in needed_by_month.items():
        for file in files:
            month_of[file.value] = month

    sizes = defaultdict(list)
    for md5, size in _stored(place.odb).items():
        if md5 not in needed_md5s:
            month = month_of.get(md5, NO_MONTH)
            sizes[month].append(size)
    for path, size in _sizes_below(place.odb, place.runs).items():
        entry = yaml.safe_load(place.odb.fs.cat_file(path))
        outs = {out["md5"] for out in entry["outs"]}
        if not outs <= needed_md5s:
            sizes[RUN_CACHE].append(size)
            place.dead_runs.append(path)
    place.sizes = dict(sorted(sizes.items()))


def _stored(odb: HashFileDB) -> dict[str, int]:
    """The MD5s of the files in a store, and their sizes in bytes."""
    sizes = {}
    for path, size in _sizes_below(odb, odb.path).items():
        with suppress(ValueError):  # of what DVC did not finish to write
            sizes[odb.path_to_oid(path)] = size
    return sizes


def _sizes_below(odb: HashFileDB, folder: str) -> dict[str, int]:
    """The paths of the files below a folder of a store, and their sizes in bytes."""
    if not odb.fs.exists(folder):
        return {}
    paths = list(odb.fs.find(folder))
    entries = odb.fs.info(paths)
    return {path: entry["size"] for path, entry in zip(paths, entries, strict=True)}


def _end_of(month: str) -> float:
    """When a month was over, in unix seconds; it can't have landed before."""
    day_after = snapshots.last_day(month) + timedelta(days=1)
    return datetime.combine(day_after, datetime.min.time(), UTC).timestamp()


def _size_of_result(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
