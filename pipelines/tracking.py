"""MLflow: a parent run for each run of the pipeline, a child for each stage that did work.

A stage leaves a record in .longtail/tracking; who drains the records into MLflow depends on who drives: the flow (it has
MLflow loaded once, and says so in MLFLOW_RUN_CONTEXT), or under plain `dvc repro` the stage itself. A record that can't be
logged (the server is down, the database stays locked) is a warning, not an error, since the stage's work is done and whole;
it stays there for the next drain. Nothing here is ever read by a stage.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines import shards

CONTEXT = "MLFLOW_RUN_CONTEXT"  # JSON: run (a key that all stages of one run share), tags (of every run)
STORE = "sqlite:///mlflow.db"  # unless MLFLOW_TRACKING_URI says otherwise
EXPERIMENT = "longtail"
RECORDS = shards.SCRATCH / "tracking"


def log_stage(name: str, sections: dict[str, Any], metrics: dict[str, float | list[float]], started: float) -> None:
    """Record a stage that ran under DVC: its params, metrics (a list is a curve, step by step) and start (unix seconds).

    A stage run by hand, without DVC, is not recorded.
    """
    if "DVC_STAGE" not in os.environ:
        return
    context = json.loads(os.environ.get(CONTEXT) or "null")
    record = {
        "stage": name,
        "run": context["run"] if context else _dvc_process(),
        "tags": {**(context["tags"] if context else {}), **_git_tags()},
        "params": dict(_flat(sections)),
        "metrics": metrics,
        "started": started,
        "ended": time.time(),
    }
    path = RECORDS / f"{name}-{os.getpid()}.json"
    shards.write_json(path, record)
    if not context:
        inputs, outputs = _hashes(name)
        shards.write_json(path, record | {"inputs": inputs, "outputs": outputs})
        drain()


def drain() -> None:
    """Log every record into MLflow and remove it; on a failure say so in one line and leave the rest for the next time."""
    paths = sorted(RECORDS.glob("*.json"), key=lambda path: path.stat().st_mtime)
    if not paths:
        return
    try:
        client = _client()
        for path in paths:
            _log(client, json.loads(path.read_text(encoding="utf-8")))
            path.unlink()
    except Exception as error:  # any backend raises its own; none may cost a stage's work
        print(f"warning: MLflow: {str(error).splitlines()[0]}; kept in {RECORDS} for the next run", file=sys.stderr)


def complete(stage: str, inputs: dict[str, str], outputs: dict[str, str]) -> None:
    """Add the hashes that DVC wrote down to the records of a stage; the flow does it when DVC is done."""
    for path in RECORDS.glob(f"{stage}-*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        if "inputs" not in record:
            shards.write_json(path, record | {"inputs": inputs, "outputs": outputs})


def end(run: str, status: str) -> None:
    """Close the parent run of `run` as FINISHED or FAILED, if a stage did work in it."""
    if mlruns := _find(client := _client(), run):
        client.set_terminated(mlruns[0].info.run_id, status)


def prepare() -> None:
    """Make the store once, before stages run side by side."""
    _client()


def _client():
    """MLflow's client, with the experiment in place."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from mlflow import MlflowClient

    for name in ("mlflow", "mlflow.store.db.utils", "alembic.runtime.migration"):
        logging.getLogger(name).setLevel(logging.WARNING)
    client = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI", STORE))
    if client.get_experiment_by_name(EXPERIMENT) is None:
        client.create_experiment(EXPERIMENT)
    return client


def _find(client, run: str) -> list:
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    return client.search_runs([experiment], f"tags.`longtail.run` = '{run}'", max_results=1)


def _log(client, record: dict) -> None:
    """One record as a child run, below the parent that its run shares; both end when the stage ended."""
    from mlflow.entities import Metric, Param

    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    started, ended = int(record["started"] * 1000), int(record["ended"] * 1000)
    if found := _find(client, record["run"]):
        parent = found[0].info.run_id
    else:
        tags = {"longtail.run": record["run"], **record["tags"]}
        parent = client.create_run(experiment, started, tags, run_name="pipeline").info.run_id
    tags = {
        "mlflow.parentRunId": parent,
        "dvc.stage": record["stage"],
        "dvc.inputs.md5": hashlib.md5(json.dumps(record.get("inputs"), sort_keys=True).encode()).hexdigest(),
        **{f"dvc.output.{_name(path)}": md5 for path, md5 in (record.get("outputs") or {}).items()},
        **record["tags"],
    }
    child = client.create_run(experiment, started, tags, run_name=record["stage"]).info.run_id
    metrics = []
    for key, value in record["metrics"].items():
        curve = value if isinstance(value, list) else [value]
        metrics += [Metric(_name(key), float(v), ended, step) for step, v in enumerate(curve) if v is not None]
    params = [Param(_name(key), str(value)) for key, value in record["params"].items()]
    for first in range(0, len(params), 100):  # MLflow's limits of one batch
        client.log_batch(child, params=params[first : first + 100])
    for first in range(0, len(metrics), 1000):
        client.log_batch(child, metrics=metrics[first : first + 1000])
    client.set_terminated(child, "FINISHED", ended)
    if not os.environ.get(CONTEXT):
        client.set_terminated(parent, "FINISHED", ended)


def _name(key: str) -> str:
    """A key in the characters that MLflow takes."""
    return re.sub(r"[^\w\-. :/]", "_", key)


def _flat(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Sections (pydantic models, dicts) as dotted keys."""
    values = values.model_dump() if hasattr(values, "model_dump") else values
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, values


def _git_tags() -> dict[str, str]:
    """The commit, marked where files differ from it; nothing outside a repository."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    if commit.returncode:
        return {}
    dirty = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ".", ":!dvc.lock"], capture_output=True).returncode
    return {"mlflow.source.git.commit": commit.stdout.strip(), "git.dirty": str(bool(dirty)).lower()}


def _dvc_process() -> str:
    """A key of the `dvc` process above this one: all stages of one `dvc repro` share it."""
    import psutil

    parents = psutil.Process().parents()
    above = [p for p in parents if any(Path(part).name == "dvc" for part in p.cmdline()[:3])] or parents[:1]
    return f"dvc-{above[0].pid}-{above[0].create_time():.2f}"


def _hashes(name: str) -> tuple[dict[str, str], dict[str, str]]:
    """md5 by path of a stage's dependencies and outputs, as DVC counts them (it has just read, and will read, the same)."""
    from dvc.repo import Repo

    with Repo(os.environ["DVC_ROOT"]) as repo:
        (stage,) = repo.stage.collect(name)
        both = [stage.deps, stage.outs]
        hashes = [{e.def_path: e.get_hash().value for e in entries if e.hash_name == "md5"} for entries in both]
    return hashes[0], hashes[1]
