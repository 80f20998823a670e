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

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

from pipelines import methods
from pipelines.adaptive.pairs import BELOW
from pipelines.evaluation import tables
from pipelines.intervals import Interval, interval
from pipelines.report.page import RULES
from pipelines.storage import parquet

ANALYSES = Path("data/analyses")
METRICS = Path("data/metrics")
ADAPTIVE = METRICS / "adaptive.json"
THRESHOLDS = Path("data/adaptive/popularity/thresholds.parquet")
POLICIES = {  # metric of a run -> key of a search's figures
    "1 accuracy never retrieving": "never",
    "2 accuracy always retrieving": "always",
    "3 accuracy adaptive": "adaptive",
}


def figures(outs: Collection[Path], params: SimpleNamespace) -> dict[str, Interval]:
    """The figures in those files below data/ that are among `outs`, or in one of these folders.

    `params` needs lms, parts and thresholds.
    """
    return dict(_figures(lambda path: is_made(path, outs), params))


def headlines(outs: Collection[Path], params: SimpleNamespace) -> tuple[dict[str, float], dict[str, str]]:
    """The few metrics that sum up a run, in order, with the method and the retriever that they are of.

    They are of the main question set, corpus and language model, as far as `outs` has them: accuracy with the method
    whose adaptive accuracy is the highest, of equal ones the first as in the report, and bits per byte with the
    retriever whose documents leave the fewest.
    `params` needs replug beside what `figures` does.
    """
    metrics: dict[str, float] = {}
    of: dict[str, str] = {}
    chosen = (params.parts.answered, params.lms, params.parts.scored)
    (main, lm, corpus), search = (next(iter(names), "") for names in chosen), params.thresholds.search
    found = _json(ADAPTIVE).get(main, {}).get(lm, {}) if is_made(ADAPTIVE, outs) else {}
    by_method = {
        name: one[search]
        for name, one in found.items()
        if isinstance(one, dict) and search in one and BELOW not in name  # no pair of two methods that retrieve
    }
    if by_method:
        of["best method"] = max(methods.ordered(by_method), key=lambda name: by_method[name]["adaptive"]["value"])
        for name, policy in POLICIES.items():
            metrics[name] = by_method[of["best method"]][policy]["value"]
    rows = tables.read_analyses(ANALYSES, "bits_per_byte") if is_made(ANALYSES, outs) else []
    rows = [row for row in rows if (row["corpus"], row["lm"]) == (corpus, lm)]
    for row in (row for row in rows if row["k"] == 0):
        metrics["4 bits per byte without documents"] = row["bits_per_byte"].value
    if used := [row for row in rows if row["k"] == params.replug.top_k and row["retriever"] != "random"]:
        least = min(used, key=lambda row: (row["bits_per_byte"].value, row["retriever"]))
        metrics["5 bits per byte with documents"] = least["bits_per_byte"].value
        of["best retriever"] = least["retriever"]
    return metrics, of


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


def is_made(path: Path, outs: Collection[Path]) -> bool:
    return path.exists() and not {path, *path.parents}.isdisjoint(outs)


def _count(number: float) -> Interval:
    return Interval(float(number), math.nan, math.nan)


def _json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
