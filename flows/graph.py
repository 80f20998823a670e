"""DVC's graph as the flow sees it: stages with what they wait for, and what changed since dvc.lock was written."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from flows import dvc_files
from pipelines import params
from pipelines.errors import LongtailError

PARTS: dict[str, tuple[str, ...]] = {  # flow -> the stages that it is asked for; what they need comes with them
    "refresh": (),  # all
    "popqa": ("questions",),
    "corpus": ("chunk",),
    "retriever": ("index", "index_bm25", "index_lsr", "evaluate_retrieval"),
    "thresholds": ("tune_thresholds",),
}


@dataclass(frozen=True)
class Stage:
    name: str  # DVC's, matrix item included: chunk@pile
    description: str
    needs: tuple[str, ...]  # the stages whose outputs it reads
    workers: str | None  # of compute.workers: "one", "all" for its shards, or none, where it hardly computes
    metrics: tuple[Path, ...]  # JSON files
    outs: tuple[Path, ...] = ()  # all that it writes
    long: bool = False  # much longer than others that wait for the same: starts first, so that no core idles at the end


RUNNING = "another process is at it"


def read(root: Path, beside_a_run: bool = False) -> tuple[list[Stage], dict[str, list[str]]]:
    """The stages as dvc.yaml has them, but each after those it needs, and by name what changed, if anything.

    A stage counts as changed only by its own state now: it may turn out changed later, by what an earlier stage writes.
    Raises LongtailError on a dvc.yaml or dvc.lock that DVC can't read, and where another process is at a stage; with
    `beside_a_run` that is what changed of this one, and of those that read what it writes: RUNNING.
    """
    import networkx
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.ERROR)
    try:
        dvc_files.mend(root)
        with Repo(str(root), _wait_for_lock=True) as repo:
            graph = repo.index.graph  # edges point from a stage to those it needs
            places = {stage.addressing: place for place, stage in enumerate(repo.index.stages)}
            order = networkx.lexicographical_topological_sort(
                graph.reverse(copy=True), key=lambda stage: places[stage.addressing]
            )
            stages = [_stage(root, graph, stage) for stage in order]
            found = _status(repo) if beside_a_run else repo.status()
            changed = {name: _reasons(entries) for name, entries in found.items()}
    except DvcException as error:
        raise LongtailError(f"DVC: {' '.join(str(error).split())}") from None
    return stages, changed


def outputs_changed(stage: Stage, reasons: list[str]) -> bool:
    """Whether a stage's outputs are gone or others than dvc.lock says; `reasons` are those that `read` gives for it."""
    return any(reason.endswith(f" {path}") for reason in reasons for path in stage.outs)


def part(stages: list[Stage], names: Collection[str]) -> list[Stage]:
    """The stages of these names, every item of a matrix, and all that they need, in the same order; no names: all.

    Raises LongtailError on a name that no stage has.
    """
    if unknown := sorted(set(names) - {stage.name.partition("@")[0] for stage in stages}):
        raise LongtailError(f"dvc.yaml: no stage {unknown[0]}, expected one; the flow asks for it")
    wanted = {stage.name for stage in stages if not names or stage.name.partition("@")[0] in names}
    for stage in reversed(stages):
        if stage.name in wanted:
            wanted.update(stage.needs)
    return [stage for stage in stages if stage.name in wanted]


def has_remote(root: Path) -> bool:
    """Whether DVC knows where to push to by default."""
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        return bool(repo.config["core"].get("remote"))


def ready(stages: list[Stage], started: set[str], running: list[Stage], compute: params.Compute) -> list[Stage]:
    """The stages to start now, long ones first, then those that most others wait for, then as dvc.yaml has them.

    One that computes starts while `compute.workers` are not all taken, and on a GPU alone. One that takes them all
    needs only one to be free: it would wait for long, or the others for it; none starts beside it.
    """
    one = 1 if compute.device == "cpu" else compute.workers
    workers: Mapping[str | None, int] = {None: 0, "one": one, "all": compute.workers}
    taken = sum(workers[stage.workers] for stage in running)
    unfinished = {stage.name for stage in running} | {stage.name for stage in stages if stage.name not in started}
    chosen: list[Stage] = []
    for stage in sorted(stages, key=lambda stage: (not stage.long, -len(_dependents(stages, stage.name)))):
        own = workers[stage.workers]
        fits = not own or taken < compute.workers
        if stage.name not in started and fits and unfinished.isdisjoint(stage.needs):
            chosen.append(stage)
            taken += own
    return chosen


def _status(repo) -> dict[str, list]:
    """`repo.status()`, which fails as a whole where another process writes one stage's outputs."""
    from dvc.lock import LockError

    found = {}
    with repo.lock:
        for stage in repo.index.stages:
            try:
                found |= stage.status(check_updates=True)
            except LockError:
                found[stage.addressing] = [RUNNING]
    return found


def _dependents(stages: list[Stage], name: str) -> set[str]:
    """Every stage that waits for `name`, directly or not."""
    found = {name}
    for stage in stages:  # in topological order
        if found.intersection(stage.needs):
            found.add(stage.name)
    return found - {name}


def _stage(root: Path, graph, stage) -> Stage:
    paths = {out: Path(out.fs_path).relative_to(root.resolve()) for out in stage.outs}
    return Stage(
        name=stage.addressing,
        description=stage.desc or "",
        needs=tuple(sorted(other.addressing for other in graph.successors(stage))),
        workers=(stage.meta or {}).get("workers"),
        long=(stage.meta or {}).get("long", False),
        metrics=tuple(path for out, path in paths.items() if out.metric),
        outs=tuple(paths.values()),
    )


def _reasons(entries: list) -> list[str]:
    """What `repo.status()` says of one stage, as "deleted data/raw", "modified params.yaml", "changed command"."""
    reasons = []
    for entry in entries:
        if isinstance(entry, str):
            reasons.append(entry)
            continue
        for what in entry.values():
            for path, state in what.items():
                keys = ", ".join(state) if isinstance(state, dict) else ""
                reasons.append(f"{'changed' if keys else state} {path}{f': {keys}' if keys else ''}")
    return reasons
