"""Log each run of the pipeline to MLflow: a parent run, with a child run for each stage that did its work.

Loading MLflow takes seconds. So a stage only writes a record to .longtail/tracking, and one recorder process
(`python -m pipelines.tracking`) logs the records while the stages go on. The flow starts the recorder; under plain
`dvc repro` the first stage does. It ends with the run, after it has offered the tuned retriever to the model registry
(registry.py). Where the server is down or the database locked, .longtail/tracking.log has a warning, and the next run
logs the records. That is never an error, because the stages' work is done. No stage reads what is written here.

A run that lands leaves a record as well: its figures are logged on the parent run (landings.py).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import posixpath
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import yaml

from pipelines import landings, registry, shards

CONTEXT = "MLFLOW_RUN_CONTEXT"  # JSON from the flow: run, a key that all its stages share, and tags
STORE = "sqlite:///mlflow.db"  # unless MLFLOW_TRACKING_URI says otherwise
EXPERIMENT = "longtail"
LOCK_COPY = shards.SCRATCH / "dvc.lock"  # the flow's (flows/dvc_files.py): whole while DVC writes dvc.lock
RECORDS = shards.SCRATCH / "tracking"
RAN = shards.SCRATCH / "ran"  # a file for each stage: the run in which it last did its work
REFUSED = shards.SCRATCH / "tracking.refused"
LOG = shards.SCRATCH / "tracking.log"
LOCK = shards.SCRATCH / "tracking.lock"  # held by the recorder
NAME = 250  # characters of a name in MLflow
WRITE_SECONDS = 2  # DVC never pauses so long while it writes dvc.lock


def log_stage(
    sections: dict[str, Any], metrics: dict[str, float | list[float]], started: float, error: str | None = None
) -> None:
    """Record that a stage did its work under DVC, or failed with `error`. A stage run by hand leaves no record.

    A metric that is a list is a curve. `started` is in unix seconds.
    """
    if (stage := os.environ.get("DVC_STAGE")) is None:
        return
    context = json.loads(os.environ.get(CONTEXT) or "null")
    driver = None if context else _dvc_process()
    record = {
        "stage": stage,
        "run": context["run"] if context else f"dvc-{driver.pid}-{driver.create_time():.2f}",
        "tags": {**(context["tags"] if context else {}), **_git_tags()},
        "params": dict(_flat(sections)),
        "metrics": metrics,
        "started": started,
        "ended": time.time(),
        "error": error,
        "by_flow": context is not None,
    }
    shards.write_json(RECORDS / f"{record['ended']:.6f}-{stage}.json", record)
    if error is None:
        shards.write_json(RAN / stage, record["run"])
    if driver:
        start_recorder(driver.pid)


def log_landing(context: dict[str, Any], params: dict[str, str], metrics: dict[str, float]) -> None:
    """Record that the flow's run landed, with the figures of all that it landed; `context` is what CONTEXT has."""
    now = time.time()
    record = {
        "stage": landings.RECORD,
        "run": context["run"],
        "tags": {**context["tags"], **_git_tags()},
        "params": params,
        "metrics": metrics,
        "started": now,
        "ended": now,
        "error": None,
        "by_flow": True,
    }
    shards.write_json(RECORDS / f"{now:.6f}-{landings.RECORD}.json", record)


def start_recorder(watched: int | None = None) -> subprocess.Popen:
    """Start a recorder, unless one works; it ends after the process `watched`, or when its standard input is closed.

    What is written there before, FINISHED or FAILED, becomes the state of the parent run.
    """
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines.tracking", str(watched or "")],
            stdin=subprocess.DEVNULL if watched else subprocess.PIPE,
            stdout=log,
            stderr=log,
        )


def record_until(watched: int | None) -> None:
    """Log records as they come, until the watched process or the standard input has ended and no record is left.

    Then offer the tuned retrievers to the model registry.
    """
    from mlflow.exceptions import MlflowException

    parents: dict[str, str] = {}  # key of a run -> state of its stages
    client = _client()
    over = False
    while True:
        over = over or (not shards.lives(watched) if watched else bool(select.select([sys.stdin], [], [], 0)[0]))
        for path in sorted(RECORDS.glob("*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            if not (over or record["error"] or _committed(record)):
                continue
            try:
                stages = {} if record["error"] else _lock_file(record["by_flow"])
                _log(client, record, stages.get(record["stage"], {}))
            except MlflowException as error:  # a record that MLflow refuses must not keep the others waiting
                if error.error_code not in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST"):
                    raise
                print(f"warning: MLflow refuses {path}: {str(error).splitlines()[0]}", file=sys.stderr)
                REFUSED.mkdir(exist_ok=True)
                path.rename(REFUSED / path.name)
                continue
            path.unlink()
            (RECORDS / f"{record['stage']}.committed").unlink(missing_ok=True)
            if record["error"] or record["run"] not in parents:
                parents[record["run"]] = "FAILED" if record["error"] else "FINISHED"
        if over:
            break
        time.sleep(0.3)
    flows_state = "" if watched else sys.stdin.read().strip()
    for run, state in parents.items():
        client.set_terminated(_find(client, run)[0].info.run_id, flows_state or state)
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    for stage, locked in _lock_file(by_flow=not watched).items():
        name = stage.removeprefix(registry.STAGE)
        if name != stage and (line := registry.register(client, experiment, name, locked)):
            print(line)


def ran(stage: str, run: str) -> bool:
    """Whether a stage did its work in this run, rather than DVC finding the result in its cache."""
    mark = RAN / stage
    return mark.exists() and json.loads(mark.read_text(encoding="utf-8")) == run


def commit(stage: str) -> None:
    """Say that LOCK_COPY has what a stage of the flow did, so that the recorder can log it."""
    (RECORDS / f"{stage}.committed").touch()


def _committed(record: dict) -> bool:
    """Whether dvc.lock has the hashes of this very work. Without a flow, DVC must have ended writing it as well."""
    if record["by_flow"]:
        return (RECORDS / f"{record['stage']}.committed").exists()
    lock = Path("dvc.lock")
    return lock.is_file() and record["ended"] < lock.stat().st_mtime < time.time() - WRITE_SECONDS


def _client():
    """MLflow's client, with the experiment in place."""
    from mlflow import MlflowClient

    quiet()
    client = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI", STORE))
    if client.get_experiment_by_name(EXPERIMENT) is None:
        client.create_experiment(EXPERIMENT)
    return client


def quiet() -> None:
    """Have MLflow say nothing of its database on standard error."""
    for name in ("mlflow", "mlflow.store.db.utils", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _find(client, run: str) -> list:
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    return client.search_runs([experiment], f"tags.`longtail.run` = '{run}'", max_results=1)


def _log(client, record: dict, locked: dict) -> None:
    """One record as a child run, below the parent that its run shares; that of a run that landed on the parent."""
    experiment, parents = client.get_experiment_by_name(EXPERIMENT).experiment_id, _find(client, record["run"])
    started, ended = int(record["started"] * 1000), int(record["ended"] * 1000)
    if not parents:
        tags = {"longtail.run": record["run"], **record["tags"]}
        parents = [client.create_run(experiment, started, tags, run_name="pipeline")]
    if record["stage"] == landings.RECORD:
        run = parents[0].info.run_id
        _log_values(client, run, record)
        client.set_tag(run, landings.TAG, f"{datetime.fromtimestamp(record['ended'], UTC):%Y-%m-%d %H:%M:%S.%f}")
        return
    tags = {"mlflow.parentRunId": parents[0].info.run_id, "dvc.stage": record["stage"]}
    tags |= {"error": record["error"]} if record["error"] else {}
    tags |= _hash_tags(locked) | record["tags"]
    child = client.create_run(experiment, started, tags, run_name=record["stage"]).info.run_id
    try:
        _log_values(client, child, record)
    finally:  # where MLflow refuses one of them, the run has ended all the same
        client.set_terminated(child, "FAILED" if record["error"] else "FINISHED", ended)


def _log_values(client, run: str, record: dict) -> None:
    """The params and metrics of a record on a run."""
    from mlflow.entities import Metric, Param

    metrics, ended = [], int(record["ended"] * 1000)
    for key, value in record["metrics"].items():
        curve = value if isinstance(value, list) else [value]
        metrics += [Metric(_name(key), float(v), ended, step) for step, v in enumerate(curve) if v is not None]
    params = [Param(_name(key), str(value)) for key, value in record["params"].items()]
    for first in range(0, len(params), 100):  # MLflow's limits of one batch
        client.log_batch(run, params=params[first : first + 100])
    for first in range(0, len(metrics), 1000):
        client.log_batch(run, metrics=metrics[first : first + 1000])


def _hash_tags(locked: dict) -> dict[str, str]:
    """Tags from a stage's entry in dvc.lock: one MD5 over the paths and MD5s of all inputs, and each output's MD5."""
    inputs, outputs = ({e["path"]: e["md5"] for e in locked.get(part, []) if "md5" in e} for part in ("deps", "outs"))
    tags = {f"dvc.output.{_name(path)}": md5 for path, md5 in outputs.items()}
    if inputs:
        tags["dvc.inputs.md5"] = hashlib.md5(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    return tags


def _lock_file(by_flow: bool) -> dict:
    """dvc.lock's stages by name, of the flow's copy where there is a flow; none where the file can't be read."""
    try:
        return yaml.load((LOCK_COPY if by_flow else Path("dvc.lock")).read_bytes(), yaml.CSafeLoader)["stages"]
    except (OSError, yaml.YAMLError, TypeError, KeyError):
        return {}


def _name(key: str) -> str:
    """A key as MLflow takes it: _ for each character that it does not allow, and no path that means another one."""
    return posixpath.normpath(re.sub(r"[^\w\-. :/]", "_", key)).lstrip("/.")[:NAME] or "_"


def _flat(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of sections (pydantic models, dicts), each with its dotted key."""
    values = values.model_dump() if hasattr(values, "model_dump") else values
    if isinstance(values, dict) and (values or not prefix):
        for key, value in values.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, values


def _git_tags() -> dict[str, str]:
    """The git commit, and whether files differ from it; no tags outside a repository."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    if commit.returncode:
        return {}
    dirty = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ".", ":!dvc.lock"], capture_output=True).returncode
    return {"mlflow.source.git.commit": commit.stdout.strip(), "git.dirty": str(bool(dirty)).lower()}


def _dvc_process() -> psutil.Process:
    """The `dvc` process that started this stage. All stages of one `dvc repro` share it."""
    parents = psutil.Process().parents()
    above = [p for p in parents if any(Path(part).name == "dvc" for part in p.cmdline()[:3])]
    return (above or parents)[0]


def main() -> None:
    """Record for this checkout, unless another recorder does so already."""
    with LOCK.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            record_until(int(sys.argv[1]) if sys.argv[1] else None)
        except Exception as error:  # each backend raises errors of its own, and none may fail a run
            reason = str(error).splitlines()[0]
            print(f"warning: MLflow: {reason}; what is in {RECORDS} waits for the next run", file=sys.stderr)


if __name__ == "__main__":
    main()
