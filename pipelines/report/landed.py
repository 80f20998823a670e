"""The figures that are recorded of a run when it lands, so that the history can show them (history_page.py).

| name | figure |
|---|---|
| accuracy/RULE/SET/LM/METHOD | share of the questions that are right, with Wilson's interval |
| adaptive/SET/LM/METHOD | held-out accuracy of the rule, by the search in use |
| retrieves/SET/LM/METHOD | share of the questions that retrieve by that rule |
| threshold/SET/LM/RELATION/METHOD | popularity from which not to retrieve, and the bounds of those that are as good |
| questions/SET, triples, passages/CORPUS | how many there are |
| bytes/FOLDER | of what stages wrote into data/FOLDER |

Thresholds are those of the run's main language model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

from pipelines.evaluation import tables
from pipelines.intervals import Interval, interval
from pipelines.report.page import RULES
from pipelines.storage import parquet

ANALYSES = Path("data/analyses")
METRICS = Path("data/metrics")
ADAPTIVE = METRICS / "adaptive.json"
THRESHOLDS = Path("data/adaptive/popularity/thresholds.parquet")


def figures(outs: Collection[Path], params: SimpleNamespace) -> dict[str, Interval]:
    """The figures in those files below data/ that are among `outs`, or in one of these folders.

    `params` needs lms, parts and thresholds.
    """
    held = {*outs}
    return dict(_figures(lambda path: path.exists() and not held.isdisjoint((path, *path.parents)), params))


def sizes(folders: Mapping[str, int]) -> dict[str, Interval]:
    """Bytes by folder as figures."""
    return {f"bytes/{folder}": _count(size) for folder, size in folders.items() if folder}


def _figures(held: Callable[[Path], bool], params: SimpleNamespace) -> Iterator[tuple[str, Interval]]:
    if held(ANALYSES):
        for row in tables.read_analyses(ANALYSES, "accuracy"):
            for rule in RULES:
                yield f"accuracy/{rule}/{row['dataset']}/{row['lm']}/{row['method']}", row[rule]
    search = params.thresholds.search
    for dataset, by_lm in _json(ADAPTIVE).items() if held(ADAPTIVE) else ():
        for lm, by_method in by_lm.items():
            for method, found in by_method.items():
                if isinstance(found, dict) and search in found:
                    yield f"adaptive/{dataset}/{lm}/{method}", interval(found[search]["adaptive"])
                    yield f"retrieves/{dataset}/{lm}/{method}", interval(found[search]["retrieved"])
    for row in parquet.read_parquet(THRESHOLDS).to_pylist() if held(THRESHOLDS) else ():
        if row["search"] == search and row["lm"] in params.lms[:1]:
            ends = (row[column] for column in ("threshold", "threshold_low", "threshold_high"))
            name = f"threshold/{row['dataset']}/{row['lm']}/{row['relation']}/{row['method']}"
            yield name, Interval(*(math.nan if end is None else end for end in ends))
    counts = {f"questions/{name}": (name, "questions") for name in params.parts.question_sets}
    counts |= {"triples": ("triples", "triples")}
    counts |= {f"passages/{name}": (f"corpus_{name}", "documents") for name in params.parts.corpora}
    for name, (file, key) in counts.items():
        if held(path := METRICS / f"{file}.json") and (number := _json(path).get(key)) is not None:
            yield name, _count(number)


def _count(number: float) -> Interval:
    return Interval(float(number), math.nan, math.nan)


def _json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
