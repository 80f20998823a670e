"""The numbers of rows that a run made, by what they are of."""

import json
import math
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace

from pipelines.intervals import Interval

ANALYSES = Path("data/analyses")
METRICS = Path("data/metrics")


def figures(outs: Collection[Path], params: SimpleNamespace) -> dict[str, Interval]:
    """The figures in those files below data/ that are among `outs`, or in one of these folders."""
    return dict(_figures(lambda path: is_made(path, outs), params))


def _figures(
    held: Callable[[Path], bool], params: SimpleNamespace
) -> Iterator[tuple[str, Interval]]:
    counts = {f"questions/{name}": (name, "questions") for name in params.parts.question_sets}
    counts |= {"triples": ("triples", "triples")}
    counts |= {f"passages/{name}": (f"corpus_{name}", "documents") for name in params.parts.corpora}
    for name, (file, key) in counts.items():
        if held(path := METRICS / f"{file}.json") and (number := _json(path).get(key)) is not None:
            yield name, count(number)


def is_made(path: Path, outs: Collection[Path]) -> bool:
    return path.exists() and not {path, *path.parents}.isdisjoint(outs)


def count(number: float) -> Interval:
    """A number without an interval."""
    return Interval(float(number), math.nan, math.nan)


def _json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
