"""The work, in the order data flows; knows nothing of Prefect."""

import os
import sys
from collections.abc import MutableMapping
from importlib.util import find_spec

if os.name == "nt":
    sys.exit("error: Longtail needs Linux or macOS; on Windows, install and run it in WSL")
if sys.argv[:1] == ["-m"]:  # `python -m pipelines...`, a stage of dvc.yaml, is being looked up
    _lacks = [name for name in ("duckdb", "mlflow", "torch") if not find_spec(name)]
    if _lacks or sys.version_info < (3, 11):
        sys.exit(
            f"error: {sys.executable} (Python {sys.version.split()[0]}) is not the Python that Longtail is installed in"
            f"{'; it lacks ' * bool(_lacks)}{', '.join(_lacks)}; activate that environment, or use `longtail run`"
        )

QUIET = {  # no library tells its makers who uses it; set before any is imported, and for all that Longtail starts
    "DVC_NO_ANALYTICS": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_MODEL_CATALOG_URI": "",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "true",
}
LOOPBACK = (
    "localhost",
    "127.0.0.1",
    "::1",
    "127.0.0.0/8",
    "0.0.0.0",
)  # clients read these entries in different ways


def spare_loopback(environment: MutableMapping[str, str]) -> None:
    """Add this machine to NO_PROXY, in both spellings, where the environment names a proxy; "*" stays as it is.

    Where no proxy is named, nothing is set: NO_PROXY alone would hide the proxies that a system has elsewhere.
    """
    proxies = {
        name.lower()
        for name, value in environment.items()
        if value and name.lower().endswith("_proxy")
    }
    if proxies <= {"no_proxy"}:
        return
    lower, upper = (environment.get(name, "").strip() for name in ("no_proxy", "NO_PROXY"))
    for name, value in {"no_proxy": lower or upper, "NO_PROXY": upper or lower}.items():
        entries = [entry.strip() for entry in value.split(",") if entry.strip()]
        if entries != ["*"]:  # urllib takes "*" for all hosts only where it stands alone
            environment[name] = ",".join(dict.fromkeys([*entries, *LOOPBACK]))


for _name, _value in QUIET.items():
    os.environ.setdefault(_name, _value)
spare_loopback(os.environ)
