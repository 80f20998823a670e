"""What a stage says while it works: bars that move inside a piece of work too."""

import re
import threading

import local_models
import numpy as np
import pytest
import tiny_models
from tqdm import tqdm

from pipelines import progress
from pipelines.replug import ensemble
from pipelines.retrieval import token_limits
from pipelines.retrieval.encoder import Encoder
from pipelines.storage.work_store import WorkStore


@pytest.fixture
def shown(monkeypatch) -> list[str]:
    """Where each bar stood, as "name: 3/10", each time that it could be drawn."""
    said, update = [], tqdm.update

    def updated(self, n=1):
        update(self, n)
        said.append(f"{self.desc}: {self.n}/{self.total}")

    monkeypatch.setattr(tqdm, "update", updated)
    return said


def test_a_piece_moves_its_bar_as_far_as_it_says_and_ends_whole(shown):
    with progress.bar("a", 10, "row") as bar:
        with progress.piece(bar, 6):
            progress.advance(1, 2)
            with progress.whole("inner", 4, "row"):
                progress.advance(3, 4)
            progress.advance(1, 2)
            progress.advance(5, 5)  # a second work of the same piece
        with progress.piece(bar, 4):
            pass
    expected = ["a: 3/10", "inner: 3/4", "inner: 4/4", "a: 6/10", "a: 6/10", "a: 6/10", "a: 10/10"]
    assert shown == expected


def test_where_no_bar_waits_nothing_is_shown(shown):
    """A piece that fails is not done."""
    progress.advance(1, 2)
    with progress.whole("a", 2, "row"):
        other = threading.Thread(target=progress.advance, args=(1, 2))
        other.start()
        other.join()
        progress.advance(0, 0)
    assert shown == ["a: 2/2"]

    @progress.whole("b", 2, "row")
    def fail():
        progress.advance(1, 2)
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        fail()
    progress.advance(1, 2)
    assert shown == ["a: 2/2", "b: 1/2"]


def test_batches_of_a_model_move_the_bar_of_a_shard(workplace, tmp_path, shown, monkeypatch):
    monkeypatch.setattr(token_limits, "CPU_TOKENS", 64)
    lm = local_models.open_model(tiny_models.language_model(tmp_path / "model"), batch_tokens=120)
    prompts, continuations = local_models.pairs(40)
    weights = ensemble.log_weights(np.zeros((20, 2)), 1.0)
    encoder = Encoder.open(
        tiny_models.encoder(tmp_path / "encoder"), tiny_models.retriever(), tiny_models.compute()
    )
    for name, ask in (
        ("score", lambda: lm.score(prompts, continuations)),
        ("next token", lambda: lm.next_token(prompts)),
        ("answers", lambda: lm.generate(prompts, 3)),
        ("ensemble", lambda: lm.generate_mixture(prompts, weights, 3)),
        ("passages", lambda: encoder.embed(tiny_models.words(40, 1, at_most=12))),
    ):
        shown.clear()
        with WorkStore().unfinished(name, "key", [40, 40], "text") as parts:
            for _ in parts.missing:
                with progress.piece(parts.bar, 40):
                    ask()
        counts = [int(re.fullmatch(rf"{name}: (\d+)/80", line)[1]) for line in shown]
        assert counts == sorted(counts)
        assert {40, 80} < {*counts}
        assert len({count for count in counts if count < 40}) > 2
