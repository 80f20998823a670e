"""Keep the tuned retrievers (REPLUG LSR) in MLflow's model registry.

Each is a version of `longtail-retriever`, and the best so far is the `champion`.
`mlflow.artifacts.download_artifacts` fetches its folder, which sentence-transformers and
transformers open.

Versions are compared by a figure of the validation queries (params_models.py:best_by), by which
training keeps the best encoder, too. Choosing a model by the test queries would flatter it in the
report. Where other queries, documents or language models gave the figures, the champion stays, and
the new version says so.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pipelines.params.params_models import BETTER, best_by
from pipelines.storage import dvc_hashes

STAGE = "train_lsr@"  # DVC's name of the stage begins with it; the retriever's name follows
REGISTERED = "longtail-retriever"
ALIAS = "champion"
DESCRIPTION = f"""Retrievers tuned to a frozen language model by LM-supervised retrieval (LSR).

The best of them on validation queries is the `{ALIAS}`.
`mlflow.artifacts.download_artifacts("models:/{REGISTERED}@{ALIAS}")` gives its folder, which
sentence-transformers opens."""
FOLDER = Path("data/models/lsr")
METRICS = Path("data/metrics")
# Figures of the validation queries; the file of metrics has each with _before and _after.
FIGURES = ("recall_at_1", "recall_at_10", "bits_per_byte")
ORIGIN = ("path", "revision")  # params that say where a model comes from
# Figure by which versions are compared -> the params, besides LSR's, that say which queries gave
# it.
QUERIES = {
    "recall_at_1": ("seed", "language", "parts.answered", "parts.datastore", "answer.passage"),
    "bits_per_byte": ("seed", "parts.scored"),
}


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

    figures = json.loads(metrics.read_text(encoding="utf-8"))
    tags = {"md5": md5} | _figures(figures) | _origins(name, locked)
    becomes_champion, tags["verdict"] = _verdict(tags, _champion(client, versions))
    run = runs[0].info
    client.log_artifacts(run.run_id, str(folder), FOLDER.name)
    source = f"{run.artifact_uri}/{FOLDER.name}"
    number = client.create_model_version(REGISTERED, source, run.run_id, tags=tags).version
    if becomes_champion:
        client.set_registered_model_alias(REGISTERED, ALIAS, number)
    return f"{REGISTERED} version {number}: {tags['verdict']}"


def _figures(figures: dict[str, Any]) -> dict[str, str]:
    """Tags of a version: the figures of the untuned encoder (_before) and its own (_after)."""
    tags = {}
    for figure in FIGURES:
        for name in (f"{figure}_before", f"{figure}_after"):
            if name in figures:
                tags[name] = repr(figures[name])
    return tags


def _origins(name: str, locked: dict[str, Any]) -> dict[str, str]:
    """Tags of a version: the models it was made from, its inputs' MD5s, and what judged it."""
    params = locked["params"]["params.yaml"]
    lsr = params["lsr"]
    tags = {"lm": lsr["lm"], "best_by": best_by(lsr["queries"]), "judged_on": judged_on(locked)}
    for model in (f"lm.{lsr['lm']}", f"retriever.{name}"):
        for key in ORIGIN:
            value = params[model][key]
            if value is not None:
                tags[f"{model}.{key}"] = value
    for entry in locked["deps"]:
        tags[f"dvc.input.{entry['path']}"] = entry["md5"]
    return tags


def judged_on(locked: dict[str, Any]) -> str:
    """A hash of all that the figure `best_by` depends on, other than the encoder.

    Figures with the same hash can be compared.
    """
    params = locked["params"]["params.yaml"]
    lsr = params["lsr"]
    figure = best_by(lsr["queries"])
    queries = [params[name] for name in QUERIES[figure]]
    parts = [figure, lsr["validation_queries"], queries]
    inputs = ["data/corpus"]
    if figure == "recall_at_1":
        inputs.append("data/questions")
    else:
        inputs.append(f"data/models/lm/{lsr['lm']}")  # its weights
        lm = params[f"lm.{lsr['lm']}"]
        http = lm["http"]
        server = [http["url"], http["max_tokens"], http["tokenizer"]] if http else None
        parts += [lm["dtype"], server]
    md5s = {entry["path"]: entry["md5"] for entry in locked["deps"]}
    parts += [md5s[path] for path in inputs]
    return hashlib.md5(json.dumps(parts).encode()).hexdigest()


def _champion(client, versions):
    """The version that is the champion, None if there is none."""
    number = client.get_registered_model(REGISTERED).aliases.get(ALIAS)
    for version in versions:
        # A database gives an int, a server a str.
        if str(version.version) == str(number):
            return version
    return None


def _verdict(tags: dict[str, str], champion) -> tuple[bool, str]:
    """Whether a version with these tags becomes champion, and why.

    `champion` is the present one, or None.
    """
    figure = tags["best_by"]
    if f"{figure}_after" not in tags:
        return False, f"not champion: no validation queries gave its {_label(figure)}"
    if champion and champion.tags.get("judged_on") != tags["judged_on"]:
        other = "by another figure, on other data or by another language model"
        return False, f"not champion: version {champion.version}, the champion, was judged {other}"

    tuned = float(tags[f"{figure}_after"])
    best = float(tags[f"{figure}_before"])
    reason = f"{tuned:.4f} on validation queries, {best:.4f} before it was tuned"
    better = BETTER[figure]
    if champion:
        figure_of_champion = float(champion.tags[f"{figure}_after"])
        best = better(best, figure_of_champion)
        number = champion.version
        reason += f", {figure_of_champion:.4f} of version {number}, the champion until now"
    is_better = tuned != best and better(tuned, best) == tuned
    verdict = "champion" if is_better else "not champion"
    return is_better, f"{verdict} by {_label(figure)}: {reason}"


def _label(figure: str) -> str:
    return figure.replace("_at_", "@").replace("_", " ")
