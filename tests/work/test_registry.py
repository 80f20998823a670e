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

from pipelines.params import params
from pipelines.retrieval.encoder import Encoder
from pipelines.storage.atomic import write_json
from pipelines.storage.dvc_hashes import md5
from pipelines.work.registry import (
    ALIAS,
    FOLDER,
    METRICS,
    REGISTERED,
    STAGE,
    TUNED,
    UNTUNED,
    register,
)
from pipelines.work.run_log import EXPERIMENT, Run

FOLDER, METRICS = FOLDER / "dense", METRICS / "lsr_dense.json"
READ = {"seed": 0, "lm.tiny": {"dtype": "fp32", "batch_tokens": 8, "http": None}}
READ |= {"lsr": {"lm": "tiny", "validation_queries": 6}}
READ |= {"retriever.dense": tiny_models.retriever(pooling="cls", query_prefix="ask: ").model_dump()}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Path:
    """An encoder's folder."""
    folder = tmp_path_factory.mktemp("encoder")
    encoder = tiny_models.encoder(folder / "plain")
    opened = Encoder.open(encoder, tiny_models.retriever(pooling="cls"), tiny_models.compute())
    opened.save(folder / "tuned")
    return folder / "tuned"


@pytest.fixture
def here(databases, tuned, tmp_path, monkeypatch):
    """A project whose run was recorded and registered; its MLflow, and dvc.lock's part of the
    stage."""
    monkeypatch.chdir(shutil.copytree(databases, tmp_path / "project"))
    shutil.copytree(tuned, FOLDER)
    figures = {TUNED: 0.9, UNTUNED: 1.0, "recall_at_1_before": 0.4, "recall_at_1_after": 0.6}
    write_json(METRICS, figures)
    deps = [{"path": path, "md5": path} for path in ("data/corpus", "data/models/lm/tiny")]
    outs = [{"path": str(path), "md5": md5(path)} for path in (FOLDER, METRICS)]
    locked = {"deps": deps, "params": {"params.yaml": READ}, "outs": outs}
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    record = {"params": {}, "metrics": figures, "started": 0.0, "ended": 1.0, "error": None}
    run = Run("a run", {}, pytest.fail, "a run")
    run.log(f"{STAGE}dense", record, locked)
    (said,) = run.end("FINISHED", {f"{STAGE}dense": locked})
    assert "version 1: champion: " in said
    client = MlflowClient(f"sqlite:///{Path.cwd()}/mlflow.db")
    return client, client.get_experiment_by_name(EXPERIMENT).experiment_id, locked


def retrained(client, experiment: str, locked: dict, tuned: float, untuned: float = 1.0) -> dict:
    """Other weights and figures in place, with their run and their part of dvc.lock."""
    weights, changed = FOLDER / "model.safetensors", copy.deepcopy(locked)
    weights.write_bytes(weights.read_bytes() + b"\0")
    write_json(METRICS, {TUNED: tuned, UNTUNED: untuned})
    for out in changed["outs"]:
        out["md5"] = md5(Path(out["path"]))
    client.create_run(experiment, tags={f"dvc.output.{FOLDER}": md5(FOLDER)})
    return changed


def champion(client) -> str:
    return str(client.get_registered_model(REGISTERED).aliases[ALIAS])


def test_a_run_registers_what_it_trained(here, tuned):
    """The champion is a Hugging Face folder."""
    client, *_ = here
    assert champion(client) == "1"
    version = client.get_model_version(REGISTERED, "1")
    assert client.get_run(version.run_id).info.run_name == f"{STAGE}dense"
    for text in ("`dense`, champion: 0.9000 bits", "recall at 1 after the tuning: 0.6", "[a run]("):
        assert text in version.description
    assert version.tags["recall_at_1_before"] == "0.4"
    assert (version.tags["validation_bpb"], version.tags["verdict"].split(":")[0]) == (
        "0.9",
        "champion",
    )
    folder = Path(mlflow.artifacts.download_artifacts(f"models:/{REGISTERED}@{ALIAS}"))
    assert AutoModel.from_pretrained(folder).config.hidden_size == 32
    assert AutoTokenizer.from_pretrained(folder).pad_token == "<pad>"
    settings, compute = tiny_models.retriever(pooling="cls"), tiny_models.compute()
    found, expected = (
        Encoder.open(path, settings, compute).embed(["Velm"]) for path in (folder, tuned)
    )
    assert (found == expected).all()
    assert not list(folder.rglob("*.pkl"))


@pytest.mark.usefixtures("here")
def test_mlflow_loads_the_champion_by_our_own_module(tuned, monkeypatch):
    """It gives the encoder's vectors."""
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    loaded = mlflow.pyfunc.load_model(f"models:/{REGISTERED}@{ALIAS}")
    encoder = Encoder.open(
        tuned, params.Retriever(**READ["retriever.dense"]), tiny_models.compute()
    )
    texts = ["Velm", "Oslo Here."]
    assert (loaded.predict(texts) == encoder.embed(texts)).all()
    assert (loaded.predict(texts, {"queries": True}) == encoder.embed_queries(texts)).all()
    with pytest.raises(mlflow.MlflowException, match="string"):
        loaded.predict([1.5])
    assert loaded.metadata.flavors["python_function"].keys() == {"loader_module", "config"}, (
        "no code comes with it"
    )


def test_only_a_better_one_of_the_same_data_takes_the_place(here):
    client, experiment, locked = here
    for tuned, untuned, version, leader, reason in (
        (
            0.95,
            1.0,
            "2",
            "1",
            "not champion: 0.9500 bits per byte on validation queries, 1.0000 before it was tuned",
        ),
        (0.9, 1.0, "3", "1", "not champion: 0.9000"),
        (
            0.8,
            0.7,
            "4",
            "1",
            "not champion: 0.8000 bits per byte on validation queries, 0.7000 before it was tuned",
        ),
        (
            0.85,
            1.0,
            "5",
            "5",
            "champion: 0.8500 bits per byte on validation queries, 1.0000 before it was tuned",
        ),
    ):
        line = register(
            client, experiment, "dense", retrained(client, experiment, locked, tuned, untuned)
        )
        assert line.startswith(f"{REGISTERED} version {version}: {reason}")
        assert (
            client.get_model_version(REGISTERED, version).tags["verdict"] == line.partition(": ")[2]
        )
        assert champion(client) == leader


def test_what_was_judged_on_other_data_can_not_beat_the_champion(here):
    client, experiment, locked = here
    for change in (
        lambda locked: locked["deps"][0].update(md5="other documents"),
        lambda locked: locked["deps"][1].update(md5="another language model"),
        lambda locked: locked["params"]["params.yaml"].update(seed=7),
        lambda locked: locked["params"]["params.yaml"]["lsr"].update(validation_queries=7),
    ):
        other = retrained(client, experiment, locked, 0.1)
        change(other)
        line = register(client, experiment, "dense", other)
        assert "not champion: " in line
        assert "judged on other data" in line
        assert champion(client) == "1"


def test_the_same_bytes_are_no_version(here):
    """Nor are files that DVC did not lock."""
    client, experiment, locked = here
    assert register(client, experiment, "dense", locked) is None
    other = retrained(client, experiment, locked, 0.1)
    write_json(METRICS, {TUNED: 0.05, UNTUNED: 1.0})
    assert register(client, experiment, "dense", other) is None
    assert register(client, experiment, "dense", {}) is None
    assert len(client.search_model_versions(f"name = '{REGISTERED}'")) == 1
