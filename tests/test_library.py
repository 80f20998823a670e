"""Longtail as a library: the examples of docs/library.md work, and its modules are imported quickly and alone."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/library.md"
HEAVY = ("prefect", "dvc", "mlflow", "torch", "transformers", "faiss", "scipy.stats", "pandas")
NAMED = re.findall(r">>> from (pipelines[\w.]*) import ([\w, ]+)", PAGE.read_text(encoding="utf-8"))
MODULES = {
    f"{package}.{name}" if (ROOT / package.replace(".", "/") / f"{name}.py").is_file() else package
    for package, names in NAMED
    for name in names.split(", ")
}


def test_the_examples_of_the_page_give_what_they_show():
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted >= 40
    assert results.failed == 0


@pytest.mark.parametrize("module", sorted(MODULES | {"pipelines.adaptive.searches", "flows.cli"}))
def test_a_module_is_imported_in_under_a_second_and_without_what_it_does_not_need(module):
    """Of the processor's time, which other work on the machine does not lengthen as it does the clock's."""
    heavy = (*HEAVY, "numpy") if module == "flows.cli" else HEAVY  # each command would wait for it
    code = f"import {module}, sys, time; print(time.process_time(), *({{*sys.modules}} & {{*{heavy!r}}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds, *heavy = done.stdout.split()
    assert heavy == []
    assert float(seconds) < 1


def test_all_parts_that_the_page_promises_are_named():
    assert {
        "pipelines.questions.matching",
        "pipelines.questions.popqa",
        "pipelines.replug.ensemble",
        "pipelines.lsr.objective",
        "pipelines.adaptive.tuning",
        "pipelines.adaptive.rule",
        "pipelines.intervals",
    } <= MODULES
