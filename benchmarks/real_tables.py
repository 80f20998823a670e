"""CSV files of what the runs of real models measured."""

import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import real_lsr_tables, real_report_tables
from benchmarks.project_copy import write_csv
from benchmarks.real_report_tables import Table, read_json

# in WORK: seconds and the largest process's memory of each call in each copy
CALLS = "real_models.json"


class Measured(NamedTuple):
    """How to read a run."""

    tables: Callable[[list[Path]], Iterator[Table]]  # of the run's copies that have figures
    done: str  # the file that a copy has when it has figures


def _sizes(copies: list[Path]) -> Iterator[Table]:
    yield from real_report_tables.four_models(copies)
    yield from real_lsr_tables.chosen(copies)


NQ_METRICS = "data/metrics/tasks_nq_smollm2-135m.json"
RUNS = {
    "sizes": Measured(_sizes, "data/analyses"),
    "teachers": Measured(real_lsr_tables.teachers, "judged/recall.parquet"),
    "rewards": Measured(partial(real_lsr_tables.teachers, answered=False), "judged/recall.parquet"),
    "likely": Measured(real_lsr_tables.likely, "judged/bits.parquet"),
    "uncertain": Measured(real_lsr_tables.uncertain, "data/analyses"),
    "natural": Measured(real_report_tables.by_popularity, "data/analyses"),
    "mixture": Measured(partial(real_report_tables.mixtures, metrics=NQ_METRICS), NQ_METRICS),
}


def write_tables(work: Path, out: Path) -> Iterator[str]:
    """Write the tables of each run in `work` that has figures to `out`, as <run>-<title>.csv.

    Yields lines for a terminal: how each run was made, and the files.
    """
    for run, measured in RUNS.items():
        depth = len(Path(measured.done).parts)
        files = work.glob(f"{run}/*/{measured.done}")
        copies = sorted(file.parents[depth - 1] for file in files)
        if not copies:
            continue

        yield f"{run}: {_how(work, run, copies[0])}"
        for table in measured.tables(copies):
            name = re.sub(r"\W+", "-", f"{run} {table.title}".lower())
            file = out / f"{name}.csv"
            write_csv(file, table.head, table.rows)
            yield str(file)


def _how(work: Path, run: str, copy: Path) -> str:
    """At which commit a run was made, and what its calls took where."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    said = f"Measured at commit {commit.stdout.strip()}."
    calls = []
    if (work / CALLS).is_file():
        calls = [call for call in read_json(work / CALLS) if call["copy"].startswith(f"{run}/")]
    if not calls:
        return said

    copies = {call["copy"] for call in calls}
    hours = sum(call["seconds"] for call in calls) / 3600
    said += f" {len(copies)} copies of the project took {hours:.1f} hours"
    machines = {call.get("machine", "") for call in calls} - {""}
    for machine in sorted(machines):
        said += f" on {machine}"
    peak = max(call["peak_bytes"] for call in calls) / 2**30
    return f"{said}, with at most {peak:.1f} GiB of memory in a process."
