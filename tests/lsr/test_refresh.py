"""A second process finds a round's candidates while the one before trains: when it does so changes nothing."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch
import yaml

from pipelines import checkpoint
from pipelines.lsr import refresh, train_lsr, training_queries
from pipelines.lsr.refresh import Refresher
from pipelines.lsr.rounds import Rounds
from pipelines.lsr.training_queries import Order
from pipelines.lsr.tuning import Tuner
from pipelines.retrieval.encoder import Encoder

ASYNC = {"refresh": "async", "steps": 5, "refresh_steps": 2}


def change(project, **changes):
    project.params.lsr = project.params.lsr.model_copy(update=changes)


@contextmanager
def in_a_thread(compute):
    """In place of processes: what the second one does can be watched."""
    assert (compute.executor, compute.workers) == ("local", 2)
    refresh._opened.clear()
    with ThreadPoolExecutor(1) as pool:
        yield pool


def watched(monkeypatch, owner, name, before):
    real = getattr(owner, name)

    def call(self, number):
        before(self, number)
        return real(self, number)

    monkeypatch.setattr(owner, name, call)


def weights(encoder):
    return torch.cat([weight.detach().ravel().clone() for weight in encoder.parameters()])


def written():
    return {str(path): path.read_bytes() for path in [*train_lsr.OUT.rglob("*.*"), train_lsr.METRICS]}


@pytest.mark.parametrize(("when", "made_by"), [("sync", [0, 2, 4, 5]), ("async", [0, 0, 2, 4, 5])])
def test_a_round_is_made_by_the_encoder_at_its_start_or_a_round_before(when, made_by, project, monkeypatch):
    trained, searched, tuners = {}, {}, set()

    def training(tuner, number):
        tuners.add(tuner)
        trained[number] = weights(tuner.encoder)

    watched(monkeypatch, Tuner, "step", training)
    watched(monkeypatch, Refresher, "search", lambda self, number: searched.update({number: weights(self.encoder)}))
    change(project, **ASYNC | {"refresh": when})
    monkeypatch.setattr(refresh, "processes", in_a_thread)
    train_lsr.train(project.params)
    (tuner,) = tuners
    trained[5] = weights(tuner.encoder)
    assert sorted(searched) == list(range(len(made_by)))
    assert all(torch.equal(searched[number], trained[step]) for number, step in enumerate(made_by))
    assert [row["step"] for row in json.loads(train_lsr.METRICS.read_text())["validation"]] == [0, 2, 4, 5]


def test_validation_of_a_round_before_keeps_the_best_and_ends_training(project, monkeypatch):
    bits, seen = iter([1.0, 1.0, 0.5, 0.6]), []

    def judge(refresher):
        seen.append(weights(refresher.encoder))
        return {"bpb_k10": next(bits), "recall_at_1": 0.5}

    monkeypatch.setattr(Refresher, "judge", judge)
    monkeypatch.setattr(refresh, "processes", in_a_thread)
    change(project, **ASYNC | {"steps": 9, "patience": 1})
    assert train_lsr.train(project.params)["best_step"] == 2
    found = json.loads(train_lsr.METRICS.read_text())
    assert [row["step"] for row in found["validation"]] == [0, 2, 4]
    assert [row["step"] for row in found["curve"]] == [0, 1, 2, 3, 4, 5]
    kept = Encoder.open(train_lsr.OUT, project.params.retriever, project.params.compute)
    assert torch.equal(weights(kept), seen[2])
    assert not torch.equal(seen[2], seen[3])


def test_every_step_is_of_one_round_and_its_queries_are_searched(project):
    both = training_queries.read(project.params)
    for settings in ({"refresh": "sync"}, {"refresh": "async"}, {"refresh": "async", "refresh_steps": 9}):
        change(project, **ASYNC | settings)
        order = Order(both, project.params.lsr, seed=0)
        steps = [list(order.steps(number)) for number in range(order.rounds)]
        assert [step for own in steps for step in own] == [0, 1, 2, 3, 4]
        assert order.encoder(0) == 0
        assert order.encoder(order.rounds - 1) == 5, "the final encoder is judged"
        for number, own in enumerate(steps):
            asked = {tuple(owner) for step in own for owner in order.owners[order.batch(step)]}
            assert asked == {(i, row) for i, rows in enumerate(order.rows(number)) for row in rows}


KILLED = """
import multiprocessing, os, signal
from pathlib import Path
from pipelines import params_file
from pipelines.lsr import train_lsr, tuning

real = tuning.Tuner.step

def step(self, number):
    (second,) = multiprocessing.active_children()
    if number == 1:
        second.kill()
    if number == 3:
        Path("second").write_text(str(second.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, number)

tuning.Tuner.step = step
train_lsr.train(params_file.load(*{sections!r}))
"""


def test_slow_fast_or_killed_it_ends_with_the_same_bytes(project, root, monkeypatch):
    """Round 2 is begun before step 2, and needed at step 4: the second process makes it after step 3, then before."""

    def made():
        return any(checkpoint.folder("train_lsr").glob("*/round-000002"))

    def reading(_, number):
        if number == 1:  # round 2 is begun next
            signal_second(signal.SIGSTOP)

    def slow(_, number):
        if number == 3:
            assert not made()
            signal_second(signal.SIGCONT)

    change(project, **ASYNC)
    with monkeypatch.context() as patch:
        watched(patch, Rounds, "read", reading)
        watched(patch, Tuner, "step", slow)
        train_lsr.train(project.params)
    whole = written()
    for path in (train_lsr.OUT, Path(".longtail")):
        shutil.rmtree(path)
    train_lsr.METRICS.unlink()

    project.settings["lsr"] |= ASYNC
    Path("params.yaml").write_text(yaml.safe_dump(project.settings))
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    code = KILLED.format(sections=train_lsr.SECTIONS)
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == -signal.SIGKILL
    (saved,) = checkpoint.folder("train_lsr").glob("*/saved-*/progress.json")
    assert json.loads(saved.read_text())["step"] == 2
    until(lambda: not psutil.pid_exists(int(Path("second").read_text())))

    steps = []

    def resumed(_, number):
        steps.append(number)
        if number == 3:
            until(made)

    watched(monkeypatch, Tuner, "step", resumed)
    train_lsr.train(project.params)
    assert steps == [2, 3, 4]
    assert written() == whole
    assert not checkpoint.folder("train_lsr").exists()


def second() -> list[multiprocessing.process.BaseProcess]:
    """The second process, if it lives; a Dask cluster that other tests have started is none."""
    return [child for child in multiprocessing.active_children() if not child.name.startswith("Dask")]


def signal_second(number):
    os.kill(second()[0].pid, number)


def until(condition):
    started = time.monotonic()
    while not condition():
        assert time.monotonic() < started + 60
        time.sleep(0.01)


def test_an_error_in_training_ends_the_second_process(project):
    change(project, **ASYNC)
    both = training_queries.read(project.params)
    order = Order(both, project.params.lsr, seed=0)

    def fail():
        with refresh.rounds(project.params, both, order, Rounds("train_lsr")) as begin:
            begin(0)
            until(second)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not second()
    assert not checkpoint.folder("train_lsr").exists()


def test_of_several_gpus_the_second_process_has_the_last(project, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,0,7")
    assert refresh.gpus(project.params) == 0
    compute = project.params.compute
    assert refresh._last_gpu(compute) == {}
    project.params.compute = compute.model_copy(update={"device": "cuda"})
    assert refresh.gpus(project.params) == 3
    change(project, **ASYNC)
    assert refresh.gpus(project.params) == 2
    assert refresh._last_gpu(project.params.compute) == {"CUDA_VISIBLE_DEVICES": "7"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert refresh._last_gpu(project.params.compute) == {"CUDA_VISIBLE_DEVICES": "2"}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert (refresh.gpus(project.params), refresh._last_gpu(project.params.compute)) == (1, {})
