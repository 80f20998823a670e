"""A second process finds a round's candidates while the round before trains; when it does so changes nothing.

The most that a server's scores may cost is known before the first is asked for.
"""

import json
import os
import re
import signal

import completions_server
import pytest
import torch
from lsr_training import (
    METRICS,
    change,
    refresh_in_a_thread,
    remove_training,
    steps_from_now,
    watched,
    weights,
    written,
)
from small_project import child_processes
from waiting import until

from pipelines import checkpoint
from pipelines.errors import LongtailError
from pipelines.lsr import refresh, train_lsr, training_queries
from pipelines.lsr.refresh import Refresher
from pipelines.lsr.rounds import Trainer, TrainingFiles
from pipelines.lsr.training_queries import Schedule

ASYNC = {"refresh": "async", "steps": 5, "refresh_steps": 2}


@pytest.mark.parametrize(("when", "made_by"), [("sync", [0, 2, 4, 5]), ("async", [0, 0, 2, 4, 5])])
def test_a_round_is_made_by_the_encoder_at_its_start_or_a_round_before(when, made_by, project, monkeypatch):
    trained, searched, trainers = {}, {}, set()

    def training(trainer, number):
        trainers.add(trainer)
        trained[number] = weights(trainer.encoder)

    watched(monkeypatch, Trainer, "step", training)
    watched(monkeypatch, Refresher, "search", lambda self, number: searched.update({number: weights(self.encoder)}))
    change(project, **ASYNC | {"refresh": when})
    monkeypatch.setattr(refresh, "processes", refresh_in_a_thread)
    train_lsr.train(project.params)
    (trainer,) = trainers
    trained[5] = weights(trainer.encoder)
    assert sorted(searched) == list(range(len(made_by)))
    assert all(torch.equal(searched[number], trained[step]) for number, step in enumerate(made_by))
    assert [row["step"] for row in json.loads(METRICS.read_text())["validation"]] == [0, 2, 4, 5]
    assert not refresh._opened, "a connection to a cluster would be closed"


@pytest.mark.slow
def test_slow_or_killed_it_ends_with_the_same_bytes(project, monkeypatch):
    """Round 2 is begun before step 2, and needed at step 4: the second process makes it after step 3, and once more."""

    def made():
        return any(checkpoint.folder("train_lsr@dense").glob("*/round-000002"))

    def reading(_, number):
        if number == 1:  # round 2 is begun next
            os.kill(child_processes()[0].pid, signal.SIGSTOP)

    def slow(number):
        if number == 3:
            assert not made()
            os.kill(child_processes()[0].pid, signal.SIGCONT)

    change(project, **ASYNC)
    with monkeypatch.context() as patch:
        watched(patch, TrainingFiles, "read_round", reading)
        steps_from_now(patch, slow)
        train_lsr.train(project.params)
    whole = written()
    remove_training()
    steps_from_now(monkeypatch, lambda number: number == 1 and child_processes()[0].kill())
    train_lsr.train(project.params)
    assert written() == whole
    assert not child_processes()


def test_an_error_in_training_ends_the_second_process(project):
    change(project, **ASYNC)
    corpora = training_queries.read(project.params)
    schedule = Schedule(corpora, project.params.lsr, seed=0)

    def fail():
        with refresh.round_starter(project.params, corpora, schedule, TrainingFiles("train_lsr")) as start:
            start(0)
            until(child_processes)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not child_processes()
    assert not checkpoint.folder("train_lsr@dense").exists()


@pytest.mark.parametrize(
    ("device", "gpus", "changes", "trained_on", "last"),
    [
        ("cpu", 3, {}, 1, {}),
        ("cuda", 3, {}, 3, {"CUDA_VISIBLE_DEVICES": "7"}),
        ("cuda", 3, {"processes": 2}, 2, {"CUDA_VISIBLE_DEVICES": "7"}),
        ("cuda", 3, ASYNC, 2, {"CUDA_VISIBLE_DEVICES": "7"}),
        ("cuda", 1, ASYNC, 1, {}),
        ("cuda", 3, ASYNC | {"processes": 3}, None, None),
    ],
)
def test_of_several_gpus_the_second_process_has_the_last(device, gpus, changes, trained_on, last, project, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,0,7")
    project.params.compute = project.params.compute.model_copy(update={"device": device})
    change(project, **changes)
    if trained_on is None:
        with pytest.raises(LongtailError, match=r"lsr\.processes is 3, .* each GPU that trains, 2 .*set it to null"):
            refresh.training_processes(project.params)
        return
    assert refresh.training_processes(project.params) == trained_on
    assert refresh._last_gpu(project.params.compute) == last
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert refresh._last_gpu(project.params.compute) == ({"CUDA_VISIBLE_DEVICES": "2"} if last else {})


def test_the_language_model_that_is_learnt_from_is_the_one_named(project):
    """Another model is first in `lms`, and its weights are not there."""
    main = project.params.lsr.lm
    folder = project.folder / "data/models/lm"
    (folder / main).rename(folder / "second")
    project.params.lm = {main: project.params.lm[main], "second": project.params.lm[main]}
    project.params.lms = [main, "second"]
    change(project, lm="second")
    corpora = training_queries.read(project.params)
    schedule = Schedule(corpora, project.params.lsr, 0)
    assert Refresher(project.params, corpora, schedule, TrainingFiles("train_lsr")).lm.name == "second"


def test_the_cost_is_an_upper_estimate_that_is_said_before_it_is_made_and_may_be_too_dear(project, monkeypatch, capsys):
    folder = project.folder / "data/models/lm" / project.params.lms[0]
    with completions_server.running(folder) as server:
        served = completions_server.settings(server.url, folder, prompt_price=1.0)
        project.params.lm = {project.params.lms[0]: served}
        change(project, max_cost=0.5)
        with pytest.raises(LongtailError, match=r"lsr\.max_cost is 0\.5, but .* may cost .*raise it, or lower"):
            train_lsr.train(project.params)
        assert len(server.requests) == 3, "probes"
        assert not METRICS.exists()
        change(project, max_cost=None, keep_scores=True)
        capsys.readouterr()
        metrics = train_lsr.train(project.params)
        out = capsys.readouterr().out
        assert "at most 324 pairs" in out  # 2 rounds x 12 queries x (5 + none), 3 validations x 6 x 10
        said = float(re.search(r"tokens, for ([\d.]+)", out)[1])
        assert 0.3 * said < metrics["lm_cost"] <= said
        assert metrics["lm_prompt_tokens"] == pytest.approx(1000 * metrics["lm_cost"])
        steps_from_now(monkeypatch, lambda number: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_lsr.train(project.params)
        assert float(re.search(r"tokens, for ([\d.]+)", capsys.readouterr().out)[1]) < said, "what is kept is free"
