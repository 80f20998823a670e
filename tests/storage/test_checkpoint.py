"""A killed training goes on to the same bytes, from a checkpoint of its very own."""

import os
import signal
import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from pipelines.errors import LongtailError
from pipelines.storage import checkpoint
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import threads

STAGE = "training"
STEPS = 8


def train(seed: int = 0) -> bytes:
    """The weights and losses after a training whose steps draw random numbers."""
    threads.use(1)  # a checkpoint is of so many
    torch.manual_seed(seed)
    model = torch.nn.Linear(4, 4)
    weights = list(model.parameters())
    optimizer = torch.optim.Adam(weights, lr=0.1)
    checkpoints = checkpoint.Checkpoints(STAGE, content_key(seed, "code"))
    losses = checkpoints.load(weights, optimizer).get("losses", [])
    for step in range(len(losses), STEPS):
        inputs = torch.rand(16, 4)
        loss = (model(inputs) - inputs.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if checkpoints.due():
            checkpoints.save({"step": step + 1, "losses": losses}, weights, optimizer)
    WorkStore().forget(STAGE)
    return repr((losses, [weight.tolist() for weight in weights])).encode()


def kill_each() -> None:
    """In a process of its own: train, saving each step, until a save is half written; go on, as far
    as another."""
    checkpoint.SECONDS_BETWEEN = 0.0
    for saves, written in ((2, 0.5), (3, 0.0)):
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == signal.SIGKILL
        else:
            checkpoint.save_file = partial(
                save_or_die, checkpoint.save_file, count(), saves, written
            )
            train()
            os._exit(1)


def save_or_die(
    save_file, calls, saves: int, written: float, tensors, path: Path, metadata: dict
) -> None:
    """Die in the save after so many, with that share of it written."""
    save_file(tensors, path, metadata)
    if next(calls) == saves:
        os.truncate(path, int(path.stat().st_size * written))
        os.kill(os.getpid(), signal.SIGKILL)


def stage_folder(stage: str) -> Path:
    return Path(".longtail/work", stage)


def test_killed_again_and_again_it_ends_with_the_same_bytes(workplace, root, monkeypatch, capsys):
    whole = {seed: train(seed) for seed in (0, 1)}
    assert whole[0] != whole[1]
    code = "import test_checkpoint; test_checkpoint.kill_each()"
    path = os.pathsep.join(map(str, (root, root / "tests", root / "tests/storage")))
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, check=True)
    assert len(list(Path(".longtail/tmp").glob("*/*"))) == 2  # what the killed ones half wrote
    capsys.readouterr()
    (saved,) = stage_folder(STAGE).glob("*/*")
    assert saved.is_file()
    with monkeypatch.context() as patch:
        patch.setattr(WorkStore, "forget", lambda store, work: None)
        assert train(1) == whole[1]
        assert "goes on" not in capsys.readouterr().out
    assert train() == whole[0]
    assert capsys.readouterr().out == f"{STAGE}: goes on from step 5\n"
    assert not stage_folder(STAGE).exists()


WEIGHTS = [torch.nn.Parameter(torch.zeros(2))]
ADAM = torch.optim.Adam(WEIGHTS)


def test_a_checkpoint_of_other_params_inputs_or_code_is_none(workplace):
    data, code = np.arange(6), Path("code.py")
    code.write_text("a = 1\n")

    def opened(rate: float = 0.1, array: np.ndarray = data) -> checkpoint.Checkpoints:
        key = content_key((rate, checkpoint.digest([array])), "", code)
        return checkpoint.Checkpoints("training", key)

    opened().save({"step": 3}, WEIGHTS, ADAM)
    drawn = torch.rand(3)
    assert opened().load(WEIGHTS, ADAM) == {"step": 3}
    assert torch.equal(torch.rand(3), drawn)
    assert opened(0.2).load(WEIGHTS, ADAM) == opened(array=data[::-1]).load(WEIGHTS, ADAM) == {}
    code.write_text("a = 2\n")
    assert opened().load(WEIGHTS, ADAM) == {}
    (state,) = stage_folder("training").glob("*/*")
    state.write_bytes(state.read_bytes()[:-8])
    code.write_text("a = 1\n")
    with pytest.raises(
        LongtailError, match=rf"{state}: damaged \([^\n]*\); remove it, to go on without it$"
    ):
        opened().load(WEIGHTS, ADAM)
