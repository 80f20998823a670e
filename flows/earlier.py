"""The outputs of an earlier run, from DVC's cache: of a commit, or of a run that landed here."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from pipelines.errors import LongtailError
from pipelines.storage import shards

RUNS = shards.SCRATCH / "landed"  # <profile>-<number>.lock, the dvc.lock of each run that landed here
KEPT = 20  # of a profile
LAST = "landed"  # the name of the last one that is not of the data at hand
REPORT = "data/report"
WANTED = (REPORT, "data/analyses", "data/predictions", "data/questions", "data/metrics/adaptive.json")
HASH = re.compile(r"([0-9a-f]{2})([0-9a-f]{30}(?:\.dir)?)")


def keep_lock(profile: str, lock: Path = Path("dvc.lock")) -> None:
    """Keep what the run that lands now made, if the last one of its profile made anything else."""
    runs = _runs(profile)
    if not lock.is_file() or (runs and runs[-1].read_bytes() == lock.read_bytes()):
        return
    number = _number(runs[-1]) + 1 if runs else 1
    with shards.atomic(RUNS / f"{profile}-{number}.lock") as file:
        file.write_bytes(lock.read_bytes())
    for old in runs[: len(runs) + 1 - KEPT]:
        old.unlink()


def restore(old: str, profile: str, into: Path) -> str:
    """Lay an earlier run's report, tables, answers and questions into a folder, as links; returns the run's name.

    `old` is a run that landed, LAST, or a commit. Raises LongtailError where it is none of them, or where DVC's cache
    lacks its report. Others that the cache lacks are left out.
    """
    name, outs = _outs(old, profile)
    if REPORT not in outs:
        raise LongtailError(f"{name}: has no {REPORT}, expected a run that made the report")
    cache = _cache()
    missing = [
        path
        for path, md5 in outs.items()
        if path.startswith(WANTED) and not _lay(cache, md5, into / PurePosixPath(path).relative_to("data"))
    ]
    if REPORT in missing:
        raise LongtailError(
            f"{REPORT} of {name}: not in DVC's cache, expected its files there; `dvc fetch` brings those of a commit"
        )
    return name


def metrics(profile: str, files: Collection[Path]) -> dict[Path, Any] | None:
    """The content of metrics files as the last run of a profile that landed here left them; None where there is none.

    What DVC's cache lacks is left out.
    """
    if not (runs := _runs(profile)):
        return None
    outs, cache = _locked(runs[-1].read_text(encoding="utf-8")), _cache()
    held = {file: _held(cache, outs[file.as_posix()]) for file in files if file.as_posix() in outs}
    found = {file: json.loads(one.read_text(encoding="utf-8")) for file, one in held.items() if one}
    return found or None


def _cache() -> Path:
    from dvc.repo import Repo

    with Repo(".") as repo:
        return Path(repo.cache.local.path)


def _outs(old: str, profile: str) -> tuple[str, dict[str, str]]:
    """What the earlier run is called, and path -> MD5 of its outputs."""
    here = Path("dvc.lock")
    others = [run for run in _runs(profile) if not here.is_file() or _report(run) != _report(here)]
    if old == LAST and not others and (landed := [run.stem for run in _runs(profile)]):
        what = "only this run has landed" if len(landed) == 1 else "all landed runs have this report"
        raise LongtailError(f"--compare {LAST}: {what} ({', '.join(landed)}); name a commit or a release, or run again")
    run = others[-1] if old == LAST and others else RUNS / f"{old}.lock"
    if run in _runs():
        return run.stem, _locked(run.read_text(encoding="utf-8"))
    git = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{old}^{{commit}}"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    shown = subprocess.run(["git", "show", f"{commit}:./dvc.lock"], capture_output=True, text=True).stdout
    if not (commit and shown):
        landed = ", ".join(run.stem for run in _runs()) or "none yet"
        raise LongtailError(
            f"--compare {old}: no such commit with a dvc.lock, and no such run that landed here ({landed}); "
            f"expected one of them, or {LAST} for the last landed run with another report"
        )
    return f"commit {commit[:10]}", _locked(shown)


def _runs(profile: str = "*") -> list[Path]:
    """The runs that landed here, the last one of a profile last."""
    runs = [run for run in RUNS.glob(f"{profile}-*.lock") if run.stem.rpartition("-")[2].isdecimal()]
    runs = [run for run in runs if profile in ("*", run.stem.rpartition("-")[0])]
    return sorted(runs, key=lambda run: (run.stem.rpartition("-")[0], _number(run)))


def _number(run: Path) -> int:
    return int(run.stem.rpartition("-")[2])


def _report(lock: Path) -> str | None:
    return _locked(lock.read_text(encoding="utf-8")).get(REPORT)


def _locked(text: str) -> dict[str, str]:
    stages = (yaml.safe_load(text) or {}).get("stages", {})
    return {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", []) if "md5" in out}


def _held(cache: Path, md5: str) -> Path | None:
    """The file of the cache with that hash, if it is there."""
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
        ".." not in PurePosixPath(entry["relpath"]).parts and _lay(cache, entry["md5"], target / entry["relpath"])
        for entry in entries
    )
