"""Keep the tuned retrievers (REPLUG LSR) in MLflow's model registry.

The best version so far is the `champion`. `mlflow.pyfunc.load_model(
"models:/longtail-retriever@champion")` opens it, and `mlflow.artifacts.download_artifacts` fetches
its folder, which sentence-transformers and transformers open as well.

Versions are compared by bits per byte on the validation queries, because choosing a model by the
test queries would flatter it in the report. Where other language models, documents or queries gave
the figures, the champion stays, and the new version says so. A version's description has these
figures, its recall, and the run that made it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pipelines.storage import dvc_hashes

STAGE = "train_lsr@"  # DVC's name of the stage begins with it; the retriever's name follows
REGISTERED = "longtail-retriever"
ALIAS = "champion"
FOLDER = Path("data/models/lsr")
METRICS = Path("data/metrics")
# Keys of the file of metrics: bits per byte on the same queries.
TUNED = "bpb_k10_after"
UNTUNED = "bpb_k10_before"
LOADER = "pipelines.retrieval.encoder"  # the module that opens a version for MLflow
# Keys of the file of metrics, and tags of a version: shares of the validation questions.
RECALLS = ("recall_at_1_before", "recall_at_1_after", "recall_at_10_before", "recall_at_10_after")
JUDGES = ("data/corpus", "data/models/lm/")  # inputs that decide the figures, besides the weights


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
    figures = json.loads(metrics.read_text(encoding="utf-8"))
    if TUNED not in figures:  # there are no language-modelling queries
        return None
    runs = client.search_runs([experiment], f"tags.`dvc.output.{folder}` = '{md5}'", max_results=1)
    if not runs:
        return None

    if not client.search_registered_models(f"name = '{REGISTERED}'"):
        client.create_registered_model(
            REGISTERED,
            description="Retrievers tuned to a frozen language model by LM-supervised retrieval "
            f"(LSR, REPLUG). The best of them is the `{ALIAS}`.",
        )
    versions = client.search_model_versions(f"name = '{REGISTERED}'")
    if any(version.tags.get("md5") == md5 for version in versions):
        return None

    tags = {
        "md5": md5,
        "judged_on": _judged_on(locked),
        "validation_bpb": repr(figures[TUNED]),
        "untuned_bpb": repr(figures[UNTUNED]),
    }
    tags |= {key: repr(figures[key]) for key in RECALLS if key in figures}
    becomes_champion, tags["verdict"] = _verdict(tags, _champion(client, versions))
    description = _describe(client, name, tags, runs[0])

    run = runs[0].info
    client.log_artifacts(run.run_id, str(folder), FOLDER.name)
    settings = locked["params"]["params.yaml"][f"retriever.{name}"]
    client.log_text(run.run_id, _mlmodel(settings), f"{FOLDER.name}/MLmodel")
    source = f"{run.artifact_uri}/{FOLDER.name}"
    version = client.create_model_version(
        REGISTERED, source, run.run_id, tags=tags, description=description
    ).version
    if becomes_champion:
        client.set_registered_model_alias(REGISTERED, ALIAS, version)
    return f"{REGISTERED} version {version}: {tags['verdict']}"


def _describe(client, name: str, tags: dict[str, str], run) -> str:
    """The description of a version in Markdown, whose `run` is that of the stage."""
    lines = [f"The retriever `{name}`, {tags['verdict']}.", ""]
    for key in RECALLS:
        if key in tags:
            lines.append(f"- {key.replace('_', ' ')} the tuning: {float(tags[key]):.4f}")
    parent = run.data.tags.get("mlflow.parentRunId")
    if parent:
        name_of_run = client.get_run(parent).info.run_name
        address = f"#/experiments/{run.info.experiment_id}/runs/{parent}"
        lines += ["", f"It was made by the run [{name_of_run}]({address})."]
    return "\n".join(lines)


def _champion(client, versions):
    """The version that is the champion, None if there is none."""
    number = client.get_registered_model(REGISTERED).aliases.get(ALIAS)
    for version in versions:
        # A database gives an int, a server a str.
        if str(version.version) == str(number):
            return version
    return None


def _mlmodel(settings: dict[str, Any]) -> str:
    """MLflow's file MLmodel for an encoder: texts in, vectors out.

    `settings` are its entry in the section retriever.
    """
    import numpy as np
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec

    signature = ModelSignature(
        Schema([ColSpec("string")]),
        Schema([TensorSpec(np.dtype(np.float32), (-1, -1))]),
        ParamSchema([ParamSpec("queries", "boolean", False)]),
    )
    flavors = {"python_function": {"loader_module": LOADER, "config": settings}}
    return Model(FOLDER.name, flavors=flavors, signature=signature).to_yaml()


def _verdict(tags: dict[str, str], champion) -> tuple[bool, str]:
    """Whether a version with these tags becomes champion, and why.

    `champion` is the present one, or None.
    """
    tuned = float(tags["validation_bpb"])
    untuned = float(tags["untuned_bpb"])
    reason = f"{tuned:.4f} bits per byte on validation queries, {untuned:.4f} before it was tuned"
    is_better = tuned < untuned
    if champion:
        best = float(champion.tags["validation_bpb"])
        reason += f", {best:.4f} those of version {champion.version}, the champion until now"
        is_better = is_better and tuned < best
        if champion.tags["judged_on"] != tags["judged_on"]:
            reason += "; that was judged on other data or by another language model"
            is_better = False
    verdict = "champion" if is_better else "not champion"
    return is_better, f"{verdict}: {reason}"


def _judged_on(locked: dict[str, Any]) -> str:
    """A hash of the documents, queries and language model in dvc.lock.

    Figures with the same hash can be compared.
    """
    deps = []
    for entry in locked["deps"]:
        if entry["path"].startswith(JUDGES):
            deps.append((entry["path"], entry["md5"]))
    deps.sort()
    params = locked["params"]["params.yaml"]
    lsr = params["lsr"]
    lm = params[f"lm.{lsr['lm']}"]  # the model's folder among `deps` tells its weights
    http = lm["http"]
    server = [http["url"], http["max_tokens"], http["tokenizer"]] if http else None
    parts = [deps, params["seed"], lsr["validation_queries"], lm["dtype"], server]
    return hashlib.md5(json.dumps(parts).encode()).hexdigest()
