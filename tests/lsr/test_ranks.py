"""Several processes train as one does; one that dies ends the others with one line, and any number can go on."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import yaml
from lsr_training import METRICS, change, remove_training, steps_from_now, wired
from small_project import TUNED, child_processes
from waiting import PATIENCE, until

from pipelines import checkpoint
from pipelines.errors import LongtailError
from pipelines.lsr import ranks, train_lsr

TORCHRUN = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"

KILLED = """
import multiprocessing, os, signal
from pathlib import Path
from pipelines import methods, params_file
from pipelines.lsr import rounds, train_lsr

real = rounds.Trainer.step

def step(self, number):
    if number == 4:
        (other,) = multiprocessing.active_children()
        Path("other").write_text(str(other.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, number)

rounds.Trainer.step = step
if __name__ == "__main__":
    train_lsr.train(methods.with_retriever(params_file.load(*train_lsr.SECTIONS), "dense"))
"""

STUCK = """
import multiprocessing, time
import torch
from pipelines.lsr import ranks

if __name__ == "__main__":
    ranks.NOTICE = 1.0
    with ranks.started(ranks.Ranks.hear, 3, "cpu") as place:
        ranks.distributed.reduce = lambda *_: time.sleep(600)  # as an exchange of GPUs does
        multiprocessing.active_children()[0].kill()
        place.sum([torch.zeros(3)])
"""


def losses(steps=6):
    curve = json.loads(METRICS.read_text())["curve"]
    assert [row["step"] for row in curve] == list(range(steps))
    return np.array([[row["kl"], row["entropy_retriever"], row["lm_gain"]] for row in curve])


def same(found, alone):
    """Sums have another order, so that the last digits differ, and each step's weights carry that on."""
    np.testing.assert_allclose(found[0], alone[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found, alone, rtol=0, atol=1e-5)
    assert np.ptp(alone[:, 0]) > 1e-3


def environment(root):
    return os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}


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
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        steps_from_now(patch, lambda number: number < 5 or 1 / 0)
        train_lsr.train(project.params)
    change(project, processes=3)
    steps = steps_from_now(monkeypatch)
    train_lsr.train(project.params)
    assert steps == [4, 5]
    same(losses(), alone)
    assert (TUNED / "model.safetensors").read_bytes() != model, "the sums have another order"


def test_torchruns_processes_have_the_losses_of_one(project, monkeypatch):
    write_params(project, micro_batch=4)
    train_lsr.train(project.params)
    alone, of_torchrun = losses(), [{"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2"} for rank in range(2)]
    with wired(2, monkeypatch) as wire:
        other = wire.begin(partial(train_lsr._follow_torchrun, "dense", of_torchrun[1]), 1)
        train_lsr.train(project.params, of_torchrun[0])
        assert other.result() is None
    same(losses(), alone)


@pytest.mark.usefixtures("workplace")
def test_processes_add_up_and_an_error_of_another_one_is_said_in_one_line():
    said = r"^process 2 of the 2 that .* failed \(LongtailError: out of luck\); run again[^\n]*$"
    with pytest.raises(LongtailError, match=said), ranks.started(add_and_fail, 2, "cpu") as place:
        numbers = torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])
        place.tell({"factor": 10})
        place.copy(numbers)
        place.sum(numbers)
        assert [tensor.tolist() for tensor in numbers] == [[11, 22], [[33]]]
        place.sum(numbers)
    assert not child_processes()


def add_and_fail(place):
    factor, numbers = place.hear()["factor"], (torch.zeros(2), torch.zeros(1, 1))
    place.copy(numbers)
    place.sum([tensor * factor for tensor in numbers])
    raise LongtailError("out of luck")


@pytest.mark.slow
def test_one_that_is_killed_is_named_and_another_number_goes_on(project, root, monkeypatch):
    train_lsr.train(project.params)
    alone = losses()
    remove_training()
    change(project, processes=3)
    with monkeypatch.context() as patch:
        steps_from_now(patch, lambda number: number == 3 and child_processes()[0].kill())
        with pytest.raises(LongtailError) as error:
            train_lsr.train(project.params)
    assert "of the 3 that train (lsr.processes) was killed by SIGKILL (out of memory?); run again" in str(error.value)
    assert "\n" not in str(error.value)
    assert not child_processes()

    write_params(project, processes=2)
    Path("killed.py").write_text(KILLED)
    ended = subprocess.run([sys.executable, "killed.py"], env=environment(root))
    assert ended.returncode == -signal.SIGKILL
    other = int(Path("other").read_text())
    assert until(lambda: not psutil.pid_exists(other)), "it outlives the first process"
    (saved,) = checkpoint.folder("train_lsr@dense").glob("*/saved-*")
    assert json.loads((saved / "progress.json").read_text())["step"] == 4

    steps = steps_from_now(monkeypatch)
    train_lsr.train(project.params)
    assert steps == [4, 5]
    same(losses(), alone)


@pytest.mark.slow
def test_a_process_that_waits_for_a_dead_one_without_end_is_ended(root, workplace):
    Path("stuck.py").write_text(STUCK)
    command = [sys.executable, "stuck.py"]
    ended = subprocess.run(command, env=environment(root), capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1
    assert "of the 3 that train (lsr.processes) was killed by SIGKILL" in ended.stderr.splitlines()[-1]


@pytest.mark.slow
def test_torchrun_trains_the_same_and_goes_on_after_one_of_its_processes_was_killed(project, root):
    steps = 24
    write_params(project, steps=steps, refresh_steps=12)
    train_lsr.train(project.params)
    alone = losses(steps)
    METRICS.unlink()
    command = [sys.executable, *TORCHRUN, "2", "-m", "pipelines.lsr.train_lsr", "dense"]
    with Path("said").open("w") as said:
        running = subprocess.Popen(command, env=environment(root), stderr=said, stdout=said)
        assert until(lambda: list(checkpoint.folder("train_lsr@dense").glob("*/saved-*")))
        (second,) = [child for child in psutil.Process(running.pid).children() if child.environ().get("RANK") == "1"]
        second.kill()
        assert running.wait(PATIENCE) == 1
    # torchrun ends the other one, often before that one has said what it lost
    assert f"Signal 9 (SIGKILL) received by PID {second.pid}" in Path("said").read_text()
    ended = subprocess.run(command, env=environment(root), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "goes on from step" in ended.stdout
    assert ended.stdout.count("done, see") == 1
    same(losses(steps), alone)
