"""Longtail as a library: the examples of docs/library.md work, and its modules are imported
alone and quickly.
"""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import systems
from brought import not_brought

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/library.md"
NAMED = re.findall(r">>> from (pipelines[\w.]*) import ([\w, ]+)", PAGE.read_text(encoding="utf-8"))
MODULES = {
    f"{package}.{name}" if (ROOT / package.replace(".", "/") / f"{name}.py").is_file() else package
    for package, names in NAMED
    for name in names.split(", ")
}
ALONE = """
import importlib, os, sys
refused = {*sys.argv[1].split(",")}
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name in refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refusing())
"""
IMPORT = (
    ALONE
    + """
for name in sys.argv[2:]:
    if not os.fork():
        importlib.import_module(name)
        print(name, *sys.modules, flush=True)
        os._exit(0)
    os.wait()
"""
)
COMMANDS = (
    ALONE
    + """
from flows import cli
for line in sys.argv[2:]:
    sys.argv[1:] = line.split()
    try:
        cli.main()
    except SystemExit as end:
        print("code", end.code, flush=True)
"""
)


def test_the_examples_of_the_page_give_what_they_show():
    """They name all parts that it promises."""
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted >= 40
    assert results.failed == 0
    parts = (
        "questions.matching",
        "questions.triple_sample",
        "replug.ensemble",
        "lsr.objective",
        "adaptive.tuning",
    )
    assert {f"pipelines.{part}" for part in (*parts, "adaptive.rule", "intervals")} <= MODULES


def test_a_module_is_imported_without_the_packages():
    names = [*sorted(MODULES), "pipelines.adaptive.searches", "flows.cli"]
    command = [sys.executable, "-c", IMPORT, not_brought(), *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {name: set(modules) for name, *modules in map(str.split, done.stdout.splitlines())}
    assert list(imported) == names, done.stderr
    assert "numpy" not in imported["flows.cli"], "each command would wait for it"


def test_commands_for_any_folder_need_no_pipeline_package(tmp_path):
    """Others say what to install."""
    made = systems.make(90)
    systems.popqa(tmp_path / "popQA.tsv", made)
    for name, right in (("closed", made.closed), ("rag", made.augmented)):
        (tmp_path / f"{name}.csv").write_text(systems.plain(made, right), encoding="utf-8")
    for name in ("dvc.yaml", "conf/config.yaml"):  # a project, as `explore` needs one
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files = "closed.csv rag.csv --questions popQA.tsv"
    lines = [
        f"thresholds {files}",
        f"compare {files}",
        "decide thresholds/rule.json popQA.tsv",
        "explore",
    ]
    command = [sys.executable, "-c", COMMANDS, not_brought(), *lines]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("code")] == [
        "code 0"
    ] * 3 + ["code 1"], done
    expected = "error: this needs uvicorn, which comes with the whole pipeline: pip install '.[pipeline]' in Longtail's checkout\n"
    assert done.stderr.endswith(expected)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("-S", "-m", "pipelines.work.code"),
            r"error: \S+ \(Python 3\S+\) .*; it lacks duckdb, mlflow, torch; .*",
        ),
        (
            ("-c", "import os; os.name = 'nt'; import pipelines"),
            "error: Longtail needs Linux or macOS; .* WSL",
        ),
    ],
)
def test_a_python_without_the_packages_is_refused(words, said):
    """So is Windows."""
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(f"{said}.*\n", done.stderr)
