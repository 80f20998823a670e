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


def test_a_small_last_batch_counts_by_question():
    found = Taken([Batch(64, 64.0, "here"), Batch(2, 2.0, "here")]).figures()
    assert (found["questions"], found["median"]["value"], found["p90"]["value"]) == (66, 1.0, 1.0)


def test_batches_of_several_machines_name_each():
    found = Taken([Batch(1, 1.0, "the other"), Batch(1, 1.0, "here"), Batch(1, 1.0, "here")]).figures()
    assert found["machine"] == "here and the other"


def test_the_file_says_how_and_where(tmp_path):
    latency.write(tmp_path, "popqa", "tiny", "dense", Taken(BATCHES), 4, True)
    written = json.loads((tmp_path / "latency/popqa/tiny/dense.json").read_text())
    assert (written["threads"], written["server"], written["search"]) == (4, True, 0)
    latency.write(tmp_path, "popqa", "tiny", "bm25", Taken([]), 1, False)
    empty = json.loads((tmp_path / "latency/popqa/tiny/bm25.json").read_text())
    assert (empty["questions"], empty["median"]["value"]) == (0, None)


def test_the_machine_is_its_processor_and_cores():
    assert f", {os.cpu_count()} core" in latency.machine()
    assert not latency.machine().startswith(",")
