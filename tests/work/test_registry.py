"""The tuned retriever becomes a version in MLflow's registry, and champion only where it beats the
one that is."""

import copy
import shutil
from pathlib import Path

import mlflow
import pytest
import tiny_models
from mlflow import MlflowClient
from transformers import AutoModel, AutoTokenizer

from pipelines.params.params_models import best_by
from pipelines.retrieval.encoder import Encoder
from pipelines.storage.atomic import write_json
from pipelines.storage.dvc_hashes import md5
from pipelines.work.registry import ALIAS, FOLDER, METRICS, REGISTERED, STAGE, judged_on, register
from pipelines.work.run_log import EXPERIMENT, Run

FOLDER, METRICS = FOLDER / "dense", METRICS / "lsr_dense.json"
CHAMPION = f"models:/{REGISTERED}@{ALIAS}"
SETTINGS = tiny_models.retriever(pooling="cls", query_prefix="ask: ")
LM, UNTUNED = "data/models/lm/tiny", "data/models/retriever/dense"
INDEX = "data/index/dense/dense"
INPUTS = ("data/corpus", "data/questions", LM, UNTUNED, INDEX)
PARAMS = {  # of dvc.lock
    "seed": 0,
    "compute.threads": 1,
    "language": "en",
    "parts.answered": ["popqa"],
    "parts.datastore": "wikipedia",
    "parts.scored": ["pile"],
    "answer.passage": "{text}",
    "lsr": {"lm": "tiny", "validation_queries": 6, "queries": "mixed", "gamma": 0.1},
    "lm.tiny": {"path": "org/lm", "revision": "0123abc", "dtype": "fp32", "http": None},
    "retriever.dense": SETTINGS.model_dump(),
}
LOCKED = {  # dvc.lock's part of the stage, but for its outputs
    "deps": [{"path": path, "md5": f"MD5 of {path}"} for path in INPUTS],
    "params": {"params.yaml": PARAMS},
}
QUERIES_OF = {"recall_at_1": "mixed", "bits_per_byte": "lm"}  # lsr.queries of a figure
QUESTIONS = {  # figures of a training on questions alone
    "recall_at_1_before": 0.4,
    "recall_at_1_after": 0.6,
    "recall_at_10_before": 0.8,
    "recall_at_10_after": 0.9,
}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Path:
    """An encoder's folder."""
    folder = tmp_path_factory.mktemp("encoder")
    encoder = tiny_models.encoder(folder / "plain")
    opened = Encoder.open(encoder, SETTINGS, tiny_models.compute())
    opened.save(folder / "tuned")
    return folder / "tuned"


@pytest.fixture
def here(databases, tuned, tmp_path, monkeypatch):
    """A project whose run learnt from questions alone, and was recorded and registered; its MLflow,
    and dvc.lock's part of the stage."""
    monkeypatch.chdir(shutil.copytree(databases, tmp_path / "project"))
    shutil.copytree(tuned, FOLDER)
    write_json(METRICS, QUESTIONS)
    outs = [{"path": str(path), "md5": md5(path)} for path in (FOLDER, METRICS)]
    locked = copy.deepcopy(LOCKED) | {"outs": outs}
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    record = {"params": {}, "metrics": QUESTIONS, "started": 0.0, "ended": 1.0, "error": None}
    run = Run("a run", {}, pytest.fail, "a run")
    run.log(f"{STAGE}dense", record, locked)
    (line,) = run.end("FINISHED", {f"{STAGE}dense": locked})
    assert line.startswith(f"{REGISTERED} version 1: champion: recall_at_1 is 0.6000")
    client = MlflowClient(f"sqlite:///{Path.cwd()}/mlflow.db")
    return client, client.get_experiment_by_name(EXPERIMENT).experiment_id, locked


def retrain(client, experiment: str, locked: dict, before: float | None, after: float | None):
    """Put other weights in place, with figures if they were validated, their run,
    and their part of dvc.lock."""
    weights = FOLDER / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"\0")
    figure = best_by(locked["params"]["params.yaml"]["lsr"]["queries"])
    figures = {f"{figure}_before": before, f"{figure}_after": after}
    write_json(METRICS, figures if after else {})
    for out in locked["outs"]:
        out["md5"] = md5(Path(out["path"]))
    client.create_run(experiment, tags={f"dvc.output.{FOLDER}": md5(FOLDER)})


def verdict_on(client, experiment: str, locked: dict, before=None, after=None) -> str:
    """What the registry says of another version."""
    retrain(client, experiment, locked, before, after)
    _, _, verdict = register(client, experiment, "dense", locked).partition(": ")
    return verdict


def champion(client) -> str:
    return str(client.get_registered_model(REGISTERED).aliases[ALIAS])


def test_a_run_registers_what_it_trained(here, tuned):
    """Its questions gave it a recall, and no bits per byte. The champion is a Hugging Face
    folder."""
    client, *_ = here
    assert champion(client) == "1"
    version = client.get_model_version(REGISTERED, "1")
    assert client.get_run(version.run_id).info.run_name == f"{STAGE}dense"
    tags = {name: repr(value) for name, value in QUESTIONS.items()}
    tags |= {f"dvc.input.{path}": f"MD5 of {path}" for path in INPUTS}
    tags |= {"lm": "tiny"}
    assert tags.items() <= version.tags.items()
    verdict = "champion: recall_at_1 is 0.6000, and was 0.4000 at best"
    assert version.tags["verdict"] == verdict
    assert "download_artifacts" in client.get_registered_model(REGISTERED).description
    folder = Path(mlflow.artifacts.download_artifacts(CHAMPION))
    assert AutoModel.from_pretrained(folder).config.hidden_size == 32
    assert AutoTokenizer.from_pretrained(folder).pad_token == "<pad>"
    opened = Encoder.open(folder, SETTINGS, tiny_models.compute())
    expected = Encoder.open(tuned, SETTINGS, tiny_models.compute())
    assert (opened.embed(["Velm"]) == expected.embed(["Velm"])).all()
    assert not list(folder.rglob("*.pkl"))


@pytest.mark.parametrize(("figure", "worse", "best", "better"), [
    ("recall_at_1", 0.5, 0.6, 0.7),
    ("bits_per_byte", 1.1, 0.9, 0.8),
])  # fmt: skip
def test_only_a_better_one_takes_the_place(figure, worse, best, better, here):
    client, _, locked = here
    locked["params"]["params.yaml"]["lsr"]["queries"] = QUERIES_OF[figure]
    if figure == "bits_per_byte":
        verdict = verdict_on(*here, worse, best)
        says = "version 1, the champion, was judged on other data or settings"
        assert verdict == f"not champion: {says}"
        client.delete_registered_model_alias(REGISTERED, ALIAS)
        assert verdict_on(*here, worse, best).startswith(f"champion: {figure} is {best:.4f}")
    first = champion(client)
    for before, after, best_before, takes_the_place in (
        (worse, worse, best, False),
        (worse, best, best, False),
        (better, better, better, False),
        (worse, better, best, True),
    ):
        verdict = verdict_on(*here, before, after)
        says = f"champion: {figure} is {after:.4f}, and was {best_before:.4f} at best"
        assert verdict == (says if takes_the_place else f"not {says}")
        assert (champion(client) != first) == takes_the_place
    assert verdict_on(*here) == f"not champion: no validation queries gave its {figure}"


DECIDING = ("data/corpus", "data/questions", LM, "seed", "lm.tiny", "parts.answered")


def judged_with(changed: str = "") -> str:
    """The hash of what decides the figures, where one input or param is another."""
    locked = copy.deepcopy(LOCKED)
    for dep in locked["deps"]:
        if dep["path"] == changed:
            dep["md5"] = "another"
    params = locked["params"]["params.yaml"]
    section, _, key = changed.partition(":")
    if key:
        params[section][key] = "another"
    elif changed in params:
        params[changed] = "another"
    return judged_on("dense", locked)


def test_other_data_are_those_that_decide_the_figures():
    """They are not the retriever, how it is tuned and where."""
    for name in (UNTUNED, INDEX, "retriever.dense", "lsr:gamma", "compute.threads"):
        assert judged_with(name) == judged_with(), name
    for name in (*DECIDING, "lsr:queries", "lsr:validation_queries"):
        assert judged_with(name) != judged_with(), name


def test_the_same_bytes_are_no_version(here):
    """Nor are files that DVC did not lock."""
    client, experiment, locked = here
    assert register(client, experiment, "dense", locked) is None
    retrain(client, experiment, locked, 0.4, 0.7)
    write_json(METRICS, QUESTIONS)
    assert register(client, experiment, "dense", locked) is None
    assert register(client, experiment, "dense", {}) is None
    assert len(client.search_model_versions(f"name = '{REGISTERED}'")) == 1
