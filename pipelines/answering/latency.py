"""How long answers take: seconds of a question by method, on this machine (PopQA, Figure 11).

Questions are answered in batches, so a question's seconds are its share of its batch's. Answers
that a local language model gave in an earlier run are kept. They take no time and do not count.
Outputs that DVC keeps hold no times, because the same inputs must give the same bytes. So these
files lie apart, in data/latency, and no stage waits for them.
"""

import os
import platform
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines import intervals
from pipelines.storage.atomic import write_json

FOLDER = Path("latency")  # below data/


class Batch(NamedTuple):
    """Questions that were answered, or searched for, together."""

    questions: int  # without those whose answers were kept
    seconds: float
    machine: str


class Taken(NamedTuple):
    """The batches of one file of answers, from all runs, and the batches of the search for its
    passages.
    """

    answers: Sequence[Batch]
    searches: Sequence[Batch] = ()

    @property
    def is_known(self) -> bool:
        """Whether the time of a question was measured: not where all answers were kept."""
        parts = (self.answers, self.searches)
        return all(any(batch.questions for batch in part) for part in parts if part)

    @property
    def seconds_per_question(self) -> float:
        """The mean time of a question and of its search, or of a demonstration's search."""
        return _mean(self.answers) + _mean(self.searches)

    def figures(self) -> dict:
        """The content of the file: batches, and median and 90th percentile of the seconds of a
        question over them.

        Each batch counts with its mean, and with the mean search for a question or a demonstration.
        """
        search = _mean(self.searches)
        batches = []
        means = []
        for batch in self.answers:
            if not batch.questions:
                continue
            batches.append({"questions": batch.questions, "seconds": batch.seconds})
            means.append(batch.seconds / batch.questions + search)
        seconds = np.array(means)
        median = intervals.quantile(seconds, 0.5)
        p90 = intervals.quantile(seconds, 0.9)
        machines = sorted({batch.machine for batch in self.answers})
        return {
            "machine": " and ".join(machines),
            "questions": sum(batch.questions for batch in self.answers),
            "batches": batches,
            "search": search,
            "median": median.as_json(),
            "p90": p90.as_json(),
        }


def write_latency(
    data: Path, dataset: str, lm: str, method: str, taken: Taken, threads: int, server: bool
) -> None:
    """Write data/latency/<dataset>/<lm>/<method>.json; `server` says that the language model
    runs elsewhere.

    If the time is not known, the file of the last run that measured it stays.
    """
    if not taken.is_known:
        return
    file = data / FOLDER / dataset / lm / f"{method}.json"
    write_json(file, taken.figures() | {"threads": threads, "server": server})


def _mean(batches: Sequence[Batch]) -> float:
    """The mean seconds of a question; 0 if there is none."""
    n_questions = sum(batch.questions for batch in batches)
    return sum(batch.seconds for batch in batches) / max(1, n_questions)


@cache
def machine() -> str:
    """The processor, its cores, and the GPU if this process uses one."""
    parts = [_processor(), f"{os.cpu_count()} cores"]
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)


def _processor() -> str:
    """The processor's name, where the system tells it."""
    file = Path("/proc/cpuinfo")
    if file.is_file():
        name = re.search(r"model name\s*:\s*(\S.*)", file.read_text(encoding="utf-8"))
        if name:
            return name[1].strip()
    return platform.processor() or platform.machine()
