"""Log each run of the pipeline to MLflow: a parent run, with a child run for each stage.

A stage is logged if it did its work. Under plain `dvc repro` it logs itself. In a flow it only
leaves a record in RECORDS, which the flow logs, because loading MLflow takes seconds. When a run
lands, the metrics that sum it up (data/headlines.json) are logged on its parent run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import posixpath
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from pipelines import redaction, safe_text
from pipelines.storage.atomic import SCRATCH, read_json, write_json
from pipelines.work.registry import STAGE, register
from pipelines.work.run_names import git_tags, name_run

# A variable of the environment of a flow's stages. The flow logs what they leave in RECORDS.
FLOW = "LONGTAIL_FLOW_RUN"
FILE = Path("mlflow.db")  # the store, unless MLFLOW_TRACKING_URI names another
ARTIFACTS = Path("mlruns/longtail")
EXPERIMENT = "longtail"
PLACES = """
UPDATE experiments SET artifact_location = replace(artifact_location, :before, :now);
UPDATE runs SET artifact_uri = replace(artifact_uri, :before, :now);
UPDATE model_versions SET source = replace(source, :before, :now);
UPDATE model_versions SET storage_location = replace(storage_location, :before, :now);
"""  # the columns of the store that have absolute places of artifacts
RECORDS = SCRATCH / "tracking"  # a file for each stage: the last time that it worked in a flow
NAME_LENGTH = 250  # characters of a name in MLflow
PARAMS_PER_REQUEST = 100  # as MLflow allows
METRICS_PER_REQUEST = 1000
REFUSED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")  # MLflow is there, and does not take this
ANOTHER_VERSION = re.compile("out-of-date database schema|locate revision identified by")
# For a server, or another process with the database, to answer. MLflow would wait for minutes.
PATIENCE_SECONDS = 10
ADVICE = (
    "move that file away, and the next run begins another; or start the server of "
    "MLFLOW_TRACKING_URI"
)
FOR = "longtail.for"  # a parent run's tag: git's tag of its month, if it lands
LANDED = "longtail.landed"  # a parent run's tag: when it landed, in UTC


def log_stage(
    sections: Mapping[str, Any],
    metrics: Mapping[str, float | list[float]],
    started: float,
    error: str | None = None,
) -> None:
    """Log that a stage did its work under DVC, or failed with `error`.

    A stage that is run by hand is not logged. `started` is in unix seconds.
    """
    stage = os.environ.get("DVC_STAGE")
    if stage is None:
        return
    record = {
        "params": dict(_flat(sections)),
        "metrics": metrics,
        "started": started,
        "ended": time.time(),
        "error": error,
    }
    record = safe_text.values(record, redaction.hidden)
    if os.environ.get(FLOW):
        write_json(RECORDS / f"{stage}.json", record)
        return

    def warn(message: object) -> None:
        print(f"warning: {message}", file=sys.stderr)

    dvc = _dvc_process()
    began = datetime.fromtimestamp(dvc.create_time(), UTC)
    run = Run(f"dvc-{dvc.pid}-{dvc.create_time():.2f}", {}, warn, name_run(started=began))
    run.log(stage, record, {})
    run.end("FAILED" if error else "FINISHED")


def _dvc_process() -> psutil.Process:
    """The process of `dvc repro`, which all of its stages have above them."""
    parents = psutil.Process().parents()
    for process in parents:
        words = process.cmdline()[:3]
        if any(Path(word).name == "dvc" for word in words):
            return process
    return parents[0]


def record_of(stage: str, since: float = 0.0) -> dict[str, Any] | None:
    """The record that a stage left when it last worked in a flow, or failed there.

    None if it did not since the time `since` (unix seconds).
    """
    path = RECORDS / f"{stage}.json"
    if not path.is_file():
        return None
    record = read_json(path)
    return record if record["ended"] >= since else None


class Run:
    """The parent run, in MLflow, of stages that share the key `run`.

    Where MLflow is away, `say` is called once with a line on that.
    """

    def __init__(
        self, run: str, tags: dict[str, str], say: Callable[[str], None], name: str
    ) -> None:
        self._say = say
        self._tags = tags | git_tags()
        self._client = None
        self._report: Path | None = None
        with self._never_an_error():
            client = open_client()
            self._experiment = _experiment_id(client)
            runs = client.search_runs(
                [self._experiment], f"tags.`longtail.run` = '{run}'", max_results=1
            )
            if runs:
                parent = runs[0]
            else:
                tags_of_parent = {"longtail.run": run, **self._tags}
                parent = client.create_run(self._experiment, tags=tags_of_parent, run_name=name)
            self._parent = parent.info.run_id
            self._client = client

    def log(self, stage: str, record: Mapping[str, Any], locked: Mapping[str, Any]) -> None:
        """Log a stage's `record` as a child run.

        `locked` is the stage's entry in dvc.lock, if it has one.
        """
        client = self._client
        if client is None:
            return
        tags = {"mlflow.parentRunId": self._parent, "dvc.stage": stage}
        tags |= _hash_tags(locked)
        tags |= self._tags
        state = "FINISHED"
        if record["error"]:
            tags["error"] = record["error"]
            state = "FAILED"
        started = int(record["started"] * 1000)  # MLflow counts milliseconds
        ended = int(record["ended"] * 1000)

        with self._never_an_error():
            child = client.create_run(self._experiment, started, tags, run_name=stage).info.run_id
            try:
                _log_values(client, child, record["params"], record["metrics"], ended)
            finally:  # the run has ended even if MLflow refuses one of them
                client.set_terminated(child, state, ended)

    def sum_up(
        self, params: Mapping[str, str], headlines: Mapping[str, float], report: Path | None
    ) -> None:
        """Log the headlines on the parent run. The folder `report` follows when the run ends."""
        self._report = report
        self.measure(headlines, params)

    def measure(
        self, metrics: Mapping[str, float], params: Mapping[str, str] | None = None
    ) -> None:
        """Log metrics and params on the parent run."""
        client = self._client
        if client is None:
            return
        with self._never_an_error():
            milliseconds = int(time.time() * 1000)
            _log_values(client, self._parent, params or {}, metrics, milliseconds)

    def land(self, names: Mapping[str, str]) -> None:
        """Tag the parent run: it landed, with these names in git (tag of MLflow -> value)."""
        client = self._client
        if client is None:
            return
        with self._never_an_error():
            _tag_landed(client, self._parent, names)

    def end(self, state: str, locked: Mapping[str, Any] | None = None) -> list[str]:
        """End the parent run as FINISHED or FAILED.

        `locked` has the stages' entries in dvc.lock. Returns a line for each tuned retriever that
        becomes a version in MLflow's registry.
        """
        lines: list[str] = []
        client = self._client
        if client is None:
            return lines
        with self._never_an_error():
            client.set_terminated(self._parent, state)
            for stage, entry in (locked or {}).items():
                if stage.startswith(STAGE):
                    retriever = stage.removeprefix(STAGE)
                    line = register(client, self._experiment, retriever, entry)
                    if line:
                        lines.append(line)
            if self._report:
                client.log_artifacts(self._parent, str(self._report), self._report.name)
        return lines

    @contextmanager
    def _never_an_error(self) -> Iterator[None]:
        """Say what went wrong in the block in place of an error.

        MLflow is asked no more, unless it only refused a value.
        """
        try:
            yield
        except Exception as error:
            if getattr(error, "error_code", None) not in REFUSED:
                self._client = None
            self._say(f"{explained(error)}; the run goes on, and this is not logged")


def land_last(month_tag: str, names: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Tag the last parent run that was for a month as landed, if a kill ended it before.

    `month_tag` and `names` are as for FOR and Run.land. Where MLflow is away, `say` is told so.
    """
    try:
        client = open_client()
        runs = client.search_runs(
            [_experiment_id(client)],
            f"tags.`{FOR}` = '{month_tag}' AND tags.`longtail.run` LIKE '%'",
            order_by=["attributes.start_time DESC"],
            max_results=1,
        )
        if runs and LANDED not in runs[0].data.tags:
            _tag_landed(client, runs[0].info.run_id, names)
            client.set_terminated(runs[0].info.run_id, "FINISHED")
    except Exception as error:
        say(explained(error))


def _tag_landed(client, run: str, names: Mapping[str, str]) -> None:
    now = datetime.now(UTC)
    for name, value in names.items():
        client.set_tag(run, name, value)
    client.set_tag(run, LANDED, f"{now:%Y-%m-%d %H:%M:%S.%f}")


def store() -> str:
    """The address of MLflow's store."""
    return os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{FILE.resolve()}")


def open_client():
    """MLflow's client for the store. Raises any error where the store can't be used."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    address = store()
    # A server or database that does not answer fails here, after seconds. MLflow waits for minutes.
    if address.startswith("http"):
        import requests

        requests.head(address, timeout=PATIENCE_SECONDS, allow_redirects=False)
    take_store()
    import mlflow

    # They write on standard error what they do with a database.
    for name in ("mlflow", "mlflow.store.db.utils", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return mlflow.MlflowClient(tracking_uri=address)


def take_store() -> None:
    """Have the store in FILE name the artifacts beside it, where the folder was moved or copied.

    MLflow would write into the folder that the store was made in. Raises sqlite3.Error where the
    store does not answer.
    """
    if "MLFLOW_TRACKING_URI" in os.environ or not FILE.exists():
        return
    with closing(sqlite3.connect(FILE, PATIENCE_SECONDS)) as database, database:
        database.execute("BEGIN IMMEDIATE")
        tables = database.execute("SELECT name FROM sqlite_master").fetchall()
        if ("experiments",) not in tables:
            return
        query = "SELECT artifact_location FROM experiments WHERE name = ?"
        found = database.execute(query, (EXPERIMENT,)).fetchone()
        here = ARTIFACTS.resolve().as_uri()
        if found and found[0] != here:
            for change in PLACES.strip().splitlines():
                database.execute(change, {"before": found[0], "now": here})


def explained(error: Exception) -> str:
    """An error of MLflow in one line, with what to do."""
    if ANOTHER_VERSION.search(str(error)):
        return (
            f"MLflow ({store()}): written by another version of MLflow; install that, or `mlflow "
            "db upgrade` a copy"
        )
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    problem = lines[0] if lines else type(error).__name__
    message = f"MLflow ({store()}): {problem}"
    if getattr(error, "error_code", None) in REFUSED:
        return message
    return f"{message}; {ADVICE}"


def _experiment_id(client) -> str:
    """The id of the project's experiment, which is made if there is none."""
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment:
        return experiment.experiment_id
    place = None
    if "MLFLOW_TRACKING_URI" not in os.environ:
        place = ARTIFACTS.resolve().as_uri()  # MLflow unquotes it
    return client.create_experiment(EXPERIMENT, place)


def _log_values(
    client, run: str, params: Mapping[str, Any], metrics: Mapping[str, Any], ended: int
) -> None:
    """Log params and metrics. A metric is a number, a curve of them, or None."""
    from mlflow.entities import Metric, Param

    points = []
    for key, value in metrics.items():
        curve = value if isinstance(value, list) else [value]
        for step, number in enumerate(curve):
            if number is not None:
                points.append(Metric(_name(key), float(number), ended, step))
    named = [Param(_name(key), str(value)) for key, value in params.items()]

    for first in range(0, len(named), PARAMS_PER_REQUEST):
        client.log_batch(run, params=named[first : first + PARAMS_PER_REQUEST])
    for first in range(0, len(points), METRICS_PER_REQUEST):
        client.log_batch(run, metrics=points[first : first + METRICS_PER_REQUEST])


def _hash_tags(locked: Mapping[str, Any]) -> dict[str, str]:
    """Tags from a stage's entry in dvc.lock.

    They are each output's MD5, and one MD5 over the paths and MD5s of all inputs.
    """
    tags = {}
    for path, md5 in _md5s(locked, "outs").items():
        tags[f"dvc.output.{_name(path)}"] = md5
    inputs = _md5s(locked, "deps")
    if inputs:
        listing = json.dumps(inputs, sort_keys=True)
        tags["dvc.inputs.md5"] = hashlib.md5(listing.encode()).hexdigest()
    return tags


def _md5s(locked: Mapping[str, Any], part: str) -> dict[str, str]:
    """Path -> MD5 of a stage's "deps" or "outs"."""
    return {entry["path"]: entry["md5"] for entry in locked.get(part, []) if "md5" in entry}


def _name(key: str) -> str:
    """A key as MLflow takes it.

    It has _ for each character that MLflow does not allow, and is no path that means another one.
    """
    allowed = re.sub(r"[^\w\-. :/]", "_", key)
    return posixpath.normpath(allowed).lstrip("/.")[:NAME_LENGTH] or "_"


def _flat(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of nested sections."""
    if hasattr(values, "model_dump"):
        values = values.model_dump()
    if isinstance(values, dict) and (values or not prefix):
        for key, value in values.items():
            dotted = f"{prefix}.{key}" if prefix else str(key)
            yield from _flat(value, dotted)
    else:
        yield prefix, values
