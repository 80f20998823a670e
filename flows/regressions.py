"""Figures that are worse than those of the last run that landed.

A run lands when all its stages are up to date. A run that fails does not change the figures to compare with.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flows import earlier, graph
from pipelines import shards

LANDED = shards.SCRATCH / "landed.json"  # profile -> file -> figure -> value
MORE_IS_BETTER = re.compile(  # figures by their last key: quality, and how much was built
    r"accuracy|mean_of_categories|exact_match|adaptive|recall.*|.*matched_share|with_entity_share"
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


def find(root: Path, profile: str, stages: list[graph.Stage], tolerance: float) -> list[Regression] | None:
    """Figures of the stages that are worse than the landed run's, the worst first; None without a landed run.

    A figure is worse when it lost more than `tolerance` times what it was, and its interval, if it has one, does not
    hold the old value. The landed run is the last one of this profile that landed here. Before there is one, the last
    commit takes its place, as far as its metrics are in DVC's cache.
    """
    landed = _kept().get(profile) or _committed(root, profile)
    if not landed:
        return None
    worse = []
    for path in _files(stages):
        old = landed.get(path.as_posix(), {})
        for name, value, low, high in _read(root / path):
            if name in old and (direction := _better_direction(name)):
                loss = (old[name] - value) * direction
                noise = low is not None and low <= old[name] <= high
                if loss > tolerance * abs(old[name]) and not noise:
                    worse.append(Regression(path.as_posix(), name, old[name], value))
    return sorted(worse, key=lambda loss: (-abs(loss.change), loss.file, loss.figure))


def keep(profile: str, stages: list[graph.Stage]) -> None:
    """Take these stages' figures as those of the last landed run from now on."""
    kept = _kept()
    mine = kept.setdefault(profile, {})
    for path in _files(stages):
        mine[path.as_posix()] = {name: value for name, value, *_ in _read(path)}
    shards.write_json(LANDED, kept)
    earlier.keep(profile)


def _files(stages: list[graph.Stage]) -> list[Path]:
    return [path for stage in stages for path in stage.metrics]


def _better_direction(figure: str) -> int:
    """1 where more is better, -1 where less is better, 0 for a figure with neither."""
    last = figure.rsplit("/", 1)[-1]
    return 1 if MORE_IS_BETTER.fullmatch(last) else -1 if LESS_IS_BETTER.fullmatch(last) else 0


def _read(path: Path) -> list[tuple[str, float, float | None, float | None]]:
    return list(_figures(json.loads(path.read_text(encoding="utf-8")))) if path.is_file() else []


def _figures(values: Any, prefix: str = "") -> Iterator[tuple[str, float, float | None, float | None]]:
    """(keys, value, low, high) of each figure, low and high of its interval if it has one; curves are left out."""
    if isinstance(values, dict) and "value" in values:
        yield prefix, values["value"], values.get("low"), values.get("high")
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from _figures(value, f"{prefix}/{key}" if prefix else key)
    elif isinstance(values, int | float):
        yield prefix, values, None, None


def _kept() -> dict[str, dict[str, dict[str, float]]]:
    return json.loads(LANDED.read_text(encoding="utf-8")) if LANDED.is_file() else {}


def _committed(root: Path, profile: str) -> dict[str, dict[str, float]]:
    """The last commit's figures by file; none if it has another profile, or outside a git repository."""
    shown = subprocess.run(["git", "show", "HEAD:./params.yaml"], cwd=root, capture_output=True)
    if shown.returncode or (yaml.safe_load(shown.stdout) or {}).get("profile") != profile:
        return {}
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.ERROR)
    try:
        with Repo(str(root)) as repo:
            files = repo.metrics.show(revs=["HEAD"]).get("HEAD", {}).get("data", {})
    except DvcException:
        return {}
    return {
        Path(path).as_posix(): {name: value for name, value, *_ in _figures(shown.get("data", {}))}
        for path, shown in files.items()
        if shown.get("data")
    }
