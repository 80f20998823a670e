"""Log each run of the pipeline to MLflow: a parent run, with a child run for each stage that did its work.

A stage under plain `dvc repro` logs itself. Loading MLflow takes seconds, so a stage of a flow only leaves a record in
RECORDS, which the flow logs. The parent run of a run that lands has the metrics that sum it up
(evaluation/headlines.py).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import posixpath
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage.atomic import SCRATCH, write_json
from pipelines.work.registry import STAGE, register

FLOW = (
    "LONGTAIL_FLOW_RUN"  # a variable of a flow's stages: the flow logs what they leave in RECORDS
)
FILE = Path("mlflow.db")  # the store, unless MLFLOW_TRACKING_URI names another
ARTIFACTS = Path("mlruns/longtail")
EXPERIMENT = "longtail"
RECORDS = SCRATCH / "tracking"  # a file for each stage: the last time that it worked in a flow
NAME = 250  # characters of a name in MLflow
REFUSED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")  # MLflow is there, and does not take this
ANOTHER_VERSION = re.compile("out-of-date database schema|locate revision identified by")
PATIENCE = 10  # seconds that a server, or another process with the database, has; MLflow itself would wait for minutes
MENDED = "move that file away, and the next run begins another; or start the server of MLFLOW_TRACKING_URI"
LANDED = "longtail.landed"  # a parent run's tag: when it landed, in UTC
COMMIT = "mlflow.source.git.commit"  # a tag, as the next
DIRTY = "git.dirty"
MONTH = "popularity.month"  # a param, as the next
PART = "part"
WHOLE = "refresh"  # the part that is everything


def log_stage(
    sections: Mapping[str, Any],
    metrics: Mapping[str, float | list[float]],
    started: float,
    error: str | None = None,
) -> None:
    """Log that a stage did its work under DVC, or failed with `error`; not one run by hand. `started`: unix seconds."""
    if (stage := os.environ.get("DVC_STAGE")) is None:
        return
    record = {
        "params": dict(_flat(sections)),
        "metrics": metrics,
        "started": started,
        "ended": time.time(),
    }
    record["error"] = error
    if os.environ.get(FLOW):
        write_json(RECORDS / f"{stage}.json", record)
        return

    def warn(said: object) -> None:
        print(f"warning: {said}", file=sys.stderr)

    above = psutil.Process().parents()  # all stages of one `dvc repro` have its process there
    dvc = next(
        (one for one in above if any(Path(part).name == "dvc" for part in one.cmdline()[:3])),
        above[0],
    )
    run = Run(f"dvc-{dvc.pid}-{dvc.create_time():.2f}", {}, warn)
    run.log(stage, record, {})
    run.end("FAILED" if error else "FINISHED")


def record_of(stage: str, since: float = 0.0) -> dict[str, Any] | None:
    """What a stage left when it last worked in a flow, or failed; None if it did not `since` then (unix seconds)."""
    path = RECORDS / f"{stage}.json"
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return record if record and record["ended"] >= since else None


class Run:
    """The parent run of stages that share the key `run`, in MLflow. Where MLflow is away, `say` is told so once."""

    def __init__(
        self, run: str, tags: dict[str, str], say: Callable[[str], None], part: str = WHOLE
    ) -> None:
        self._say, self._tags, self._client = say, tags | _git_tags(), None
        with self._never_an_error():
            client = open_client()
            known = client.get_experiment_by_name(EXPERIMENT)
            place = (
                None if "MLFLOW_TRACKING_URI" in os.environ else ARTIFACTS.resolve().as_uri()
            )  # MLflow unquotes it
            self._experiment = (
                known.experiment_id if known else client.create_experiment(EXPERIMENT, place)
            )
            found = client.search_runs(
                [self._experiment], f"tags.`longtail.run` = '{run}'", max_results=1
            )
            tags = {"longtail.run": run, **self._tags}
            parent = (
                found[0]
                if found
                else client.create_run(self._experiment, tags=tags, run_name=name_run(part))
            )
            self._parent, self._client = parent.info.run_id, client

    def log(self, stage: str, record: Mapping[str, Any], locked: Mapping[str, Any]) -> None:
        """Log what a stage did as a child run; `locked` is the stage's entry in dvc.lock, if it has one."""
        if (client := self._client) is None:
            return
        tags = (
            {"mlflow.parentRunId": self._parent, "dvc.stage": stage}
            | _hash_tags(locked)
            | self._tags
        )
        tags |= {"error": record["error"]} if record["error"] else {}
        started, ended = int(record["started"] * 1000), int(record["ended"] * 1000)
        with self._never_an_error():
            child = client.create_run(self._experiment, started, tags, run_name=stage).info.run_id
            try:
                _log_values(client, child, record["params"], record["metrics"], ended)
                _log_inputs(client, child, locked)
            finally:  # the run has ended even if MLflow refuses one of them
                client.set_terminated(child, "FAILED" if record["error"] else "FINISHED", ended)

    def land(self, params: Mapping[str, str], metrics: Mapping[str, float]) -> None:
        """Log on the parent run that it landed, with the metrics that sum it up."""
        now = datetime.now(UTC)
        with self._never_an_error():
            if client := self._client:
                _log_values(client, self._parent, params, metrics, int(now.timestamp() * 1000))
                client.set_tag(self._parent, LANDED, f"{now:%Y-%m-%d %H:%M:%S.%f}")

    def end(self, state: str, locked: Mapping[str, Any] | None = None) -> list[str]:
        """End the parent run as FINISHED or FAILED; returns a line for each retriever that becomes a version."""
        lines: list[str | None] = []
        tuned = {stage: entry for stage, entry in (locked or {}).items() if stage.startswith(STAGE)}
        with self._never_an_error():
            if client := self._client:
                client.set_terminated(self._parent, state)
                for stage, entry in tuned.items():
                    lines.append(
                        register(client, self._experiment, stage.removeprefix(STAGE), entry)
                    )
        return list(filter(None, lines))

    @contextmanager
    def _never_an_error(self) -> Iterator[None]:
        """Tell of an error in the block, and ask MLflow no more unless it only refused a value."""
        try:
            yield
        except Exception as error:
            if getattr(error, "error_code", None) not in REFUSED:
                self._client = None
            self._say(f"{explained(error)}; the run goes on, and this is not logged")


def name_run(part: str = WHOLE, month: str | None = None) -> str:
    """What a run is called: profile, month (by default that of params.yaml), commit, and the part if it is not all."""
    try:
        values = params_file.read_values()
    except LongtailError:
        values = {}
    known = [
        values.get("profile"),
        month or params_file.value_at(values, MONTH),
        _git_tags().get(COMMIT, "")[:7],
    ]
    return " ".join(str(word) for word in (*known, part if part != WHOLE else "") if word) or "run"


def store() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{FILE.resolve()}")


def trouble() -> str | None:
    """A line on what keeps MLflow from recording a run; None if nothing does."""
    try:
        open_client().search_experiments(max_results=1)
    except Exception as error:
        return f"{explained(error)}; the run goes on, and is not recorded"


def open_client():
    """MLflow's client for the store; an error, of whatever kind, where the store can't be used."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    if (address := store()).startswith("http"):
        import requests

        requests.head(address, timeout=PATIENCE, allow_redirects=False)
    elif "MLFLOW_TRACKING_URI" not in os.environ and FILE.exists():
        with closing(sqlite3.connect(FILE, PATIENCE)) as database:
            database.execute("BEGIN IMMEDIATE")
    import mlflow

    for name in (
        "mlflow",
        "mlflow.store.db.utils",
        "alembic",
    ):  # say on standard error what they do with a database
        logging.getLogger(name).setLevel(logging.WARNING)
    return mlflow.MlflowClient(tracking_uri=address)


def explained(error: Exception) -> str:
    """An error of MLflow in one line, with what to do."""
    if ANOTHER_VERSION.search(str(error)):
        return f"MLflow ({store()}): written by another version of MLflow; install that, or `mlflow db upgrade` a copy"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [
        type(error).__name__
    ]
    return f"MLflow ({store()}): {lines[0]}" + f"; {MENDED}" * (
        getattr(error, "error_code", None) not in REFUSED
    )


def _log_values(
    client, run: str, params: Mapping[str, Any], metrics: Mapping[str, Any], ended: int
) -> None:
    from mlflow.entities import Metric, Param

    points = []
    for key, value in metrics.items():
        curve = value if isinstance(value, list) else [value]
        points += [
            Metric(_name(key), float(v), ended, step)
            for step, v in enumerate(curve)
            if v is not None
        ]
    named = [Param(_name(key), str(value)) for key, value in params.items()]
    for first in range(0, len(named), 100):
        client.log_batch(run, params=named[first : first + 100])
    for first in range(0, len(points), 1000):
        client.log_batch(run, metrics=points[first : first + 1000])


def _log_inputs(client, run: str, locked: Mapping[str, Any]) -> None:
    """Log the data sets that a stage read as the run's inputs: paths, and as digests the MD5s of dvc.lock."""
    from mlflow.entities import Dataset, DatasetInput

    read = [entry for entry in locked.get("deps", []) if "md5" in entry]
    named = [
        (_name(entry["path"]), entry["md5"], json.dumps({"uri": entry["path"]})) for entry in read
    ]
    if named:
        client.log_inputs(
            run, [DatasetInput(Dataset(name, md5, "local", source)) for name, md5, source in named]
        )


def _hash_tags(locked: Mapping[str, Any]) -> dict[str, str]:
    """Tags from a stage's entry in dvc.lock: one MD5 over the paths and MD5s of all inputs, and each output's MD5."""
    inputs, outputs = (
        {e["path"]: e["md5"] for e in locked.get(part, []) if "md5" in e}
        for part in ("deps", "outs")
    )
    of_inputs = hashlib.md5(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    tags = {f"dvc.output.{_name(path)}": md5 for path, md5 in outputs.items()}
    return tags | ({"dvc.inputs.md5": of_inputs} if inputs else {})


def _name(key: str) -> str:
    """A key as MLflow takes it: _ for each character that it does not allow, and no path that means another one."""
    return posixpath.normpath(re.sub(r"[^\w\-. :/]", "_", key)).lstrip("/.")[:NAME] or "_"


def _flat(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    values = values.model_dump() if hasattr(values, "model_dump") else values
    if isinstance(values, dict) and (values or not prefix):
        for key, value in values.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, values


def _git_tags() -> dict[str, str]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    if commit.returncode:
        return {}
    dirty = subprocess.run(
        ["git", "diff", "--quiet", "HEAD", "--", ".", ":!dvc.lock"], capture_output=True
    ).returncode
    return {COMMIT: commit.stdout.strip(), DIRTY: str(bool(dirty)).lower()}
