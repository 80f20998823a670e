"""The stage moves the retriever towards the language model, keeps the best encoder, and rejects
uniform targets.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import torch
from lsr_training import METRICS, change, watched, weights
from small_project import TUNED, UNTUNED

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.lsr import rounds, train_lsr
from pipelines.lsr.rounds import Refresher
from pipelines.retrieval.encoder import Encoder
from pipelines.storage.work_store import content_hash


def test_the_stage_moves_the_retriever_towards_the_lm(project):
    change(project, steps=40, refresh_steps=40, learning_rate=5e-3)
    train_lsr.train_retriever(project.params, "dense")
    metrics = json.loads(METRICS.read_text())
    curve = [point["kl"] for point in metrics["curve"]]
    assert np.mean(curve[-10:]) < 0.7 * np.mean(curve[:4])
    figures = ("bits_per_byte_before", "bits_per_byte_after", "recall_at_1_before")
    assert {*figures, "recall_at_10_after"} <= set(metrics)
    gains = [point["lm_gain"] for point in metrics["curve"]]
    assert np.mean(gains[-10:]) > np.mean(gains[:4])
    assert [row["step"] for row in metrics["validation"]] == [0, 40]
    assert {path.name for path in TUNED.iterdir()} >= {path.name for path in UNTUNED.iterdir()}


@pytest.mark.parametrize(
    ("queries", "datastore", "counts", "indexed"),
    [
        ("lm", "wikipedia", {"queries_pile": 8}, ["pile"]),
        ("qa", "wikipedia", {"queries_wikipedia": 6}, ["wikipedia"]),
        ("mixed", "pile", {"queries_pile": 8, "queries_popqa": 6}, ["pile"]),  # both share an index
    ],
)
def test_each_kind_of_queries_embeds_no_other_corpus(
    queries, datastore, counts, indexed, project, monkeypatch
):
    project.params.parts = project.params.parts.model_copy(update={"datastore": datastore})
    seen = []
    watched(
        monkeypatch,
        rounds,
        "embed_corpus",
        lambda docs, model, out: seen.append(out.parent.name),
    )
    change(project, queries=queries, steps=2, refresh_steps=1)
    metrics = train_lsr.train_retriever(project.params, "dense")
    assert {name: metrics[name] for name in metrics if name.startswith("queries_")} == counts
    assert seen == indexed * 2, "at each of the two refreshes"
    assert ("bits_per_byte_after" in metrics, "recall_at_10_after" in metrics) == (
        queries != "qa",
        queries != "lm",
    )


@pytest.mark.parametrize(("bits", "changes", "validated", "best"), [
    # none of those trained is better than the untuned one
    ([1.0, 2.0, 1.5, 1.7], {}, [0, 2, 4, 6], 0),
    ([1.0, 0.5, 0.6, 0.7], {}, [0, 2, 4, 6], 2),
    ([1.0, 0.5, 0.6, 0.7], {"keep": "last"}, [0, 2, 4, 6], 6),
])  # fmt: skip
def test_the_best_is_kept_be_it_untuned_or_the_last(
    bits, changes, validated, best, project, monkeypatch
):
    seen = []

    def validate(refresher):
        seen.append(weights(refresher.encoder))
        return {"bits_per_byte": bits[len(seen) - 1], "recall_at_1": 0.5}

    monkeypatch.setattr(Refresher, "validate", validate)
    change(project, **{"steps": 6, "refresh_steps": 2, "queries": "lm"} | changes)
    metrics, kept = train_lsr.train_retriever(project.params, "dense"), best // 2
    assert (metrics["kept_step"], metrics["bits_per_byte_after"]) == (best, bits[kept])
    written = json.loads(METRICS.read_text())
    assert [row["step"] for row in written["validation"]] == validated
    assert len(written["curve"]) == validated[-1]
    opened = Encoder.open(TUNED, project.params.retriever["dense"], project.params.compute)
    assert torch.equal(weights(opened), seen[kept])
    assert not torch.equal(seen[0], seen[1])


def test_without_validation_the_last_encoder_is_kept(project, monkeypatch):
    """To ask for the best is an error."""
    change(project, validation_queries=0, keep="last", steps=2, refresh_steps=1)
    opened = []
    watched(monkeypatch, Refresher, "_open", lambda _, step: opened.append(step))
    assert train_lsr.train_retriever(project.params, "dense")["kept_step"] == 2
    assert opened == [1], "the last encoder embeds nothing"
    assert json.loads(METRICS.read_text())["validation"] == [{"step": step} for step in (0, 1, 2)]
    for queries, best_by in (("lm", "bits_per_byte"), ("qa", "recall_at_1")):
        change(project, keep="best", queries=queries)
        says = rf"lsr\.keep is best, but there are no queries .* by {best_by}; .*keep: last"
        with pytest.raises(LongtailError, match=says):
            train_lsr.train_retriever(project.params, "dense")


@pytest.mark.parametrize(("recalls", "by_recall"), [
    ((0.9, 0.3, 0.6, 0.6), 0),
    ((0.5, 0.3, 0.6, 0.6), 4),
    ((0.6, 0.6, 0.6, 0.6), 0),
])  # fmt: skip
def test_the_best_is_by_one_figure_then_the_first(recalls, by_recall, project):
    rows = []
    for step, recall, bits in zip((0, 2, 4, 6), recalls, (1.0, 0.7, 0.9, 0.7), strict=True):
        rows.append({"step": step, "recall_at_1": recall, "bits_per_byte": bits})
    change(project, queries="mixed")
    assert train_lsr.best_step(rows, project.params.lsr) == by_recall
    change(project, queries="lm")
    assert train_lsr.best_step(rows, project.params.lsr) == 2


def test_targets_that_are_uniform_are_an_error_with_the_reason(project):
    change(project, likelihood="prob")
    with pytest.raises(LongtailError, match=r"uniform .*lsr\.likelihood prob.*use mean_logprob"):
        train_lsr.train_retriever(project.params, "dense")
    assert not METRICS.exists()


def test_nothing_to_learn_from_is_an_error(project):
    queries = pq.read_table("data/corpus/pile/queries.parquet")
    pq.write_table(
        queries.filter(pa.compute.not_equal(queries["split"], "train")),
        "data/corpus/pile/queries.parquet",
    )
    change(project, queries="lm")
    with pytest.raises(LongtailError, match="no queries of that kind"):
        train_lsr.train_retriever(project.params, "dense")


def test_a_retriever_is_tuned_from_its_own_weights(two_retrievers):
    """One small step from the second retriever's weights, on what its index finds; the first
    one's stay as they are.
    """
    params = two_retrievers.params
    params.lsr = params.lsr.model_copy(
        update={"learning_rate": 1e-7, "steps": 2, "refresh_steps": 2, "keep": "last"}
    )
    before = content_hash(TUNED)
    train_lsr.train_retriever(params, "e5")
    opened = {
        folder: Encoder.open(folder, params.retriever["e5"], params.compute).embed(
            tiny_models.words(9, 5)
        )
        for folder in (
            methods.encoder_folder(methods.Method("lsr", "e5")),
            methods.encoder_folder(methods.Method("dense", "e5")),
            UNTUNED,
        )
    }
    tuned, untuned, other = opened.values()
    assert 0 < np.abs(tuned - untuned).max() < 1e-3 < np.abs(tuned - other).max()
    assert content_hash(TUNED) == before
    assert json.loads(Path("data/metrics/lsr_e5.json").read_text())["validation"]
    assert not METRICS.exists()
