"""What is recorded of landed runs comes back from MLflow as it was."""

import math
import os
import shutil
import sys
from pathlib import Path

import landed_runs
import numpy as np
import pytest

from flows import history
from pipelines import landings, shards, tracking
from pipelines.errors import LongtailError
from pipelines.intervals import Interval

FIGURES = landed_runs.figures() | {f"threshold/a/b/c/{n}": Interval(n, 0.0, math.inf) for n in range(400)}


def test_landed_runs_come_back_with_their_figures_in_the_order_in_which_they_landed(databases, tmp_path, monkeypatch):
    """A recorder logs two runs that landed, the later one first, and a stage of a run that did not."""
    monkeypatch.chdir(shutil.copytree(databases, tmp_path / "project"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/project/mlflow.db")
    for name, month, figures in (("one", "2026-02", FIGURES), ("two", "2026-01", {})):
        params = landed_runs.landing(month, {}).params
        tracking.log_landing({"run": name, "tags": {}}, params, landings.flat(figures))
    other = {"stage": "a", "run": "three", "tags": {}, "params": {"profile": "sample"}, "metrics": {}, "error": "x"}
    shards.write_json(tracking.RECORDS / "9-a.json", other | {"started": 9, "ended": 9, "by_flow": True})
    Path("stdin").write_text("FINISHED")
    with Path("stdin").open() as said:
        monkeypatch.setattr(sys, "stdin", said)
        tracking.record_until(None)
    assert [*tracking.RECORDS.glob("*.json")] == []
    monkeypatch.setattr(landings, "RUNS", 1)
    first, second = history.runs()
    assert (first.month, second.month, first.profile) == ("2026-02", "2026-01", "sample")
    assert first.landed <= second.landed
    assert second.figures == {}
    assert first.figures.keys() == FIGURES.keys()
    for name, figure in FIGURES.items():  # some are infinite, or have no interval
        np.testing.assert_equal(vars(first.figures[name]), vars(figure), name)


def test_without_records_one_line_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(LongtailError, match="no run that landed; `longtail run` records the next one") as error:
        history.runs()
    assert "\n" not in str(error.value)
    assert os.listdir() == [], "to look makes no database"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(LongtailError, match="no run that landed"):
        history.runs()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(LongtailError, match=r"^MLflow \(http://127.0.0.1:9\): "):
        history.runs()
