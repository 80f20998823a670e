"""The metrics that sum up a run are of its best method and retriever, and of nothing that the run
lacks."""

import json
import shutil
from pathlib import Path

import pytest
from small_results import SETTINGS

from pipelines.evaluation.headlines import ADAPTIVE, POLICIES, read_headlines

MADE = {Path("data/analyses"), Path("data/metrics")}


@pytest.fixture
def adaptive(written, tmp_path, monkeypatch) -> dict:
    """The figures of adaptive.json, in a copy of the tables that a test may change."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(written[0], tmp_path / "data")
    return json.loads(ADAPTIVE.read_text())


def write(adaptive: dict) -> None:
    ADAPTIVE.unlink()
    ADAPTIVE.write_text(json.dumps(adaptive))


def test_they_are_of_the_best_method_and_retriever(adaptive):
    of_lsr = adaptive["popqa"]["tiny"]["lsr"]
    adaptive["popqa"]["tiny"]["bm25_below_lsr"] = {
        search: figures | {"adaptive": {"value": 1.0}} for search, figures in of_lsr.items()
    }
    write(adaptive)
    headlines = read_headlines(MADE, SETTINGS)
    assert headlines.names == {"best method": "lsr", "best retriever": "lsr"}
    *accuracies, alone, with_documents = headlines.metrics.values()
    figures = of_lsr[SETTINGS.thresholds.search]
    assert accuracies == [figures[name]["value"] for name in ("never", "always", "adaptive")]
    assert with_documents < alone
    assert [*headlines.metrics] == sorted(headlines.metrics)


def test_of_equal_methods_it_is_the_first_in_the_order_of_tables(adaptive):
    adaptive["popqa"]["tiny"]["bm25"] = adaptive["popqa"]["tiny"]["lsr"]
    write(adaptive)
    assert read_headlines(MADE, SETTINGS).names["best method"] == "bm25"


def test_what_a_run_did_not_make_is_left_out(adaptive):
    assert read_headlines({Path("data/metrics")}, SETTINGS).metrics.keys() == POLICIES.keys()
    assert read_headlines({Path("data/index")}, SETTINGS).metrics == {}
