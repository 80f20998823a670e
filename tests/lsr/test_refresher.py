"""A round's candidates are found by the encoder at its start, and scored by the language model
that is named.
"""

import json

import completions_server
import pytest
import torch
from lsr_training import (
    METRICS,
    change,
    steps_from_now,
    watched,
    weights,
)

from pipelines.lsr import train_lsr, training_queries
from pipelines.lsr.rounds import Refresher, TrainingFiles
from pipelines.lsr.trainer import Trainer
from pipelines.lsr.training_queries import Schedule


def test_a_round_is_made_by_the_encoder_at_its_start(project, monkeypatch):
    trained, searched, trainers = {}, {}, set()

    def training(trainer, number):
        trainers.add(trainer)
        trained[number] = weights(trainer.encoder)

    watched(monkeypatch, Trainer, "step", training)
    watched(
        monkeypatch,
        Refresher,
        "search",
        lambda self, number: searched.update({number: weights(self.encoder)}),
    )
    change(project, steps=5, refresh_steps=2)
    train_lsr.train_retriever(project.params, "dense")
    (trainer,) = trainers
    trained[5] = weights(trainer.encoder)
    assert sorted(searched) == [0, 1, 2, 3]
    assert all(
        torch.equal(searched[number], trained[step]) for number, step in enumerate([0, 2, 4, 5])
    )
    assert [row["step"] for row in json.loads(METRICS.read_text())["validation"]] == [0, 2, 4, 5]


def test_the_language_model_that_is_learnt_from_is_the_one_named(project):
    """Another model is first in `lms`, and its weights are not there."""
    main = project.params.lsr.lm
    folder = project.folder / "data/models/lm"
    (folder / main).rename(folder / "second")
    project.params.lm = {main: project.params.lm[main], "second": project.params.lm[main]}
    project.params.lms = [main, "second"]
    change(project, lm="second")
    corpora = training_queries.read_training_queries(project.params, "dense")
    schedule = Schedule(corpora, project.params.lsr, 0)
    assert (
        Refresher(
            project.params, "dense", corpora, schedule, TrainingFiles("train_lsr", "key")
        ).lm.name
        == "second"
    )


def test_a_served_model_teaches_and_its_cost_counts(project, monkeypatch):
    """Answers that were kept are free."""
    folder = project.folder / "data/models/lm" / project.params.lms[0]
    with completions_server.running(folder) as server:
        served = completions_server.settings(server.url, folder, prompt_price=1.0)
        project.params.lm = {project.params.lms[0]: served}
        metrics = train_lsr.train_retriever(project.params, "dense")
        assert 0 < metrics["lm_prompt_tokens"] == pytest.approx(1000 * metrics["lm_cost"])
        asked = len(server.requests)
        steps_from_now(monkeypatch, lambda number: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_lsr.train_retriever(project.params, "dense")
        assert len(server.requests) == asked
