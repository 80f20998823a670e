"""Which stages run side by side: those that compute on several threads take no more than there are."""

from __future__ import annotations

import pytest

from flows import graph
from pipelines.params import Compute


def stages(*marks: str | None) -> list[graph.Stage]:
    return [
        graph.Stage(name=str(i), description="", needs=(), threads=mark, metrics=()) for i, mark in enumerate(marks)
    ]


def compute(threads: int, inference: int) -> Compute:
    return Compute(threads=threads, inference_threads=inference, workers=1, executor="local", dask=None, device="cpu")


@pytest.mark.parametrize(
    ("threads", "inference", "marks", "together"),
    [
        (2, 1, ["all", "all", None], "02"),
        (2, 1, ["inference"] * 3, "01"),
        (4, 2, ["inference", "inference", "inference", None], "013"),
        (2, 1, ["inference", "all", "inference"], "02"),
        (2, 8, ["inference", "inference"], "0"),  # asks for more than there are: alone, but not never
    ],
)
def test_stages_share_the_threads(threads, inference, marks, together):
    waiting = stages(*marks)
    chosen = graph.ready(waiting, set(), [], compute(threads, inference))
    assert "".join(stage.name for stage in chosen) == together


def test_a_stage_that_takes_all_threads_waits_for_those_that_run():
    running, waiting = stages("inference", "all")
    assert graph.ready([running, waiting], {"0"}, [running], compute(2, 1)) == []
