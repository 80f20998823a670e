"""A killed training of a language model or an encoder goes on to the same bytes, from a checkpoint
of its very own."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from itertools import count, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import torch

from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.storage import checkpoint
from pipelines.storage.work_store import WorkStore, content_key

TEXTS = [f"The town number {i} lies by the {('sea', 'lake', 'river')[i % 3]}." for i in range(60)]
LM = tiny_models.trained_lm(layers=2, heads=2, steps=8)
SHAPE = {"hidden_size": 16, "layers": 1, "steps": 8, "batch_size": 16}
TRAINING = params.RetrieverTraining(**SHAPE)
RETRIEVER = tiny_models.retriever(source="train", training=TRAINING)


def train(stage: str, seed: int = 0) -> dict[str, bytes]:
    """The files that a stage's training makes, and its metrics."""
    from pipelines.corpus import training_files
    from pipelines.lm import base_lm
    from pipelines.retrieval import base_retriever

    if stage == "base_lm@lm":
        metrics = base_lm.train_on_text(Path("c4"), Path("words"), Path("made/lm"), seed, LM)
    else:
        files, out = training_files(Path("corpus"), ["pile", "wikipedia"]), Path("made/dense")
        metrics = base_retriever.train_on_corpora(files, Path("words"), out, seed, RETRIEVER, 1)
    made = {path.name: path.read_bytes() for path in Path("made").rglob("*.*")}
    shutil.rmtree("made")
    return made | {"metrics": repr(metrics).encode()}


def stage_folder(stage: str) -> Path:
    return Path(".longtail/work", stage)


STAGES = ("base_lm@lm", "base_retriever@dense")


def kill_each() -> None:
    """In a process of its own: train, saving each step, until a save is half written; go on, as far
    as another."""
    from pipelines.lm import train_lm  # noqa: F401 - before the fork, not in each child
    from pipelines.retrieval import base_retriever  # noqa: F401

    checkpoint.SECONDS_BETWEEN = 0.0
    for stage, (saves, written) in product(STAGES, ((2, 0.5), (3, 0.0))):
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == signal.SIGKILL
        else:
            checkpoint.save_file = partial(
                save_or_die, checkpoint.save_file, count(), saves, written
            )
            train(stage)
            os._exit(1)


def save_or_die(save_file, calls, saves: int, written: float, tensors, path: Path) -> None:
    """Die in the save after so many, with that share of it written."""
    save_file(tensors, path)
    if next(calls) == saves:
        os.truncate(path, int(path.stat().st_size * written))
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def inputs(workplace) -> None:
    """What both stages read, in the working folder."""
    from pipelines.corpus import tokenizer

    Path("c4").mkdir()
    with gzip.open("c4/c4-train.00000-of-00001.json.gz", "wt") as out:
        out.writelines(
            json.dumps({"text": text, "url": "https://a.example"}) + "\n" for text in TEXTS
        )
    for name in ("pile", "wikipedia"):
        Path("corpus", name).mkdir(parents=True)
        pq.write_table(pa.table({"text": TEXTS}), f"corpus/{name}/docs.parquet")
    tokenizer.train_tokenizer(TEXTS, 300, Path("words"))


def test_killed_again_and_again_it_ends_with_the_same_bytes(inputs, root, monkeypatch, capsys):
    whole = {(stage, seed): train(stage, seed) for stage in STAGES for seed in (0, 1)}
    code, path = (
        "import test_checkpoint; test_checkpoint.kill_each()",
        os.pathsep.join(map(str, (root, root / "tests", root / "tests/storage"))),
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, check=True)
    assert not Path("made").exists()
    assert (
        len(list(Path(".longtail/tmp").rglob("state.safetensors"))) == 4
    )  # what the killed ones half wrote
    capsys.readouterr()
    for stage in STAGES:
        (saved,) = stage_folder(stage).glob("*/*")
        assert {path.name for path in saved.iterdir()} == {"state.safetensors", "progress.json"}
        with monkeypatch.context() as patch:
            patch.setattr(WorkStore, "forget", lambda store, work: None)
            assert train(stage, 1) == whole[stage, 1]
            assert "goes on" not in capsys.readouterr().out
        assert train(stage) == whole[stage, 0]
        assert capsys.readouterr().out == f"{stage}: goes on from step 5\n"
        assert not stage_folder(stage).exists()


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
    (state,) = stage_folder("training").glob("*/*/state.safetensors")
    state.write_bytes(state.read_bytes()[:-8])
    code.write_text("a = 1\n")
    with pytest.raises(
        LongtailError, match=r"saved-00000000: damaged \([^\n]*\); remove it, to go on without it$"
    ):
        opened().load(WEIGHTS, ADAM)
