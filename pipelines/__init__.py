"""The work, in the order data flows; knows nothing of Prefect."""

import gc
import os
import pwd
import sys
from collections.abc import MutableMapping
from importlib.util import find_spec

# Objects that Python makes before it looks for unused ones. Loading transformers makes a million,
# all to stay, and these looks took a tenth of the time.
OBJECTS_PER_LOOK = 100_000

if os.name == "nt":
    sys.exit("error: Longtail needs Linux or macOS; on Windows, install and run it in WSL")
if sys.argv[:1] == ["-m"]:  # `python -m pipelines...`, a stage of dvc.yaml, is being looked up
    _missing = [name for name in ("duckdb", "mlflow", "torch") if not find_spec(name)]
    if _missing or sys.version_info < (3, 11):
        _message = (
            f"error: {sys.executable} (Python {sys.version.split()[0]}) is not the Python that "
        )
        _message += "Longtail is installed in"
        if _missing:
            _message += f"; it lacks {', '.join(_missing)}"
        sys.exit(f"{_message}; activate that environment, or use `longtail run`")
    gc.set_threshold(OBJECTS_PER_LOOK)

# No library tells its makers who uses it. These are set before any library is imported, and for all
# that Longtail starts.
QUIET = {
    "DVC_NO_ANALYTICS": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_MODEL_CATALOG_URI": "",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "true",
}
# this machine; clients read these entries in different ways
LOOPBACK = ("localhost", "127.0.0.1", "::1", "127.0.0.0/8", "0.0.0.0")


def spare_loopback(environment: MutableMapping[str, str]) -> None:
    """Add this machine to NO_PROXY, in both spellings, where the environment names a proxy; "*"
    stays as it is.

    Where no proxy is named, nothing is set: NO_PROXY alone would hide the proxies that a system has
    elsewhere.
    """
    names = {name.lower() for name, value in environment.items() if value}
    proxies = {name for name in names if name.endswith("_proxy")}
    if proxies <= {"no_proxy"}:
        return

    lower = environment.get("no_proxy", "").strip()
    upper = environment.get("NO_PROXY", "").strip()
    for name, value in {"no_proxy": lower or upper, "NO_PROXY": upper or lower}.items():
        entries = [entry.strip() for entry in value.split(",") if entry.strip()]
        if entries != ["*"]:  # urllib takes "*" for all hosts only where it stands alone
            environment[name] = ",".join(dict.fromkeys([*entries, *LOOPBACK]))


def name_user(environment: MutableMapping[str, str]) -> None:
    """Give a user without a name, as containers have one, a name and a home: libraries ask for
    them.
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        environment.setdefault("USER", str(os.getuid()))
        environment.setdefault("HOME", "/")


for _name, _value in QUIET.items():
    os.environ.setdefault(_name, _value)
spare_loopback(os.environ)
name_user(os.environ)
