"""SECURITY.md's promises: no code from pickles, models' folders or YAML is run, and no library reports on a run."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [file for top in ("pipelines", "flows") for file in sorted((ROOT / top).rglob("*.py"))]
PICKLES = {"dumps", "Unpickler", "UnpicklingError"}  # pool.py: what a Dask worker is sent; model_files.py: an error
RUNS_CODE = {"eval", "exec", "compile", "__import__"}


def calls(file: Path) -> list[tuple[str, dict[str, str]]]:
    """(function as written, keywords as written) of each call in a module."""
    nodes = (node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    return [
        (ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg})
        for node in nodes
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_no_module_runs_code_that_a_file_brings(file):
    for function, words in calls(file):
        name = function.rpartition(".")[2]
        if name in ("from_pretrained", "from_config"):
            assert words.get("trust_remote_code") == "False", function
        if function in ("torch.load", "torch.jit.load"):
            assert words.get("weights_only") == "True"
        assert words.get("allow_pickle", "False") == "False", function
        assert words.get("shell", "False") == "False", function
        assert function not in RUNS_CODE
        assert function.partition(".")[0] not in ("joblib", "dill", "cloudpickle", "marshal", "shelve"), function
        if function == "yaml.load":
            assert "CSafeLoader" in file.read_text(encoding="utf-8")
        assert function not in ("yaml.unsafe_load", "yaml.full_load", "yaml.load_all")


def test_pickles_are_read_nowhere_but_between_processes():
    reading = {
        file.name: {
            node.attr
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pickle"
        }
        for file in FILES
        if "import pickle" in file.read_text(encoding="utf-8")
    }
    assert reading == {"pool.py": {"dumps", "Unpickler"}, "model_files.py": {"UnpicklingError"}}


OFF = """
import pipelines
import dvc.analytics, huggingface_hub.constants, mlflow.telemetry.utils, prefect.settings
from prefect._internal.analytics.enabled import is_telemetry_enabled
assert not dvc.analytics.is_enabled()
assert huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY
assert mlflow.telemetry.utils.is_telemetry_disabled()
assert not is_telemetry_enabled()
assert not prefect.settings.get_current_settings().server.analytics_enabled
"""


def test_no_library_tells_its_makers_of_a_run(tmp_path):
    names = ("DVC_", "PREFECT_", "MLFLOW_", "HF_", "DO_NOT", "CI", "GITHUB", "PYTEST")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    environment |= {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", OFF], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
