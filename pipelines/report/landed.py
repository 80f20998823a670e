"""The figures that are recorded of a run when it lands, and their page by month (`longtail report --history`).

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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from pipelines import methods
from pipelines.adaptive.pairs import BELOW
from pipelines.errors import LongtailError
from pipelines.evaluation import tables
from pipelines.intervals import NOTHING, Interval, difference, interval
from pipelines.pages import rendering
from pipelines.pages.figures import lines
from pipelines.pages.section import RULES, Block, Section, Table
from pipelines.pages.values import Percent, label, named
from pipelines.report.entries import Drawn
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic
from pipelines.work.run_log import PART, WHOLE, Landing

ANALYSES = Path("data/analyses")
METRICS = Path("data/metrics")
ADAPTIVE = METRICS / "adaptive.json"
THRESHOLDS = Path("data/adaptive/popularity/thresholds.parquet")
POLICIES = {  # metric of a run -> key of a search's figures
    "1 accuracy never retrieving": "never",
    "2 accuracy always retrieving": "always",
    "3 accuracy adaptive": "adaptive",
}
FOOTER = "Made by longtail report --history from what MLflow recorded of landed runs."
SHARES = {
    f"accuracy/{rule}": f"accuracy, {rule}" for rule in RULES
} | {  # kind of a figure (landed.py) -> words
    "adaptive": "accuracy by the rule",
    "retrieves": "share that retrieves",
}
KINDS = SHARES | {kind: kind for kind in ("questions", "triples", "passages", "bytes", "threshold")}


def figures(outs: Collection[Path], params: SimpleNamespace) -> dict[str, Interval]:
    """The figures in those files below data/ that are among `outs`, or in one of these folders."""
    return dict(_figures(lambda path: is_made(path, outs), params))


def headlines(
    outs: Collection[Path], params: SimpleNamespace
) -> tuple[dict[str, float], dict[str, str]]:
    """The few metrics that sum up a run, in order, with the method and the retriever that they are of.

    They are of the main question set, corpus and language model, as far as `outs` has them: accuracy with the method
    whose adaptive accuracy is the highest, and bits per byte with the retriever whose documents leave the fewest.
    """
    metrics: dict[str, float] = {}
    of: dict[str, str] = {}
    chosen = (params.parts.answered, params.lms, params.parts.scored)
    (main, lm, corpus), search = (
        (next(iter(names), "") for names in chosen),
        params.thresholds.search,
    )
    found = _json(ADAPTIVE).get(main, {}).get(lm, {}) if is_made(ADAPTIVE, outs) else {}
    found = {
        name: one[search] for name, one in found.items() if isinstance(one, dict) and search in one
    }
    if by_method := {name: one for name, one in found.items() if BELOW not in name}:
        of["best method"] = max(
            methods.ordered(by_method), key=lambda name: by_method[name]["adaptive"]["value"]
        )
        for name, policy in POLICIES.items():
            metrics[name] = by_method[of["best method"]][policy]["value"]
    rows = tables.read_analyses(ANALYSES, "bits_per_byte") if is_made(ANALYSES, outs) else []
    rows = [row for row in rows if (row["corpus"], row["lm"]) == (corpus, lm)]
    for row in (row for row in rows if row["k"] == 0):
        metrics["4 bits per byte without documents"] = row["bits_per_byte"].value
    if used := [
        row for row in rows if row["k"] == params.replug.top_k and row["retriever"] != "random"
    ]:
        least = min(used, key=lambda row: (row["bits_per_byte"].value, row["retriever"]))
        metrics["5 bits per byte with documents"] = least["bits_per_byte"].value
        of["best retriever"] = least["retriever"]
    return metrics, of


def _figures(
    held: Callable[[Path], bool], params: SimpleNamespace
) -> Iterator[tuple[str, Interval]]:
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
            yield name, count(number)


def is_made(path: Path, outs: Collection[Path]) -> bool:
    return path.exists() and not {path, *path.parents}.isdisjoint(outs)


def count(number: float) -> Interval:
    """A number without an interval."""
    return Interval(float(number), math.nan, math.nan)


def _json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


# the page by month


def write_history(runs: Sequence[Landing], profile: str, out: Path) -> Iterator[str]:
    """Write index.html of this profile's runs, and its table as history.csv; yields lines for a terminal.

    Raises LongtailError where no run of the profile landed.
    """
    mine = [run for run in runs if run.profile == profile]
    if not mine:
        others = ", ".join(sorted({run.profile for run in runs}))
        raise LongtailError(
            f"no run of the profile {profile} has landed, expected one; there are runs of {others}"
        )
    months = by_month(mine)
    first, last = next(iter(months)), next(reversed(months))
    when = (
        f"{len(months)} months, {first} to {last}" if first < last else f"all of one month, {first}"
    )
    counted = f"{len(mine):,} landed run{'s' * (len(mine) > 1)} of the profile {profile}: {when}."
    section = Section("history", "Month by month", [*_drawn(mine[-1], months), _table(months)])
    files = rendering.page_files("Longtail, month by month", counted, [section], FOOTER)
    with atomic(out) as folder:
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    yield counted


def by_month(runs: Sequence[Landing]) -> dict[str, Mapping[str, Interval]]:
    """Month -> figures, in order. A month has its last run of everything, with the parts that landed after that."""
    months: dict[str, Mapping[str, Interval]] = {}
    for run in runs:
        earlier = {} if run.params[PART] == WHOLE else months.get(run.month, {})
        months[run.month] = earlier | run.figures
    return dict(sorted(months.items()))


def _drawn(last: Landing, months: Mapping[str, Mapping[str, Interval]]) -> list[Block]:
    """Accuracy by method, of the last run's main question set and language model; nothing where there is none."""
    dataset, lm = (last.params.get(name, "").split(",")[0] for name in ("parts.answered", "lms"))
    start = f"accuracy/{next(iter(RULES))}/{dataset}/{lm}/"
    names = {
        name.removeprefix(start) for of in months.values() for name in of if name.startswith(start)
    }
    rows = [
        {"month": month, "series": name}
        | {rule: of.get(f"accuracy/{rule}/{dataset}/{lm}/{name}", NOTHING) for rule in RULES}
        for name in methods.ordered(sorted(names))
        for month, of in months.items()
    ]
    caption = f"{label(dataset)}, {lm}: accuracy by method, with Wilson's 95 % intervals."
    axes = {"x": "month", "y": "accuracy, %"}
    return Drawn(lines, "accuracy", rows, "month", next(iter(RULES)), caption, axes).blocks()


def _table(months: Mapping[str, Mapping[str, Interval]]) -> Table:
    """A row for each figure, a column for each month, the last one first."""
    names = sorted({name for of in months.values() for name in of})
    newest, rows = [*reversed(months)], []
    for kind, words in KINDS.items():
        parts = 2 if kind in SHARES else 3
        for name in (name for name in names if f"{name}/".startswith(f"{kind}/")):
            of = ", ".join(
                named(label(part))
                for part in name.removeprefix(kind).removeprefix("/").split("/", parts)
            )
            known = [months[month].get(name, NOTHING) for month in newest]
            change = difference(*known[:2]) if len(known) > 1 else NOTHING
            if kind in SHARES:
                rows.append([words, of, Percent(change, signed=True), *map(Percent, known)])
            else:
                rows.append(
                    [
                        words,
                        of,
                        None,
                        *(one.value if one.value % 1 else int(one.value) for one in known),
                    ]
                )
    caption = "Shares in per cent and sizes by month, the last month first, and its change, as uncertain as both months."
    return Table("history", caption, ["figure", "of", "change", *newest], rows)
