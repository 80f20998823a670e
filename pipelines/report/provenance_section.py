"""The report on how it was made: the stages before it, hashes of what it read, and where to find runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines import parquet
from pipelines.report.page import Link, Section, Table
from pipelines.sources import snapshots

STAGE = "report"
PREFECT, MLFLOW = "http://127.0.0.1:4200", "http://127.0.0.1:5000"
DIGITS = 12  # of a hash, enough to tell files apart


def provenance(data: Path, manifest: Sequence[dict], params: Mapping[str, Any], days_apart: int = 0) -> Section:
    """The stages of the dvc.yaml beside `data`, and the hashes of what the report read and of the source files.

    Then the dates of dumps and page views, with a warning where they are more than `days_apart` days apart.

    DVC takes neither dvc.yaml nor dvc.lock as a dependency, so a change of either alone does not make the page again.
    The page therefore says that the stages are those of its time, and shows of dvc.lock only its own inputs' hashes.
    """
    title, project = "What was run, and how this page was made", data.parent
    sources = Table(
        "source-files",
        f"Source files, with the first {DIGITS} digits of their SHA-256.",
        ["file", "bytes", "SHA-256", "from"],
        [[row["path"], row["bytes"], row["sha256"][:DIGITS], row["source"]] for row in manifest],
    )
    dated = _dates(snapshots.dates(manifest, _months(data)), days_apart)
    if not (project / "dvc.yaml").is_file():
        return Section(
            "provenance", title, [*dated, sources], "No dvc.yaml lies beside data/, so its stages are unknown."
        )
    stages = yaml.safe_load((project / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    stages = {name: _resolved(stage, params) for name, stage in stages.items()}
    stages = {name: stage for name, stage in stages.items() if _items(stage)}  # not those of an empty list
    made = {name: _paths(stage, [*stage.get("outs", []), *stage.get("metrics", [])]) for name, stage in stages.items()}
    read = {name: _paths(stage, _inputs(stage)) for name, stage in stages.items()}
    needs = {name: [other for other in stages if other != name and _meet(made[other], read[name])] for name in stages}
    times = {name: len(_items(stage)) for name, stage in stages.items()}
    before = _before(STAGE, needs)
    runs = sum(times[name] for name in before)
    return Section(
        "provenance",
        title,
        [
            f"DVC makes this page last, when the {len(before)} stages before it ({runs} runs) are up to date. A stage "
            "whose code, inputs or parameters changed has run again; the others were kept. So all figures here are of "
            "one state of the code, the parameters (params.yaml) and the sources.",
            Table(
                "stages",
                "The stages of dvc.yaml when this page was made, how often each runs (for every corpus, language model "
                "or method), and after which stages.",
                ["stage", "what it makes", "runs", "after", "under"],
                [
                    [name, stage.get("desc"), times[name], ", ".join(needs[name]), _under(stage)]
                    for name, stage in stages.items()
                ],
            ),
            *_state(project / "dvc.lock", stages),
            *dated,
            sources,
            "Times and logs of runs are not on this page, because the same inputs must give the same page. Prefect and "
            "MLflow on the machine that made it have them; the command longtail explore --all opens both there:",
            Link(f"Prefect, runs and logs ({PREFECT})", PREFECT),
            Link(f"MLflow, parameters, metrics and the registry of retrievers ({MLFLOW})", MLFLOW),
        ],
    )


def _months(data: Path) -> list[str]:
    """The months of the page views that questions have."""
    files = [file for file in data.glob("questions/*/*.parquet") if "month" in parquet.schema_of(file).names]
    return sorted({month for file in files for month in parquet.read(file, ["month"])["month"].unique().to_pylist()})


def _dates(dates: Mapping[str, list[str]], days_apart: int) -> list[Table | str]:
    """A table of what the sources are of, and a warning where their dates are too far apart; nothing without dates."""
    if not dates:
        return []
    rows = [[name, ", ".join(days)] for name, days in dates.items()]
    table = Table("dates", "What the facts, the pages and the page views are of.", ["source", "of"], rows)
    return [table, *filter(None, [snapshots.warning(dates, days_apart)])]


def _resolved(value: Any, params: Mapping[str, Any]) -> Any:
    """A part of dvc.yaml in which params replace ${section.key}, ${key} and ${key[0]}."""
    if isinstance(value, dict):
        return {key: _resolved(entry, params) for key, entry in value.items()}
    if isinstance(value, list):
        return [_resolved(entry, params) for entry in value]
    if not isinstance(value, str):
        return value
    for name in re.findall(r"\$\{(?!item\.)([^}]+)\}", value):
        key, *index = name.removesuffix("]").split("[")
        param = params[key.split(".")[0]]
        for part in key.split(".")[1:]:
            param = getattr(param, part)
        param = next(iter(param), "") if index else param
        if value == f"${{{name}}}":
            return param
        value = value.replace(f"${{{name}}}", str(param))
    return value


def _inputs(stage: dict) -> list[str]:
    """The paths that a stage depends on, files of params among them."""
    files = [file for entry in stage.get("params", []) if isinstance(entry, dict) for file in entry]
    return [*stage.get("deps", []), *files]


def _items(stage: dict) -> list[dict[str, str]]:
    """The runs of a stage, each with a value for every key of its matrix; one run if it has no matrix."""
    matrix = stage.get("matrix", {})
    return [dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())]


def _paths(stage: dict, entries: list[str | dict]) -> set[str]:
    """The paths of all runs of a stage, their placeholders filled in."""
    paths = [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]
    return {
        re.sub(r"\$\{item\.(\w+)\}", lambda match, item=item: item[match[1]], path)
        for path in paths
        for item in _items(stage)
    }


def _meet(made: set[str], read: set[str]) -> bool:
    """Whether a path of one set is, or lies within, a path of the other."""
    return any(f"{out}/".startswith(f"{dep}/") or f"{dep}/".startswith(f"{out}/") for out in made for dep in read)


def _under(stage: dict) -> str:
    outs = [out if isinstance(out, str) else next(iter(out)) for out in stage.get("outs", [])]
    return re.sub(r"\$\{item\.(\w+)\}", r"<\1>", ", ".join(outs))


def _before(name: str, needs: dict[str, list[str]]) -> set[str]:
    """All stages that a stage depends on, directly or through others."""
    before, pending = set(), list(needs[name])
    while pending:
        if (stage := pending.pop()) not in before:
            before.add(stage)
            pending += needs[stage]
    return before


def _state(lock: Path, stages: dict) -> list[Table]:
    """The hashes in dvc.lock of what the report read: not those of stages that are gone, nor of the report itself."""
    if not lock.is_file():
        return []
    read, locked = set(_inputs(stages[STAGE])), yaml.safe_load(lock.read_text(encoding="utf-8"))["stages"]
    names = ["@".join(filter(None, (name, "-".join(i.values())))) for name in stages for i in _items(stages[name])]
    outs = {
        out["path"]: out for name in names for out in locked.get(name, {}).get("outs", []) if _meet({out["path"]}, read)
    }
    return [
        Table(
            "state",
            f"What this page was made from, with the first {DIGITS} digits of DVC's MD5 (in dvc.lock). The same hash "
            "means the same data.",
            ["output", "files", "bytes", "MD5"],
            [
                [path, out.get("nfiles", 1), out["size"], out["md5"].removesuffix(".dir")[:DIGITS]]
                for path, out in sorted(outs.items())
            ],
        )
    ]
