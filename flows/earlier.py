"""Earlier runs: what each left in DVC's cache, what is worse since, and in MLflow the figures of all that landed."""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from flows import dvc_files, graph, terminal
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage.atomic import SCRATCH, atomic
from pipelines.work.run_log import (
    EXPERIMENT,
    FILE,
    MONTH,
    PART,
    Landing,
    Run,
    explained,
    flat,
    open_client,
    read_landings,
    store,
)

RUNS = SCRATCH / "landed"  # <profile>-<number>.lock, the dvc.lock of each run that landed here
KEPT = 20  # landed runs of a profile that are kept
LAST = "landed"  # the name of the last one that is not of the data at hand
REPORT = "data/report"
WANTED = (
    REPORT,
    "data/analyses",
    "data/predictions",
    "data/questions",
    "data/metrics/adaptive.json",
)
HASH = re.compile(r"([0-9a-f]{2})([0-9a-f]{30}(?:\.dir)?)")
MORE_IS_BETTER = re.compile(  # figures by their last key: quality, and how much was built
    r"accuracy|exact_match|adaptive|recall.*|.*matched_share|with_entity_share"
    r"|entities|triples|questions|documents|mentions|titles_with_views"
)
LESS_IS_BETTER = re.compile(r"(word_)?perplexity(?!_random).*|bpb(?!_random).*|loss|kl.*|rejected")


@dataclass(frozen=True)
class Regression:
    file: str  # a metrics file
    figure: str  # the keys of the figure in that file, with / between them
    before: float
    now: float

    @property
    def change(self) -> float:
        """How much the figure changed, as a share of what it was."""
        return (self.now - self.before) / abs(self.before) if self.before else float("inf")

    def __str__(self) -> str:
        return f"{self.figure} of {self.file} from {self.before:.4g} to {self.now:.4g} ({self.change:+.1%})"


def keep_lock(profile: str, lock: Path = Path("dvc.lock")) -> None:
    """Keep what the run that lands now made, if the last one of its profile made anything else."""
    runs = _runs(profile)
    if not lock.is_file() or (runs and runs[-1].read_bytes() == lock.read_bytes()):
        return
    number = _number(runs[-1]) + 1 if runs else 1
    with atomic(RUNS / f"{profile}-{number}.lock") as file:
        file.write_bytes(lock.read_bytes())
    for old in runs[: len(runs) + 1 - KEPT]:
        old.unlink()


def restore(old: str, profile: str, into: Path) -> str:
    """Lay an earlier run's report, tables, answers and questions into a folder, as links; returns the run's name.

    `old` is a run that landed, LAST, or a commit. Raises LongtailError for others, or if its report is not cached.
    """
    name, outs = _outs(old, profile)
    if REPORT not in outs:
        raise LongtailError(f"{name}: has no {REPORT}, expected a run that made the report")
    cache = _cache()
    missing = [
        path
        for path, md5 in outs.items()
        if path.startswith(WANTED)
        and not _lay(cache, md5, into / PurePosixPath(path).relative_to("data"))
    ]
    if REPORT in missing:
        raise LongtailError(
            f"{REPORT} of {name}: not in DVC's cache, expected its files there; `dvc fetch` brings those of a commit"
        )
    return name


def find_regressions(
    profile: str, stages: list[graph.Stage], tolerance: float
) -> list[Regression] | None:
    """Figures of the stages that are worse than the profile's last landed run's, the worst first; None without one.

    A figure is worse when it lost more than `tolerance` of what it was, and its interval does not hold the old value.
    """
    files = [path for stage in stages for path in stage.metrics]
    if (landed := _metrics_of_landed(profile, files)) is None:
        return None
    worse = []
    for path in (path for path in files if path.is_file()):
        old = {name: value for name, value, *_ in _figures(landed.get(path, {}))}
        for name, value, low, high in _figures(json.loads(path.read_text(encoding="utf-8"))):
            last = name.rsplit("/", 1)[-1]
            better = bool(MORE_IS_BETTER.fullmatch(last)) - bool(
                LESS_IS_BETTER.fullmatch(last)
            )  # 1, -1, or 0: neither
            before = old.get(name, value)
            noise = low is not None and low <= before <= high
            if (before - value) * better > tolerance * abs(before) and not noise:
                worse.append(Regression(path.as_posix(), name, before, value))
    return sorted(worse, key=lambda loss: (-abs(loss.change), loss.file, loss.figure))


def keep_landing(part: str, stages: Collection[graph.Stage], run: Run) -> None:
    """Log in MLflow that a run of a part landed, with the figures of all its stages, whatever became of each."""
    from pipelines.report import landed

    chosen = params_file.load_params(
        "profile", "popularity", "lms", "parts", "thresholds", "replug"
    )
    outs = {out for stage in stages for out in stage.outs}
    params = {"profile": chosen.profile, MONTH: chosen.popularity.month, PART: part}
    params |= {"lms": ",".join(chosen.lms), "parts.answered": ",".join(chosen.parts.answered)}
    locked, sizes = (
        dvc_files.kept(Path.cwd()),
        Counter(),
    )  # bytes of what the stages wrote, by folder of data/
    for out in (out for stage in stages for out in locked.get(stage.name, {}).get("outs", [])):
        _, folder, *_ = *Path(out["path"]).parts, ""
        sizes[f"bytes/{folder}"] += out.get("size", 0) if folder else 0
    counted = {name: landed.count(size) for name, size in sizes.items() if size}
    first, of = landed.headlines(
        outs, chosen
    )  # MLflow's page of a run keeps the order in which metrics are logged
    run.land(params | of, first | flat(landed.figures(outs, chosen) | counted))


def landed_runs() -> list[Landing]:
    """The runs that landed, by MLflow, the last one last. Raises LongtailError if there is none, or no MLflow."""
    none = f"MLflow ({store()}) has no run that landed; `longtail run` records the next one that changes anything"
    if (
        "MLFLOW_TRACKING_URI" not in os.environ and not FILE.is_file()
    ):  # looking must not make a database
        raise LongtailError(none)
    try:
        client = open_client()
        experiment = client.get_experiment_by_name(EXPERIMENT)
        found = read_landings(client, experiment.experiment_id) if experiment else []
    except Exception as error:  # MLflow's stores have many
        raise LongtailError(explained(error)) from None
    if not found:
        raise LongtailError(none)
    return found


def write_history() -> Iterator[str]:
    """Write the page of landed runs, and its figures as CSV; yields lines. Raises LongtailError as `landed_runs`."""
    from pipelines.report import landed

    chosen = params_file.load_params("profile")
    yield from landed.write_history(landed_runs(), chosen.profile, terminal.HISTORY.parent)


def _metrics_of_landed(profile: str, files: Collection[Path]) -> dict[Path, Any] | None:
    """Metrics files as a profile's last landed run left them, as far as DVC's cache has them; None without any."""
    if not (runs := _runs(profile)):
        return None
    outs, cache = _locked(runs[-1].read_text(encoding="utf-8")), _cache()
    held = {file: _held(cache, outs[file.as_posix()]) for file in files if file.as_posix() in outs}
    found = {file: json.loads(one.read_text(encoding="utf-8")) for file, one in held.items() if one}
    return found or None


def _cache() -> Path:
    with dvc_files.opened(Path.cwd()) as repo:
        return Path(repo.cache.local.path)


def _outs(old: str, profile: str) -> tuple[str, dict[str, str]]:
    """What the earlier run is called, and path -> MD5 of its outputs."""
    here = Path("dvc.lock")
    others = [run for run in _runs(profile) if not here.is_file() or _report(run) != _report(here)]
    if old == LAST and not others and (landed := [run.stem for run in _runs(profile)]):
        what = (
            "only this run has landed" if len(landed) == 1 else "all landed runs have this report"
        )
        raise LongtailError(
            f"--compare {LAST}: {what} ({', '.join(landed)}); name a commit or a release, or run again"
        )
    run = others[-1] if old == LAST and others else RUNS / f"{old}.lock"
    if run in _runs():
        return run.stem, _locked(run.read_text(encoding="utf-8"))
    git = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{old}^{{commit}}"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    shown = subprocess.run(
        ["git", "show", f"{commit}:./dvc.lock"], capture_output=True, text=True
    ).stdout
    if not (commit and shown):
        landed = ", ".join(run.stem for run in _runs()) or "none yet"
        raise LongtailError(
            f"--compare {old}: no such commit with a dvc.lock, and no such run that landed here ({landed}); "
            f"expected one of them, or {LAST} for the last landed run with another report"
        )
    return f"commit {commit[:10]}", _locked(shown)


def _runs(profile: str = "*") -> list[Path]:
    runs = [
        run for run in RUNS.glob(f"{profile}-*.lock") if run.stem.rpartition("-")[2].isdecimal()
    ]
    runs = [run for run in runs if profile in ("*", run.stem.rpartition("-")[0])]
    return sorted(runs, key=lambda run: (run.stem.rpartition("-")[0], _number(run)))


def _number(run: Path) -> int:
    return int(run.stem.rpartition("-")[2])


def _report(lock: Path) -> str | None:
    return _locked(lock.read_text(encoding="utf-8")).get(REPORT)


def _locked(text: str) -> dict[str, str]:
    """Path -> MD5 of the outputs in a dvc.lock.

    DVC keeps the entries of stages that dvc.yaml no longer has. An output inside another stage's folder is such a one.
    """
    stages = (yaml.load(text, yaml.CSafeLoader) or {}).get("stages", {})
    outs = {
        out["path"]: out["md5"]
        for stage in stages.values()
        for out in stage.get("outs", [])
        if "md5" in out
    }
    return {
        path: md5
        for path, md5 in outs.items()
        if outs.keys().isdisjoint(map(str, PurePosixPath(path).parents))
    }


def _held(cache: Path, md5: str) -> Path | None:
    parts = HASH.fullmatch(md5)
    return file if parts and (file := cache / parts[1] / parts[2]).is_file() else None


def _lay(cache: Path, md5: str, target: Path) -> bool:
    """Link a file or a folder's files of the cache; False where the cache lacks one of them."""
    if not (held := _held(cache, md5)):
        return False
    if not md5.endswith(".dir"):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(held)
        return True
    entries = json.loads(held.read_text(encoding="utf-8"))
    return all(
        ".." not in PurePosixPath(entry["relpath"]).parts
        and _lay(cache, entry["md5"], target / entry["relpath"])
        for entry in entries
    )


def _figures(
    values: Any, prefix: str = ""
) -> Iterator[tuple[str, float, float | None, float | None]]:
    """(keys, value, low, high) of each figure, low and high of its interval if it has one; curves are left out."""
    if isinstance(values, dict) and "value" in values:
        if values["value"] is not None:  # null where nothing could be measured
            yield prefix, values["value"], values.get("low"), values.get("high")
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from _figures(value, f"{prefix}/{key}" if prefix else key)
    elif isinstance(values, int | float):
        yield prefix, values, None, None
