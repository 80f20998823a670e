"""The stage moves the retriever towards the language model, keeps the best encoder, and rejects uniform targets."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import torch
from small_project import TUNED, UNTUNED

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.lsr import refresh, train_lsr
from pipelines.lsr.refresh import Refresher
from pipelines.lsr.rounds import Trainer
from pipelines.retrieval import encoder
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.retriever import fingerprint

METRICS = Path("data/metrics/lsr_dense.json")


def test_the_stage_moves_the_retriever_towards_the_language_model(project):
    project.params.lsr = project.params.lsr.model_copy(update={"steps": 60, "refresh_steps": 60, "learning_rate": 5e-3})
    train_lsr.train(project.params)
    metrics = json.loads(METRICS.read_text())
    curve = [point["kl"] for point in metrics["curve"]]
    assert np.mean(curve[-10:]) < 0.7 * np.mean(curve[:4])
    assert {"bpb_k10_before", "bpb_k10_after", "recall_at_1_before", "recall_at_10_after"} <= set(metrics)
    gains = [point["lm_gain"] for point in metrics["curve"]]
    assert np.mean(gains[-10:]) > np.mean(gains[:4])
    assert [row["step"] for row in metrics["validation"]] == [0, 60]
    assert {path.name for path in TUNED.iterdir()} >= {path.name for path in UNTUNED.iterdir()}


@pytest.mark.parametrize(("queries", "trained"), [("lm", (8, 0)), ("qa", (0, 6)), ("mixed", (8, 6))])
def test_each_kind_of_queries_trains_and_validates_and_embeds_no_other_corpus(queries, trained, project, monkeypatch):
    embedded, embed = set(), refresh.embed_corpus
    monkeypatch.setattr(
        refresh, "embed_corpus", lambda docs, *rest: (embedded.add(docs.parent.name), embed(docs, *rest))
    )
    project.params.lsr = project.params.lsr.model_copy(update={"queries": queries})
    metrics = train_lsr.train(project.params)
    assert (metrics.get("queries_pile", 0), metrics.get("queries_wikipedia", 0)) == trained
    assert embedded == {name for name, count in zip(("pile", "wikipedia"), trained, strict=True) if count}
    assert ("bpb_k10_after" in metrics, "recall_at_10_after" in metrics) == (queries != "qa", queries != "lm")


def test_both_kinds_of_queries_for_one_corpus_share_its_index(project, monkeypatch):
    project.params.parts = project.params.parts.model_copy(update={"datastore": "pile"})
    built, build = [], refresh.build_and_tune

    def recorded(folder, *rest):
        built.append(folder.name)
        return build(folder, *rest)

    monkeypatch.setattr(refresh, "build_and_tune", recorded)
    metrics = train_lsr.train(project.params)
    assert (metrics["queries_pile"], metrics["queries_popqa"]) == (8, 6)
    assert {"bpb_k10_after", "recall_at_10_after"} <= set(metrics)
    assert built == ["pile", "pile"], "one index for each of the two refreshes"


@pytest.mark.parametrize(("has", "close", "dtype"), [(True, 1.0, "bf16"), (False, 1.0, "fp32"), (True, 0.0, "fp32")])
def test_auto_is_bf16_where_the_device_has_it_and_its_vectors_agree(has, close, dtype, project, monkeypatch):
    monkeypatch.setattr(encoder, "has_bf16", lambda device: has)
    monkeypatch.setattr(encoder, "CLOSE", close)
    chosen, short = [], {"steps": 1, "refresh_steps": 1}
    monkeypatch.setattr(Trainer, "start_round", lambda self, _: chosen.append(self.lsr.dtype) or 1 / 0)
    project.params.lsr = project.params.lsr.model_copy(update=short | {"dtype": "auto"})
    with pytest.raises(ZeroDivisionError):
        train_lsr.train(project.params)
    assert chosen == [dtype]


def scripted(monkeypatch, bits):
    """Let validations give these bits per byte, one after the other; returns the weights at each."""
    seen = []

    def validate(self):
        seen.append([weight.detach().clone() for weight in self.encoder.parameters()])
        return {"bpb_k10": bits[len(seen) - 1], "recall_at_1": 0.5}

    monkeypatch.setattr(Refresher, "validate", validate)
    return seen


@contextmanager
def in_a_thread(compute):
    """In place of processes, so that validations can be scripted."""
    refresh._opened.clear()
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize(("bits", "patience", "validated", "best"), [
    ([1.0, 2.0, 1.5, 1.7], None, 4, 4),  # no better than the untuned one, but the best of those trained
    ([1.0, 0.5, 0.5, 0.4], 1, 3, 2),
    ([1.0, 0.5, 0.6, 0.7], 2, 4, 2),
])  # fmt: skip
def test_the_best_of_the_trained_is_kept_and_patience_ends(bits, patience, validated, best, project, monkeypatch):
    seen = scripted(monkeypatch, bits)
    changes = {"steps": 6, "refresh_steps": 2, "patience": patience}
    project.params.lsr = project.params.lsr.model_copy(update=changes)
    metrics = train_lsr.train(project.params)
    validation = json.loads(METRICS.read_text())["validation"]
    assert [row["bpb_k10"] for row in validation] == bits[:validated]
    assert (metrics["kept_step"], metrics["bpb_k10_after"]) == (best, bits[best // 2])
    kept = Encoder.open(TUNED, project.params.retriever, project.params.compute)
    assert all(map(torch.equal, kept.parameters(), seen[best // 2]))
    assert not torch.equal(seen[0][0], seen[1][0])


@pytest.mark.parametrize("when", ["sync", "async"])
def test_the_last_steps_encoder_is_kept_whatever_validates_better(when, project, monkeypatch):
    seen = scripted(monkeypatch, [*[1.0] * (1 + (when == "async")), 0.5, 0.6, 0.7])  # async: two untuned rounds
    monkeypatch.setattr(refresh, "processes", in_a_thread)
    changes = {"steps": 6, "refresh_steps": 2, "keep": "last", "refresh": when}
    project.params.lsr = project.params.lsr.model_copy(update=changes)
    metrics = train_lsr.train(project.params)
    assert (metrics["kept_step"], metrics["bpb_k10_after"]) == (6, 0.7)
    kept = Encoder.open(TUNED, project.params.retriever, project.params.compute)
    assert all(map(torch.equal, kept.parameters(), seen[-1]))


@pytest.mark.parametrize("queries", ["lm", "qa"])
def test_without_validation_the_last_encoder_is_kept_and_the_best_is_an_error(queries, project):
    chosen = project.params.lsr.model_copy(update={"validation_queries": 0, "keep": "last", "queries": queries})
    project.params.lsr = chosen
    assert train_lsr.train(project.params)["kept_step"] == chosen.steps
    assert json.loads(METRICS.read_text())["validation"] == [{"step": step} for step in (0, 3, 6)]
    project.params.lsr = chosen.model_copy(update={"keep": "best"})
    with pytest.raises(LongtailError, match=r"lsr\.keep is best, but there are no queries to validate .*keep: last"):
        train_lsr.train(project.params)


def test_without_queries_that_give_bits_recall_decides():
    rows = [{"step": step, "recall_at_1": recall} for step, recall in ((0, 0.9), (2, 0.3), (4, 0.6), (6, 0.6))]
    assert train_lsr._best(rows) == 4


def test_targets_that_are_uniform_are_an_error_with_the_reason(project):
    project.params.lsr = project.params.lsr.model_copy(update={"likelihood": "prob"})
    with pytest.raises(LongtailError, match=r"uniform .*lsr\.likelihood prob.*use mean_logprob"):
        train_lsr.train(project.params)
    assert not METRICS.exists()


def test_a_uniform_batch_or_two_within_an_epoch_are_no_error(project):
    curve = [{"entropy_lm": entropy} for entropy in (1.0, 1.0, 0.99, 0.9999, 1.0, 0.99999)]
    train_lsr._check_informative(curve[:2], 3, project.params.lsr)
    train_lsr._check_informative(curve[:3], 3, project.params.lsr)
    with pytest.raises(LongtailError, match="uniform"):
        train_lsr._check_informative(curve, 3, project.params.lsr)


def test_nothing_to_learn_from_is_an_error(project):
    queries = pq.read_table("data/corpus/pile/queries.parquet")
    pq.write_table(queries.filter(pa.compute.not_equal(queries["split"], "train")), "data/corpus/pile/queries.parquet")
    project.params.lsr = project.params.lsr.model_copy(update={"queries": "lm"})
    with pytest.raises(LongtailError, match="no queries of that kind"):
        train_lsr.train(project.params)


def test_a_retriever_is_tuned_from_its_own_weights_with_its_own_index(two_retrievers):
    """One small step from the second retriever's weights, on what its index finds; the first one's stay as they are."""
    params = methods.with_retriever(two_retrievers.params, "e5")
    params.lsr = params.lsr.model_copy(update={"learning_rate": 1e-7})
    before = fingerprint(TUNED)
    train_lsr.train(params)
    opened = {
        folder: Encoder.open(folder, params.retriever, params.compute).embed(tiny_models.words(9, 5))
        for folder in (methods.encoder("lsr", "e5"), methods.encoder("dense", "e5"), UNTUNED)
    }
    tuned, untuned, other = opened.values()
    assert 0 < np.abs(tuned - untuned).max() < 1e-3 < np.abs(tuned - other).max()
    assert fingerprint(TUNED) == before
    assert json.loads(Path("data/metrics/lsr_e5.json").read_text())["validation"]
    assert not METRICS.exists()
