"""DVC's stages: what each needs, what changed since its last run, and what starts next.

DVC documents little of its interface: pyproject.toml allows only versions with what
`test_dvc_repo.py` lists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from flows import dvc_repo
from flows.parts import Part
from pipelines.errors import LongtailError, one_line
from pipelines.params import params
from pipelines.storage import disks
from pipelines.storage.atomic import SCRATCH

if TYPE_CHECKING:
    from dvc.repo import Repo

PARTS: dict[Part, tuple[str, ...]] = {  # part of the pipeline -> its last stages
    Part.refresh: (),  # all stages
    Part.popqa: ("questions",),
    Part.corpus: ("chunk",),
    Part.retriever: ("index", "index_bm25", "index_lsr", "evaluate_retrieval"),
    Part.thresholds: ("tune_thresholds",),
}
LOGS = SCRATCH / "logs"  # what DVC and the stage said, a file for each stage that a flow ran


class Reason(NamedTuple):
    """Why a stage is not up to date: what became of an input or output, in DVC's words."""

    state: str
    path: str = ""  # "" where the stage as a whole is meant
    params: tuple[str, ...] = ()  # the params that changed in the file at `path`
    forced: bool = False  # to DVC the stage is up to date, so it runs only if it is forced

    def __str__(self) -> str:
        text = f"{self.state} {self.path}".rstrip()
        if self.params:
            text += f": {', '.join(self.params)}"
        return text


RUNNING = Reason("another process runs it")
ALWAYS_CHANGED = Reason("always changed")  # what DVC says of the stage local_files
FILES_CHANGED = Reason("changed", "files outside of the project")


@dataclass(frozen=True)
class Stage:
    name: str  # DVC's, with the matrix item: chunk@pile
    needs: tuple[str, ...]  # the stages whose outputs it reads
    workers: str | None  # that it takes: "one", "all" for its shards, None if it hardly computes
    outs: tuple[Path, ...] = ()  # the files and folders that it writes
    long: bool = False  # much longer than others that wait for the same: it starts first


def read_graph(
    root: Path,
    beside_a_run: bool = False,
    before: Callable[[Repo, list[Stage]], None] | None = None,
) -> tuple[list[Stage], dict[str, list[Reason]]]:
    """The stages of dvc.yaml, after those that they need; and stage -> why it is not up to date.

    It looks at what lies on disk now, once `before` has been called. Raises LongtailError where DVC
    can't read dvc.yaml or dvc.lock, or where another process runs a stage. With `beside_a_run`,
    such a stage, and those that read what it writes, have the reason RUNNING instead.
    """
    with _opened(root) as repo:
        dvc_repo.repair_after_kill(root, repo)
        stages = _ordered_stages(root, repo)
        if before:
            before(repo, stages)
        status = _status_beside_a_run(repo) if beside_a_run else repo.status()

    changed = {}
    for name, entries in status.items():
        reasons = list(_reasons(entries))
        if reasons == [ALWAYS_CHANGED]:
            from pipelines.sources import local_files  # takes long to import

            if local_files.are_as_hashed():
                continue
            reasons = [FILES_CHANGED]
        changed[name] = reasons
    return stages, changed


def read_with_cache(
    root: Path, say: Callable[[str], None]
) -> tuple[list[Stage], dict[str, list[Reason]]]:
    """`read_graph` once no DVC is at work, with outputs that .dvc/cache lacks put back.

    What other runs left is removed from data/ and dvc.lock. `say` is told of each. A stage whose
    answers lack some, which a server refused, is to run again. Raises LongtailError as `read_graph`
    and dvc_repo.remove_other_runs do.
    """
    from pipelines.answering.unanswered import count_unanswered

    def remove_other_runs(repo: Repo, stages: list[Stage]) -> None:
        disks.check_disks(repo.cache.local.path)  # which may be one that others share
        outs = {stage.name: stage.outs for stage in stages}
        removed = dvc_repo.remove_other_runs(root, repo, outs)
        if removed:
            say(removed)

    _wait_for_dvc(root, say)
    stages, changed = read_graph(root, before=remove_other_runs)

    uncached = []
    for stage in stages:
        reasons = changed.get(stage.name)
        if reasons and all(reason.state == "not in cache" for reason in reasons):
            _, faults = dvc_repo.differing_outputs(root, 1, {stage.name})
            if not faults:
                uncached.append(stage)
    if uncached:
        with dvc_repo.opened(root) as repo:
            for stage in uncached:
                repo.commit(stage.name)
        say(
            f"put the outputs of {len(uncached)} stages, which are as in dvc.lock, back into "
            ".dvc/cache"
        )
        stages, changed = read_graph(root)

    for stage in stages:
        count = sum(count_unanswered(root / out) for out in stage.outs)
        if count and stage.name not in changed:
            reason = Reason(f"answers that a server refused: {count}", forced=True)
            changed[stage.name] = [reason]
            say(f"{stage.name}: {reason}; they are asked for again")
    return stages, changed


@contextmanager
def _opened(root: Path) -> Iterator[Repo]:
    """DVC's Repo of a project, whose errors in the block are LongtailErrors."""
    from dvc.exceptions import DvcException

    logging.getLogger("dvc").setLevel(logging.ERROR)
    try:
        with dvc_repo.opened(root) as repo:
            yield repo
    except DvcException as error:
        message = f"DVC: {one_line(error)}"
        if "Could not find 'parts." in message:
            message += "; params.yaml is of an earlier version, `longtail run --profile` renews it"
        raise LongtailError(message) from None


def _wait_for_dvc(root: Path, say: Callable[[str], None]) -> None:
    """Wait until no DVC process is at work in the project."""
    while True:
        processes = dvc_repo.dvc_processes(root)
        if not processes:
            return
        pids = ", ".join(str(process.pid) for process in processes)
        say(
            f"DVC is at work here, as of a run that was killed (process {pids}); waiting until it "
            "has ended"
        )
        psutil.wait_procs(processes)


def behind(stages: list[Stage], changed: Mapping[str, Collection[Reason]]) -> set[str]:
    """The stages that are not up to date: those that changed, and those that wait for them."""
    names: set[str] = set()
    for stage in stages:  # in topological order
        if changed.get(stage.name) or names.intersection(stage.needs):
            names.add(stage.name)
    return names


def part(stages: list[Stage], chosen: Part) -> list[Stage]:
    """The last stages of a part with all that they need. Raises LongtailError if it has none."""
    names = PARTS[chosen]
    if not names:
        return stages
    wanted = {stage.name for stage in stages if stage.name.partition("@")[0] in names}
    if not wanted:
        raise LongtailError(
            f"params.yaml: this run has no stage {' or '.join(sorted(names))}; name its data under "
            "parts, or run all"
        )
    for stage in reversed(stages):
        if stage.name in wanted:
            wanted.update(stage.needs)
    return [stage for stage in stages if stage.name in wanted]


def ready(
    stages: list[Stage], started: set[str], running: list[Stage], compute: params.Compute
) -> list[Stage]:
    """The stages to start now, the most urgent first.

    Long stages come first, then those that most others wait for, then the order of dvc.yaml. Stages
    that compute share `compute.workers`; on a GPU each takes all. A stage that takes all starts as
    soon as one worker is free, and no other that computes starts beside it.
    """
    taken = sum(_workers_of(stage, compute) for stage in running)
    # A stage that failed is not waited for; `refresh` leaves out those that need it.
    awaited = {stage.name for stage in stages if stage.name not in started}
    awaited |= {stage.name for stage in running}

    def urgency(stage: Stage) -> tuple[bool, int]:
        n_waiting = len(behind(stages, {stage.name: [Reason("changed")]}))
        return not stage.long, -n_waiting

    startable = []
    for stage in sorted(stages, key=urgency):
        if stage.name in started or not awaited.isdisjoint(stage.needs):
            continue
        n_workers = _workers_of(stage, compute)
        if n_workers == 0 or taken < compute.workers:
            startable.append(stage)
            taken += n_workers
    return startable


def _workers_of(stage: Stage, compute: params.Compute) -> int:
    """How many of `compute.workers` a stage takes; 0 for one that computes next to nothing."""
    if stage.workers is None:
        return 0
    if stage.workers == "one" and compute.device == "cpu":
        return 1
    return compute.workers


def _ordered_stages(root: Path, repo) -> list[Stage]:
    """The stages in topological order; those that need the same keep the order of dvc.yaml."""
    import networkx

    graph = repo.index.graph  # edges point from a stage to the stages it needs
    places = {stage.addressing: place for place, stage in enumerate(repo.index.stages)}
    order = networkx.lexicographical_topological_sort(
        graph.reverse(copy=True), key=lambda stage: places[stage.addressing]
    )
    return [_stage(root, graph, stage) for stage in order]


def _stage(root: Path, graph, stage) -> Stage:
    outs = [Path(out.fs_path).relative_to(root.resolve()) for out in stage.outs]
    meta = stage.meta or {}
    needs = sorted(needed.addressing for needed in graph.successors(stage))
    return Stage(
        name=stage.addressing,
        needs=tuple(needs),
        workers=meta.get("workers"),
        outs=tuple(outs),
        long=meta.get("long", False),
    )


def _status_beside_a_run(repo) -> dict[str, list]:
    """`repo.status()` stage by stage.

    It fails as a whole where another process writes one stage's outputs.
    """
    from dvc.lock import LockError

    status: dict[str, list] = {}
    with repo.lock:
        for stage in repo.index.stages:
            try:
                status |= stage.status(check_updates=True)
            except LockError:
                status[stage.addressing] = [RUNNING.state]
    return status


def _reasons(entries: list) -> Iterator[Reason]:
    """What `repo.status()` says of a stage, such as that data/raw is deleted."""
    for entry in entries:
        if isinstance(entry, str):
            yield Reason(entry)
            continue
        for changes in entry.values():
            for path, state in changes.items():
                if isinstance(state, dict):
                    yield Reason("changed", path, tuple(state))
                else:
                    yield Reason(state, path)
