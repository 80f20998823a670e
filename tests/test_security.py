"""SECURITY.md's promises: no code from pickles, models' folders or YAML is run, and no library
reports on a run.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = [file for top in ("pipelines", "flows") for file in sorted((ROOT / top).rglob("*.py"))]
UNSAFE = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "yaml.unsafe_load",
    "yaml.full_load",
    "yaml.load_all",
}
DECIDING = ("trust_remote_code", "weights_only", "allow_pickle", "shell")  # options of functions
PICKLERS = ("joblib", "dill", "cloudpickle", "marshal", "shelve")


def runs_code(call: ast.Call, text: str) -> bool:
    """Whether a call may run code that a file brings."""
    function = ast.unparse(call.func)
    words = {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg in DECIDING}
    return (
        (
            function.endswith(("from_pretrained", "from_config"))
            and words.get("trust_remote_code") != "False"
        )
        or (function in ("torch.load", "torch.jit.load") and words.get("weights_only") != "True")
        or words.get("allow_pickle", "False") != "False"
        or words.get("shell", "False") != "False"
        or function in UNSAFE
        or function.partition(".")[0] in PICKLERS
        or (function == "yaml.load" and "CSafeLoader" not in text)
    )


def test_no_module_runs_code_that_a_file_brings():
    """Pickles pass between processes alone."""
    unsafe, reading = [], {}
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and runs_code(node, text):
                unsafe.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "pickle":
                reading.setdefault(file.name, set()).add(node.attr)
    assert unsafe == []
    assert reading == {
        "model_files.py": {"UnpicklingError"},  # the error of a file of weights
        "published_files.py": {"Unpickler", "UnpicklingError"},  # which knows arrays and ids alone
    }


OFF = """
import pipelines
import dvc.analytics, huggingface_hub.constants, mlflow.telemetry.utils, mlflow.utils.providers, prefect.settings
from prefect._internal.analytics.enabled import is_telemetry_enabled
assert not dvc.analytics.is_enabled()
assert huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY
assert mlflow.telemetry.utils.is_telemetry_disabled()
assert mlflow.utils.providers.MLFLOW_MODEL_CATALOG_URI.get() == ""
assert not is_telemetry_enabled()
assert not prefect.settings.get_current_settings().server.analytics_enabled
"""


def test_no_library_tells_its_makers_of_a_run(tmp_path):
    names = ("DVC_", "PREFECT_", "MLFLOW_", "HF_", "DO_NOT", "CI", "GITHUB", "PYTEST")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    environment |= {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", OFF], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-500:]
