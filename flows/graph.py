"""DVC's stages as a flow needs them: what each waits for, what changed since its last run, and what starts next.

DVC documents little of its interface: pyproject.toml allows only versions with what `test_dvc_files.py` lists.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from flows import dvc_files
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.storage.atomic import SCRATCH
from pipelines.work import code

PARTS: dict[
    str, tuple[str, ...]
] = {  # flow -> the stages that it brings up to date, with all that they need
    "refresh": (),  # all stages
    "popqa": ("questions",),
    "corpus": ("chunk",),
    "retriever": ("index", "index_bm25", "index_lsr", "evaluate_retrieval"),
    "thresholds": ("tune_thresholds",),
}
LOGS = SCRATCH / "logs"  # what DVC and the stage said, a file for each stage that a flow ran
RUNNING = (
    "another process runs it"  # the reason why a stage is not up to date, while that process runs
)


@dataclass(frozen=True)
class Stage:
    name: str  # DVC's, with the matrix item: chunk@pile
    description: str
    needs: tuple[str, ...]  # the stages whose outputs it reads
    workers: (
        str | None
    )  # workers it takes: "one", "all" for its shards, or None if it hardly computes
    metrics: tuple[Path, ...]  # JSON files
    outs: tuple[Path, ...] = ()  # all files and folders that it writes, metrics included
    long: bool = False  # much longer than other stages that wait for the same: it starts first


def read_graph(root: Path, beside_a_run: bool = False) -> tuple[list[Stage], dict[str, list[str]]]:
    """The stages of dvc.yaml, after those that they need, and why those that changed are not up to date, by name.

    It counts what lies on disk now. Raises LongtailError where DVC can't read dvc.yaml or dvc.lock, or where another
    process runs a stage; `beside_a_run` such a stage, and those that read what it writes, have the reason RUNNING.
    """
    import networkx
    from dvc.exceptions import DvcException

    logging.getLogger("dvc").setLevel(logging.ERROR)
    try:
        with dvc_files.opened(root) as repo:
            dvc_files.mend(root, repo)
            graph = repo.index.graph  # edges point from a stage to the stages it needs
            places = {stage.addressing: place for place, stage in enumerate(repo.index.stages)}
            order = networkx.lexicographical_topological_sort(
                graph.reverse(copy=True), key=lambda stage: places[stage.addressing]
            )
            stages = [_stage(root, graph, stage) for stage in order]
            status = _status_beside_a_run(repo) if beside_a_run else repo.status()
    except DvcException as error:
        raise LongtailError(f"DVC: {' '.join(str(error).split())}") from None
    return stages, {name: _reasons(entries) for name, entries in status.items()}


def read_with_cache(
    root: Path, say: Callable[[str], None]
) -> tuple[list[Stage], dict[str, list[str]]]:
    """`read_graph` once no DVC is at work, with outputs that .dvc/cache lacks put back; `say` is told of both."""
    while others := dvc_files.at_work(root):
        numbers = ", ".join(str(process.pid) for process in others)
        say(
            f"DVC is at work here, as of a run that was killed (process {numbers}); waiting until it has ended"
        )
        psutil.wait_procs(others)
    stages, changed = read_graph(root)
    gone = [
        s
        for s in stages
        if changed.get(s.name) and all(why.startswith("not in cache ") for why in changed[s.name])
    ]
    if whole := [stage for stage in gone if not dvc_files.faults(root, 1, stage.outs)[1]]:
        with dvc_files.opened(root) as repo:
            for stage in whole:
                repo.commit(stage.name)
        say(
            f"put the outputs of {len(whole)} stages, which are as in dvc.lock, back into .dvc/cache"
        )
        stages, changed = read_graph(root)
    return stages, changed


def behind(stages: list[Stage], changed: Mapping[str, list[str]]) -> set[str]:
    """The stages that are not up to date: the changed ones, and the ones that wait for a changed one."""
    names: set[str] = set()
    for stage in stages:  # in topological order
        if changed.get(stage.name) or names.intersection(stage.needs):
            names.add(stage.name)
    return names


def progress(root: Path, stage: Stage) -> str:
    """Since when another process runs this stage, and the last line of its log, as far as either is known."""
    outs = {str(root.resolve() / out) for out in stage.outs}
    try:
        writers = json.loads((root / ".dvc/tmp/rwlock").read_text(encoding="utf-8"))["write"]
        pid = next(entry["pid"] for out, entry in writers.items() if out in outs)
        began = max(
            child.create_time() for child in psutil.Process(pid).children()
        )  # the stage's command, not DVC
    except (OSError, ValueError, KeyError, StopIteration, psutil.Error):
        return ""  # it has just ended, or not yet begun
    since = f"since {time.strftime('%Y-%m-%d %H:%M', time.localtime(began))}"
    log = root / LOGS / f"{stage.name}.log"
    if not log.is_file() or log.stat().st_mtime < began:
        return since  # DVC was called by hand: the log is of an earlier run
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return f"{since}; {lines[-1]}" if lines else since


def part(stages: list[Stage], names: Collection[str]) -> list[Stage]:
    """The stages of these names, or all without names, with all that they need; LongtailError where there is none."""
    if names and not set(names) & {stage.name.partition("@")[0] for stage in stages}:
        raise LongtailError(
            f"params.yaml: this run has no stage {' or '.join(sorted(names))}; name its data under parts, or run all"
        )
    wanted = {stage.name for stage in stages if not names or stage.name.partition("@")[0] in names}
    for stage in reversed(stages):
        if stage.name in wanted:
            wanted.update(stage.needs)
    return [stage for stage in stages if stage.name in wanted]


def ready(
    stages: list[Stage], started: set[str], running: list[Stage], compute: params.Compute
) -> list[Stage]:
    """The stages to start now: long ones first, then those that most others wait for, then in the order of dvc.yaml.

    Stages that compute share `compute.workers`; on a GPU each takes all. One that takes all starts as soon as one is
    free, and no other that computes starts beside it.
    """
    share = 1 if compute.device == "cpu" else compute.workers
    workers: Mapping[str | None, int] = {None: 0, "one": share, "all": compute.workers}
    taken = sum(workers[stage.workers] for stage in running)
    unfinished = {stage.name for stage in running} | {
        stage.name for stage in stages if stage.name not in started
    }
    waiting = {stage.name: len(behind(stages, {stage.name: ["changed"]})) for stage in stages}
    chosen: list[Stage] = []
    for stage in sorted(stages, key=lambda stage: (not stage.long, -waiting[stage.name])):
        fits = not workers[stage.workers] or taken < compute.workers
        if stage.name not in started and fits and unfinished.isdisjoint(stage.needs):
            chosen.append(stage)
            taken += workers[stage.workers]
    return chosen


def _status_beside_a_run(repo) -> dict[str, list]:
    """`repo.status()` stage by stage, because it fails as a whole where another process writes one stage's outputs."""
    from dvc.lock import LockError

    status = {}
    with repo.lock:
        for stage in repo.index.stages:
            try:
                status |= stage.status(check_updates=True)
            except LockError:
                status[stage.addressing] = [RUNNING]
    return status


def _stage(root: Path, graph, stage) -> Stage:
    meta, paths = (
        stage.meta or {},
        {out: Path(out.fs_path).relative_to(root.resolve()) for out in stage.outs},
    )
    return Stage(
        name=stage.addressing,
        description=stage.desc or "",
        needs=tuple(sorted(needed.addressing for needed in graph.successors(stage))),
        workers=meta.get("workers"),
        metrics=tuple(path for path in paths.values() if _holds_figures(path)),
        outs=tuple(paths.values()),
        long=meta.get("long", False),
    )


def _holds_figures(path: Path) -> bool:
    """Whether an output is a JSON file of figures. DVC's own metrics are the headlines alone."""
    return path.suffix == ".json" and path != code.OUT


def _reasons(entries: list) -> list[str]:
    """What `repo.status()` says of one stage, as "deleted data/raw", "modified params.yaml", "changed command"."""
    reasons = []
    for entry in entries:
        if isinstance(entry, str):
            reasons.append(entry)
            continue
        for path, state in (change for changes in entry.values() for change in changes.items()):
            reasons.append(
                f"changed {path}: {', '.join(state)}"
                if isinstance(state, dict)
                else f"{state} {path}"
            )
    return reasons
