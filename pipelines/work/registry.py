"""The tuned retrievers (REPLUG LSR) in MLflow's model registry, where the best version so far is the `champion`.

`mlflow.pyfunc.load_model("models:/longtail-retriever@champion")` opens it, and `mlflow.artifacts.download_artifacts`
fetches its folder, which sentence-transformers and transformers open as well. Versions are compared by bits per byte on
the validation queries: choosing a model by the test queries would flatter it in the report. Where other language
models, documents or queries gave the figures, the champion stays, and the new version says so.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.storage import dvc_hashes

if TYPE_CHECKING:
    pass

STAGE = "train_lsr@"  # DVC's name of the stage begins with it; the retriever's name follows
REGISTERED = "longtail-retriever"
ALIAS = "champion"
FOLDER, METRICS = Path("data/models/lsr"), Path("data/metrics")
TUNED, UNTUNED = "bpb_k10_after", "bpb_k10_before"  # keys of METRICS, on the same queries
LOADER = "pipelines.retrieval.encoder"  # the module that opens a version for MLflow
JUDGES = ("data/corpus", "data/models/lm/")  # inputs that decide the figures, besides the weights


def register(client, experiment: str, name: str, locked: dict) -> str | None:
    """Make a tuned retriever a version, and the champion if it is better; returns a line on that, or None.

    Nothing is done where the version exists, no run of the stage is recorded, or the files are not those of `locked`,
    the stage's entry in dvc.lock.
    """
    folder, metrics = FOLDER / name, METRICS / f"lsr_{name}.json"
    outs = {entry["path"]: entry["md5"] for entry in locked.get("outs", [])}
    if any(
        not path.exists() or dvc_hashes.md5(path) != outs.get(str(path))
        for path in (folder, metrics)
    ):
        return None
    md5, figures = outs[str(folder)], json.loads(metrics.read_text(encoding="utf-8"))
    runs = client.search_runs([experiment], f"tags.`dvc.output.{folder}` = '{md5}'", max_results=1)
    if (
        not runs or TUNED not in figures
    ):  # without language-modelling queries there is no such figure
        return None
    if not client.search_registered_models(f"name = '{REGISTERED}'"):
        client.create_registered_model(
            REGISTERED, description="Tuned to a frozen language model by REPLUG LSR"
        )
    versions = client.search_model_versions(f"name = '{REGISTERED}'")
    if any(version.tags.get("md5") == md5 for version in versions):
        return None
    tags = {"md5": md5, "judged_on": _judged_on(locked)}
    tags |= {"validation_bpb": repr(figures[TUNED]), "untuned_bpb": repr(figures[UNTUNED])}
    number = client.get_registered_model(REGISTERED).aliases.get(
        ALIAS
    )  # an int from a database, a str from a server
    leads, tags["verdict"] = _verdict(
        tags, next((one for one in versions if str(one.version) == str(number)), None)
    )
    run = runs[0].info
    client.log_artifacts(run.run_id, str(folder), FOLDER.name)
    described = _describe(locked["params"]["params.yaml"][f"retriever.{name}"])
    client.log_text(run.run_id, described, f"{FOLDER.name}/MLmodel")
    source = f"{run.artifact_uri}/{FOLDER.name}"
    version = client.create_model_version(REGISTERED, source, run.run_id, tags=tags).version
    if leads:
        client.set_registered_model_alias(REGISTERED, ALIAS, version)
    return f"{REGISTERED} version {version}: {tags['verdict']}"


def _describe(settings: dict) -> str:
    """MLflow's file MLmodel for an encoder with these `settings` of the section retriever: texts in, vectors out."""
    import numpy as np
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec

    signature = ModelSignature(
        Schema([ColSpec("string")]),
        Schema([TensorSpec(np.dtype(np.float32), (-1, -1))]),
        ParamSchema([ParamSpec("queries", "boolean", False)]),
    )
    flavor = {"loader_module": LOADER, "config": settings}
    return Model(FOLDER.name, flavors={"python_function": flavor}, signature=signature).to_yaml()


def _verdict(tags: dict[str, str], champion) -> tuple[bool, str]:
    """(whether a version with these tags becomes champion, why); `champion` is the present one or None."""
    tuned, untuned = float(tags["validation_bpb"]), float(tags["untuned_bpb"])
    comparable, best = True, untuned
    said = f"{tuned:.4f} bits per byte on validation queries, {untuned:.4f} before it was tuned"
    if champion:
        comparable, best = (
            champion.tags["judged_on"] == tags["judged_on"],
            float(champion.tags["validation_bpb"]),
        )
        said += f", {best:.4f} those of version {champion.version}, the champion until now"
        said += "; that was judged on other data or by another language model" * (not comparable)
    leads = comparable and tuned < min(untuned, best)
    return leads, f"{'champion' if leads else 'not champion'}: {said}"


def _judged_on(locked: dict) -> str:
    """A hash of the documents, queries and language model in dvc.lock: figures with the same hash can be compared."""
    deps = sorted(
        (entry["path"], entry["md5"])
        for entry in locked["deps"]
        if entry["path"].startswith(JUDGES)
    )
    params = locked["params"]["params.yaml"]
    lsr = params["lsr"]
    lm = params[f"lm.{lsr['lm']}"]  # the model's folder among `deps` tells its weights
    http = lm["http"]
    server = [http[name] for name in ("url", "max_tokens", "tokenizer")] if http else None
    parts = [deps, params["seed"], lsr["validation_queries"], lm["dtype"], server]
    return hashlib.md5(json.dumps(parts).encode()).hexdigest()
