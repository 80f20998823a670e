"""Several processes train as one does; one that dies ends the others with one line, and any number can go on."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from lsr_training import METRICS, change, remove_training, steps_from_now, wired
from small_project import TUNED, child_processes

from pipelines.errors import LongtailError
from pipelines.lsr import ranks, train_lsr

TORCHRUN = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"


def losses(steps=6):
    curve = json.loads(METRICS.read_text())["curve"]
    assert [row["step"] for row in curve] == list(range(steps))
    return np.array([[row["kl"], row["entropy_retriever"], row["lm_gain"]] for row in curve])


def same(found, alone):
    """Sums have another order, so that the last digits differ, and each step's weights carry that on."""
    np.testing.assert_allclose(found[0], alone[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found, alone, rtol=0, atol=1e-5)
    assert np.ptp(alone[:, 0]) > 1e-3


def write_params(project, **changes):
    change(project, **changes)
    project.settings["lsr"] |= changes
    Path("params.yaml").write_text(yaml.safe_dump(project.settings))


@pytest.mark.usefixtures("ranks_in_threads")
def test_two_processes_have_the_losses_of_one_and_another_number_goes_on(project, monkeypatch):
    train_lsr.train(project.params)
    alone, model = losses(), (TUNED / "model.safetensors").read_bytes()
    change(project, processes=2)
    remove_training()
    with monkeypatch.context() as patch:
        steps_from_now(patch, lambda number: number < 5 or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_lsr.train(project.params)
    change(project, processes=3)
    steps = steps_from_now(monkeypatch)
    train_lsr.train(project.params)
    assert steps == [4, 5]
    same(losses(), alone)
    assert (TUNED / "model.safetensors").read_bytes() != model, "the sums have another order"


def test_torchruns_processes_have_the_losses_of_one_and_say_that_they_lost_another(project, monkeypatch):
    write_params(project, micro_batch=4, steps=2, refresh_steps=2)
    train_lsr.train(project.params)
    alone, of_torchrun = losses(2), [{"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2"} for rank in range(2)]
    with wired(2, monkeypatch) as wire:
        other = wire.begin(partial(train_lsr._follow_torchrun, "dense", of_torchrun[1]), 1)
        train_lsr.train(project.params, of_torchrun[0])
        assert other.result() is None
    same(losses(2), alone)
    with wired(2, monkeypatch) as wire:
        wire.close()
        with pytest.raises(LongtailError, match="process 1 of the 2 that train lost another, which torchrun names"):
            train_lsr.train(project.params, of_torchrun[0])


@pytest.mark.usefixtures("workplace")
def test_processes_add_up_and_an_error_of_another_one_is_said_in_one_line():
    said = r"^process 2 of the 2 that .* failed \(LongtailError: out of luck\); run again[^\n]*$"
    with pytest.raises(LongtailError, match=said):
        add_with_another()
    assert not child_processes()


def add_with_another():
    with ranks.started(add_and_fail, 2, "cpu") as place:
        numbers = torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])
        place.tell({"factor": 10})
        place.copy(numbers)
        place.sum(numbers)
        assert [tensor.tolist() for tensor in numbers] == [[11, 22], [[33]]]
        place.sum(numbers)


def add_and_fail(place):
    factor, numbers = place.hear()["factor"], (torch.zeros(2), torch.zeros(1, 1))
    place.copy(numbers)
    place.sum([tensor * factor for tensor in numbers])
    raise LongtailError("out of luck")


@pytest.mark.slow
def test_one_that_is_killed_is_named(project, monkeypatch):
    change(project, processes=3)
    steps_from_now(monkeypatch, lambda number: number == 3 and child_processes()[0].kill())
    with pytest.raises(LongtailError) as error:
        train_lsr.train(project.params)
    assert "of the 3 that train (lsr.processes) was killed by SIGKILL (out of memory?); run again" in str(error.value)
    assert "\n" not in str(error.value)
    assert not child_processes()


def test_a_process_that_waits_for_a_dead_one_without_end_is_ended(monkeypatch, capsys):
    """As an exchange of GPUs does."""
    others, waiting = object.__new__(ranks._Others), ranks.Ranks(0, 2)
    others._size, others._ended, waiting.since = 2, threading.Event(), time.monotonic() - 1
    others._processes, others._said = [SimpleNamespace(exitcode=-signal.SIGKILL)], [None]
    monkeypatch.setattr(ranks, "NOTICE", 0.5)
    ended = []
    monkeypatch.setattr(os, "_exit", lambda code: (ended.append(code), others._ended.set()))
    others.watch(waiting)
    assert ended == [1]
    assert "of the 2 that train (lsr.processes) was killed by SIGKILL" in capsys.readouterr().err


@pytest.mark.slow
def test_torchrun_trains_the_same(project, root):
    write_params(project)
    train_lsr.train(project.params)
    alone = losses()
    METRICS.unlink()
    command = [sys.executable, *TORCHRUN, "2", "-m", "pipelines.lsr.train_lsr", "dense"]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("done, see") == 1
    same(losses(), alone)
