"""A killed LSR training resumes to the same bytes, wherever it was; with another param it
starts anew.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lsr_training import change, remove_training, steps_from_now, watched, written
from safetensors import safe_open
from small_project import TUNED, UNTUNED

from pipelines import methods
from pipelines.lm.local import LocalModel
from pipelines.lsr import rounds, train_lsr, training_queries
from pipelines.lsr.rounds import ScoredCandidates, TrainingFiles
from pipelines.lsr.trainer import Trainer
from pipelines.retrieval import dense, index
from pipelines.retrieval.encoder import EXACT, Encoder


def test_an_interrupted_round_ends_with_the_same_bytes(project, monkeypatch):
    monkeypatch.setattr("pipelines.scoring.logprobs.SHARD", 7)
    monkeypatch.setattr(train_lsr, "CHECKPOINT_STEPS", 2)
    train_lsr.train_retriever(project.params, "dense")
    whole = written()
    remove_training()
    for owner, name, allowed in (
        (LocalModel, "score", 4),
        (rounds, "embed_corpus", 1),
        (Trainer, "step", 2),
    ):
        calls = iter(range(allowed))
        with monkeypatch.context() as patch:
            watched(patch, owner, name, lambda *_, calls=calls: next(calls))
            with pytest.raises(StopIteration):
                train_lsr.train_retriever(project.params, "dense")
    assert not TUNED.exists()
    folder = Path(".longtail/work/train_lsr@dense")
    (saved,) = folder.glob("*/state.safetensors")
    with safe_open(saved, "pt") as file:
        assert json.loads(file.metadata()["progress"])["step"] == 4
    assert not [path for path in folder.rglob("*") if path.suffix in (".pt", ".pkl", ".bin")]
    steps = steps_from_now(monkeypatch)
    assert train_lsr.train_retriever(project.params, "dense")["kept_step"] in (0, 3, 6)
    assert steps == [4, 5]
    assert written() == whole
    assert not folder.exists()
    assert not list(Path(".longtail/work").iterdir())


def test_training_embeds_documents_as_the_index_does(project):
    """Titles and texts, in the template of the index; the two would otherwise be of different
    spaces.
    """
    titled = project.params.retriever["dense"].model_copy(
        update={"document": "{title} is told of: {text}"}
    )
    project.params.retriever = {"dense": titled}
    params, out = project.params, methods.index_folder(methods.Method("dense", "dense"), "")
    corpora = training_queries.read_training_queries(params, "dense")
    encoder = Encoder.open(UNTUNED, params.retriever["dense"], params.compute, EXACT)
    schedule = training_queries.Schedule(corpora, params.lsr, params.seed)
    trainer = Trainer(encoder, corpora, schedule, params.lsr, [1.0] * len(corpora))
    positions = np.arange(30).reshape(6, 5)
    trainer.start_round(
        [ScoredCandidates(np.arange(6), positions, positions, positions)] * len(corpora)
    )
    for number, corpus in enumerate(corpora):
        folder = out / corpus.corpus
        index.index_dense(corpus.docs, UNTUNED, folder, params, retriever="dense", name="index")
        texts = list(trainer.texts(number, positions.ravel()))
        stored = dense.Index(out / corpus.corpus).embeddings.rows(0, 30)
        np.testing.assert_allclose(
            encoder.embed_with_gradient(encoder.tokens(texts)).detach().numpy(), stored, atol=1e-3
        )
        assert " is told of: " in texts[0]


def test_another_param_has_no_checkpoint_yet(project):
    def checkpoints(**changes) -> Path:
        change(project, **changes)
        corpora = training_queries.read_training_queries(project.params, "dense")
        return TrainingFiles(
            "train_lsr", train_lsr.training_key(project.params, "dense", corpora)
        ).model(0)

    gamma, first = project.params.lsr.gamma, checkpoints()
    assert first == checkpoints() != checkpoints(gamma=0.2)
    path = "data/corpus/pile/queries.parquet"
    queries, schema = pq.read_table(path).to_pylist(), pq.read_schema(path)
    longer = [query | {"continuation": query["continuation"] + "x"} for query in queries]
    pq.write_table(pa.Table.from_pylist(longer, schema), path)
    second = checkpoints(gamma=gamma)
    config = project.folder / "data/models/lm" / project.params.lsr.lm / "config.json"
    config.write_text(config.read_text() + " ")
    assert len({first, checkpoints(), second}) == 3, (
        "other continuations, or another language model"
    )
