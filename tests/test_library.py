"""Longtail as a library: the examples of docs/library.md work, and its modules are imported alone and quickly."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/library.md"
HEAVY = {"prefect", "dvc", "mlflow", "torch", "transformers", "faiss", "scipy.stats", "pandas"}
NAMED = re.findall(r">>> from (pipelines[\w.]*) import ([\w, ]+)", PAGE.read_text(encoding="utf-8"))
MODULES = {
    f"{package}.{name}" if (ROOT / package.replace(".", "/") / f"{name}.py").is_file() else package
    for package, names in NAMED
    for name in names.split(", ")
}
IMPORT = """
import importlib, os, sys
for name in sys.argv[1:]:
    if not os.fork():
        importlib.import_module(name)
        print(name, *sys.modules, flush=True)
        os._exit(0)
    os.wait()
"""


def test_the_examples_of_the_page_give_what_they_show_and_name_all_parts_that_it_promises():
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted >= 40
    assert results.failed == 0
    parts = ("questions.matching", "questions.popqa", "replug.ensemble", "lsr.objective", "adaptive.tuning")
    assert {f"pipelines.{part}" for part in (*parts, "adaptive.rule", "intervals")} <= MODULES


def test_a_module_is_imported_alone_and_without_what_takes_long_and_it_does_not_need():
    names = [*sorted(MODULES), "pipelines.adaptive.searches", "flows.cli"]
    done = subprocess.run([sys.executable, "-c", IMPORT, *names], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {name: set(modules) for name, *modules in map(str.split, done.stdout.splitlines())}
    assert list(imported) == names, done.stderr
    for name, modules in imported.items():
        assert not modules & (HEAVY | ({"numpy"} if name == "flows.cli" else set())), "each command would wait for it"
