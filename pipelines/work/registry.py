"""Keep the tuned retrievers (REPLUG LSR) in MLflow's model registry.

Each is a version of `longtail-retriever`, and the best so far is the `champion`.
`mlflow.artifacts.download_artifacts` fetches its folder, which sentence-transformers and
transformers open.

Versions are compared by a figure of the validation queries (params_models.py:best_by), by which
training keeps the best encoder, too. Choosing a model by the test queries would flatter it in the
report. Where the champion was trained with other data or settings, its figure can't be compared, so
it stays.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pipelines.params.params_models import BETTER, best_by
from pipelines.storage import dvc_hashes
from pipelines.storage.atomic import read_json

STAGE = "train_lsr@"  # DVC's name of the stage begins with it; the retriever's name follows
REGISTERED = "longtail-retriever"
ALIAS = "champion"
DESCRIPTION = f"""Retrievers tuned to a frozen language model by LM-supervised retrieval (LSR).

The best of them on validation queries is the `{ALIAS}`.
`mlflow.artifacts.download_artifacts("models:/{REGISTERED}@{ALIAS}")` gives its folder, which
sentence-transformers opens."""
FOLDER = Path("data/models/lsr")
METRICS = Path("data/metrics")


def register(client, experiment: str, name: str, locked: dict[str, Any]) -> str | None:
    """Make a tuned retriever a version, and the champion if it is better.

    Returns a line on that. Returns None, and does nothing, where the version exists, no run of the
    stage is recorded, or the files are not those of `locked`, the stage's entry in dvc.lock.
    """
    folder = FOLDER / name
    metrics = METRICS / f"lsr_{name}.json"
    md5_of_output = {entry["path"]: entry["md5"] for entry in locked.get("outs", [])}
    for path in (folder, metrics):
        if not path.exists() or dvc_hashes.md5(path) != md5_of_output.get(str(path)):
            return None
    md5 = md5_of_output[str(folder)]
    runs = client.search_runs([experiment], f"tags.`dvc.output.{folder}` = '{md5}'", max_results=1)
    if not runs:
        return None

    if not client.search_registered_models(f"name = '{REGISTERED}'"):
        client.create_registered_model(REGISTERED, description=DESCRIPTION)
    versions = client.search_model_versions(f"name = '{REGISTERED}'")
    if any(version.tags.get("md5") == md5 for version in versions):
        return None

    lsr = locked["params"]["params.yaml"]["lsr"]
    figure = best_by(lsr["queries"])
    tags = {"md5": md5, "lm": lsr["lm"], "judged_on": judged_on(name, locked)}
    for key, value in read_json(metrics).items():
        if key.endswith(("_before", "_after")):
            tags[key] = repr(value)
    for entry in locked["deps"]:
        tags[f"dvc.input.{entry['path']}"] = entry["md5"]
    becomes_champion, tags["verdict"] = _verdict(figure, tags, _champion(client))
    run = runs[0].info
    client.log_artifacts(run.run_id, str(folder), FOLDER.name)
    source = f"{run.artifact_uri}/{FOLDER.name}"
    number = client.create_model_version(REGISTERED, source, run.run_id, tags=tags).version
    if becomes_champion:
        client.set_registered_model_alias(REGISTERED, ALIAS, number)
    return f"{REGISTERED} version {number}: {tags['verdict']}"


def judged_on(name: str, locked: dict[str, Any]) -> str:
    """A hash of what a tuned retriever's figures depend on, other than how it is tuned.

    It is over the stage's inputs and params in dvc.lock, but for those of the retriever `name` and
    of this machine; of `lsr` only those that say which queries judge it. Figures with the same hash
    can be compared.
    """
    params = locked["params"]["params.yaml"]
    lsr = params["lsr"]
    parts = [lsr["queries"], lsr["validation_queries"]]
    for key, value in params.items():
        if not key.startswith(("lsr", "retriever.", "compute.")):
            parts.append([key, value])
    of_retriever = (f"data/models/retriever/{name}", f"data/index/dense/{name}")
    for entry in locked["deps"]:
        if entry["path"] not in of_retriever:
            parts.append([entry["path"], entry["md5"]])
    return hashlib.md5(json.dumps(parts).encode()).hexdigest()


def _champion(client):
    """The version that is the champion, None if there is none."""
    number = client.get_registered_model(REGISTERED).aliases.get(ALIAS)
    return client.get_model_version(REGISTERED, str(number)) if number else None


def _verdict(figure: str, tags: dict[str, str], champion) -> tuple[bool, str]:
    """Whether a version with these tags becomes champion, and why.

    `champion` is the present one, or None.
    """
    after = f"{figure}_after"
    if after not in tags:
        return False, f"not champion: no validation queries gave its {figure}"
    best = float(tags[f"{figure}_before"])
    better = BETTER[figure]
    if champion:
        if champion.tags["judged_on"] != tags["judged_on"]:
            version = f"version {champion.version}, the champion"
            return False, f"not champion: {version}, was judged on other data or settings"
        best = better(best, float(champion.tags[after]))

    tuned = float(tags[after])
    is_better = tuned != best and better(tuned, best) == tuned
    verdict = "champion" if is_better else "not champion"
    return is_better, f"{verdict}: {figure} is {tuned:.4f}, and was {best:.4f} at best"
