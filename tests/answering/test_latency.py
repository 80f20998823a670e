"""Seconds of a question: its share of its batch, with the search, and on which machine that was measured."""

import json
import os

import pytest

from pipelines.answering import latency
from pipelines.answering.latency import Batch, Taken

BATCHES = [Batch(64, 64.0 * seconds, "here") for seconds in range(1, 11)]  # 1 to 10 seconds a question


def test_median_and_ninetieth_percentile_are_those_of_a_question_with_its_share_of_the_search():
    found = Taken(BATCHES, [Batch(100, 30.0, "here"), Batch(20, 30.0, "here")]).figures()
    assert (found["questions"], found["search"]) == (640, 0.5)
    assert found["median"]["value"] == pytest.approx(5.5 + 0.5)
    assert found["p90"]["value"] == pytest.approx(9.1 + 0.5)
    assert found["median"]["low"] == 2.5 < found["median"]["value"] < found["median"]["high"] == 9.5
    assert found["p90"]["high"] == 10.5
    assert found["batches"][1] == {"questions": 64, "seconds": 128.0}


def test_a_small_last_batch_counts_by_question_and_batches_of_several_machines_name_each():
    found = Taken([Batch(64, 64.0, "the other"), Batch(2, 2.0, "here"), Batch(1, 1.0, "here")]).figures()
    assert (found["questions"], found["median"]["value"], found["p90"]["value"]) == (67, 1.0, 1.0)
    assert found["machine"] == "here and the other"


def test_the_file_says_how_and_where(tmp_path):
    for method, taken in (("dense", Taken(BATCHES)), ("bm25", Taken([]))):
        latency.write(tmp_path, "popqa", "tiny", method, taken, 4, True)
    written, empty = (json.loads((tmp_path / f"latency/popqa/tiny/{m}.json").read_text()) for m in ("dense", "bm25"))
    assert (written["threads"], written["server"], written["search"]) == (4, True, 0)
    assert (empty["questions"], empty["median"]["value"]) == (0, None)
    assert f", {os.cpu_count()} core" in latency.machine()
    assert not latency.machine().startswith(",")
