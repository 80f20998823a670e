"""Landed runs as MLflow gives them back, and the figures of one."""

import math
from collections.abc import Mapping

from pipelines.intervals import Interval
from pipelines.work.run_log import MONTH, PART, WHOLE, Landing


def landing(month: str, figures: Mapping[str, Interval], **changed: str) -> Landing:
    """A run of a month that landed on its last day; `changed` are its params, its commit or when it landed."""
    about = {"landed": f"{month}-28 03:00:00", "commit": "0123456789"}
    about |= {name: changed.pop(name) for name in about.keys() & changed.keys()}
    params = {"profile": "sample", MONTH: month, PART: WHOLE, "lms": "tiny"}
    return Landing(
        params=params | {"parts.answered": "popqa"} | changed, figures=dict(figures), **about
    )


def share(value: float, width: float = 0.02) -> Interval:
    return Interval(value, value - width, value + width)


def count(number: float) -> Interval:
    return Interval(number, math.nan, math.nan)


def figures(
    closed_book: float = 0.3, bm25: float = 0.6, questions: int = 1000, cut: float = 500.0
) -> dict:
    """The figures of a run with two methods and two relations."""
    accuracy = {
        f"accuracy/{rule}/popqa/tiny/{name}": share(value)
        for rule in ("substring", "word")
        for name, value in (("closed_book", closed_book), ("bm25", bm25))
    }
    cuts = {"P57": Interval(cut, cut / 2, cut * 2), "P106": Interval(math.inf, cut, math.inf)}
    return (
        accuracy
        | {"adaptive/popqa/tiny/bm25": share(bm25 + 0.05), "retrieves/popqa/tiny/bm25": share(0.8)}
        | {f"threshold/popqa/tiny/{relation}/bm25": interval for relation, interval in cuts.items()}
        | {"questions/popqa": count(questions), "triples": count(2 * questions)}
        | {
            "passages/wikipedia": count(5000),
            "bytes/raw": count(10**9),
            "bytes/index": count(5 * 10**8),
        }
    )
