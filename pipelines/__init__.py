"""The work, in the order data flows; knows nothing of Prefect."""

import os

QUIET = {  # no library tells its makers who uses it; set before any is imported, and for all that Longtail starts
    "DVC_NO_ANALYTICS": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_MODEL_CATALOG_URI": "",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "true",
}
for _name, _value in QUIET.items():
    os.environ.setdefault(_name, _value)
