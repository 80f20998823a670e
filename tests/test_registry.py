"""The tuned retriever becomes a version in MLflow's registry, and champion only where it beats the one that is."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest
import tiny_models
import yaml
from mlflow import MlflowClient
from transformers import AutoModel, AutoTokenizer
from waiting import until

from pipelines import QUIET, outputs, registry, shards, tracking
from pipelines.retrieval.encoder import Encoder

STAGE = """
import shutil
from pipelines import registry, shards, stage
def work(params):
    with shards.atomic(registry.FOLDER / "dense") as folder:
        shutil.copytree("tuned", folder)
    figures = {registry.TUNED: 0.9, registry.UNTUNED: 1.0}
    shards.write_json(registry.METRICS / "lsr_dense.json", figures)
    return figures
stage.run("train_lsr@dense", ("seed", "lm", "lsr"), work, out=str(registry.FOLDER))
"""


FOLDER, METRICS = registry.FOLDER / "dense", registry.METRICS / "lsr_dense.json"


@pytest.fixture(scope="module")
def project(root, tmp_path_factory):
    """A project whose only stage was run by DVC, recorded and registered as any run's is."""
    folder = tmp_path_factory.mktemp("registry")
    Encoder.open(
        tiny_models.encoder(folder / "plain"), tiny_models.retriever(pooling="cls"), tiny_models.compute()
    ).save(folder / "tuned")
    (folder / "params.yaml").write_bytes((root / "params.yaml").read_bytes())
    (folder / "stage.py").write_text(STAGE)
    for name in ("data/corpus", "data/models/lm/tiny"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text(name)
    train_lsr = {
        "matrix": {"retriever": ["dense"]},
        "cmd": f"{sys.executable} stage.py",
        "deps": ["data/corpus", "data/models/lm/tiny"],
        "params": ["seed", "lm.tiny.dtype", "lm.tiny.batch_tokens", "lm.tiny.http", "lsr"],  # as dvc.yaml has them
        "outs": [str(FOLDER), str(METRICS)],
    }
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"train_lsr": train_lsr}}))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "DVC_"))}
    environment |= QUIET | {"PYTHONPATH": str(root)}
    for words in (["init", "-q", "--no-scm"], ["repro", "-q"]):
        subprocess.run([sys.executable, "-m", "dvc", *words], cwd=folder, env=environment, check=True)
    log = folder / tracking.LOG
    until(lambda: registry.NAME in log.read_text())  # the recorder's last words
    return folder


@pytest.fixture
def here(project, monkeypatch):
    """The project as the working folder, its MLflow, and dvc.lock's part of the stage."""
    monkeypatch.chdir(project)
    client = MlflowClient(f"sqlite:///{project}/mlflow.db")
    locked = yaml.safe_load(Path("dvc.lock").read_text())["stages"][registry.STAGE + "dense"]
    return client, client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id, "dense", locked


def retrained(client, experiment: str, locked: dict, tuned: float, untuned: float = 1.0) -> dict:
    """Other weights and figures in place, with their run and their part of dvc.lock."""
    weights = FOLDER / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"\0")
    shards.write_json(METRICS, {registry.TUNED: tuned, registry.UNTUNED: untuned})
    changed = copy.deepcopy(locked)
    for out in changed["outs"]:
        out["md5"] = outputs.md5(Path(out["path"]))
    tag = {f"dvc.output.{FOLDER}": outputs.md5(FOLDER)}
    client.create_run(experiment, tags=tag)
    return changed


def champion(client) -> str:
    return str(client.get_registered_model(registry.NAME).aliases[registry.ALIAS])


def test_a_run_registers_what_it_trained_and_the_champion_is_a_hugging_face_folder(here, project, monkeypatch):
    client, *_ = here
    assert champion(client) == "1"
    version = client.get_model_version(registry.NAME, "1")
    assert client.get_run(version.run_id).info.run_name == f"{registry.STAGE}dense"
    assert (version.tags["validation_bpb"], version.tags["verdict"].split(":")[0]) == ("0.9", "champion, as the first")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlflow.db")
    folder = Path(mlflow.artifacts.download_artifacts(f"models:/{registry.NAME}@{registry.ALIAS}"))
    assert AutoModel.from_pretrained(folder).config.hidden_size == 32
    assert AutoTokenizer.from_pretrained(folder).pad_token == "<pad>"
    opened = Encoder.open(folder, tiny_models.retriever(pooling="cls"), tiny_models.compute())
    expected = Encoder.open(Path("tuned"), tiny_models.retriever(pooling="cls"), tiny_models.compute())
    assert (opened.embed(["Velm"]) == expected.embed(["Velm"])).all()
    assert not list(folder.rglob("*.pkl"))


def test_the_same_bytes_are_no_second_version(here):
    assert registry.register(*here) is None
    assert len(here[0].search_model_versions(f"name = '{registry.NAME}'")) == 1


def test_only_a_better_one_of_the_same_data_takes_the_place(here):
    client, experiment, _, locked = here
    for tuned, untuned, version, leader, reason in (
        (0.95, 1.0, "2", "1", "not champion: 0.9500 bits per byte on validation queries, 0.9000 those of version 1"),
        (0.9, 1.0, "3", "1", "not champion: 0.9000"),
        (0.8, 0.7, "4", "1", "not champion: 0.8000 bits per byte on validation queries, 0.7000 before it was tuned"),
        (0.85, 1.0, "5", "5", "champion: 0.8500 bits per byte on validation queries, 0.9000 those of version 1"),
    ):
        line = registry.register(client, experiment, "dense", retrained(client, experiment, locked, tuned, untuned))
        assert line.startswith(f"{registry.NAME} version {version}: {reason}")
        assert client.get_model_version(registry.NAME, version).tags["verdict"] == line.partition(": ")[2]
        assert champion(client) == leader


@pytest.mark.parametrize(
    "change",
    [
        lambda locked: locked["deps"][0].update(md5="0" * 32),
        lambda locked: locked["deps"][1].update(md5="0" * 32),
        lambda locked: locked["params"]["params.yaml"].update(seed=7),
        lambda locked: locked["params"]["params.yaml"]["lsr"].update(validation_queries=7),
    ],
    ids=["documents", "language model", "seed", "queries"],
)
def test_what_was_judged_on_other_data_can_not_beat_the_champion(here, change):
    client, experiment, _, locked = here
    before = champion(client)
    other = retrained(client, experiment, locked, 0.1)
    change(other)
    line = registry.register(client, experiment, "dense", other)
    assert f"not champion: version {before}, the champion, was judged on other data" in line
    assert champion(client) == before


def test_files_that_dvc_did_not_lock_are_left_alone(here):
    client, experiment, _, locked = here
    other = retrained(client, experiment, locked, 0.1)
    shards.write_json(METRICS, {registry.TUNED: 0.05, registry.UNTUNED: 1.0})
    assert registry.register(client, experiment, "dense", other) is None
    assert registry.register(client, experiment, "dense", {}) is None


def test_without_a_champion_what_is_there_can_become_it(here):
    client, experiment, _, locked = here
    last = retrained(client, experiment, locked, 0.99)
    assert "not champion" in registry.register(client, experiment, "dense", last)
    client.delete_registered_model_alias(registry.NAME, registry.ALIAS)
    assert "champion, as the first" in registry.register(client, experiment, "dense", last)
    assert registry.register(client, experiment, "dense", last) is None
