"""How long a run's stages take: by the last time that each of them did its work, or by their own progress bars."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from flows import graph
from pipelines import params, tracking

BAR = re.compile(r"(?:.*: +)? *(\d+)%\|[^|]*\| *(\S+/\S+) \[[\d:]+<(?:([\d:]+)|\?),.*")  # tqdm's


def earlier(stages: list[graph.Stage], changed: Mapping[str, list[str]]) -> dict[str, float]:
    """The seconds that stages took when they last did their work in a flow, by name.

    A stage has none if its params, or those of a stage that it needs, are others now: it may have more to do.
    `changed` is as `graph.read` gives it.
    """
    found: dict[str, float] = {}
    others: set[str] = set()
    for stage in stages:  # in topological order
        if others.intersection(stage.needs) or any(map(_is_of_params, changed.get(stage.name, []))):
            others.add(stage.name)
        elif (record := tracking.record_of(stage.name)) and not record["error"]:
            found[stage.name] = record["ended"] - record["started"]
    return found


def left(
    stages: list[graph.Stage], seconds: Mapping[str, float], running: Collection[str], compute: params.Compute
) -> float | None:
    """The seconds until the last of `stages` ends, of which `running` have begun; None where one's time is unknown.

    `seconds` has what each stage that has not ended takes from now on, or from its beginning.
    """
    if any(stage.name not in seconds for stage in stages):
        return None
    by_name = {stage.name: stage for stage in stages}
    ends = {name: seconds[name] for name in running}
    started, now = set(running), 0.0
    while True:
        for stage in graph.ready(stages, started, [by_name[name] for name in ends], compute):
            started.add(stage.name)
            ends[stage.name] = now + seconds[stage.name]
        if not ends:
            return now
        name = min(ends, key=ends.__getitem__)
        now = ends.pop(name)


def of_bar(line: str) -> tuple[int, str, float | None] | None:
    """What a progress bar says: percent, count of total, and the seconds that it thinks are left; None for no bar."""
    if not (bar := BAR.fullmatch(line)):
        return None
    parts = [int(part) for part in bar[3].split(":")] if bar[3] else []
    return int(bar[1]), bar[2], sum(60**power * part for power, part in enumerate(reversed(parts))) if parts else None


def clock(seconds: float) -> str:
    """As 0:07, 12:30 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _is_of_params(reason: str) -> bool:
    return re.search(r" params\.yaml(:|$)", reason) is not None
