"""LSR's refresh (REPLUG §4.4): the corpora embedded anew and indexed, the encoder judged, the next candidates scored.

All of it follows from an encoder that holds still, so it can be done beside training: by a second process, one round
ahead (`lsr.refresh`). How fast that process is changes nothing, as a round waits for its own candidates.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from pipelines import params, shards
from pipelines.lm.open_lm import main_lm, open_lm
from pipelines.lsr import cost, objective
from pipelines.lsr.rounds import Candidates, Rounds
from pipelines.lsr.training_queries import Order, Side, read
from pipelines.pool import processes
from pipelines.replug import ensemble
from pipelines.retrieval import dense, documents
from pipelines.retrieval.embeddings import embed_corpus
from pipelines.retrieval.embeddings import forget as forget_shards
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.index_meta import fingerprint
from pipelines.retrieval.index_tuning import HELD_OUT, build_and_tune
from pipelines.scoring import logprob_table, score_cache

RETRIEVER = Path("data/models/retriever")
INDEXES = Path("data/index")
SHOWN = 10  # documents of the validation's ensembles and recall

Make = Callable[[], dict[str, float]]  # waits for a round; what the language model was asked until then


@contextmanager
def rounds(
    given: SimpleNamespace, sides: Sequence[Side], order: Order, kept: Rounds
) -> Iterator[Callable[[int], Make]]:
    """Yield what begins a round: it returns a function that waits until the round is there, in `kept`.

    Synchronously it is that function that makes it. Else a second process, which alone has the language model in
    memory, has begun to; one round at a time, and it does not outlive an error here. Of several GPUs it has the last.
    """
    if given.lsr.refresh == "sync":
        here = Refresher(given, sides, order, kept)
        yield lambda number: partial(here.round, number)
        return
    beside = given.compute.model_copy(update={"executor": "local", "workers": 2})  # with 1 there would be no process
    with processes(beside) as pool:
        begun: list[Future] = []

        def begin(number: int) -> Make:
            begun.append(pool.submit(_elsewhere, given, kept, number, _last_gpu(given.compute)))
            return begun[-1].result

        try:
            yield begin
        except BaseException:
            while not all(one.done() for one in begun):  # the pool begins again what died, but not for ever
                for process in multiprocessing.active_children():
                    process.kill()
                time.sleep(0.05)
            raise


_opened: list[Refresher] = []  # in the second process


def _elsewhere(given: SimpleNamespace, kept: Rounds, number: int, environment: dict[str, str]) -> dict[str, float]:
    if not _opened:
        os.environ |= environment
        both = read(given)
        _opened.append(Refresher(given, both, Order(both, given.lsr, given.seed), kept))
    return _opened[0].round(number)


def gpus(given: SimpleNamespace) -> int:
    """How many GPUs train: all, but for the last where the second process has it."""
    count = torch.cuda.device_count() if given.compute.device == "cuda" else 0
    return count - 1 if count > 1 and given.lsr.refresh == "async" else count


class Refresher:
    """What an encoder's documents are now: their indexes, and what the language model says of those found in them."""

    def __init__(self, given: SimpleNamespace, sides: Sequence[Side], order: Order, kept: Rounds) -> None:
        """Raises LongtailError where the models can't be opened, or an index is missing or belongs to others."""
        reproducible()
        self._given, self.sides, self.order, self._kept = given, sides, order, kept
        folder, self._settings = main_lm(given)
        self.lm = open_lm(folder, self._settings, given.compute, scoring=True)
        self.encoder = Encoder.open(RETRIEVER, given.retriever, given.compute)
        key = key_of_scores(given)
        self.scores = [score_cache.Scores(one.stage, self.lm, key, one.queries, one.docs, one.train) for one in sides]
        self.indexes = [self._untuned(side) for side in sides]
        self.k = min(given.lsr.top_k, *(index.count for index in self.indexes))

    def round(self, number: int) -> dict[str, float]:
        """Make a round, if it is not there: validation of its encoder, its candidates and what they are worth.

        Returns what the language model was asked since this was opened. Raises LongtailError, before the first round,
        where a server's answers may cost more than `lsr.max_cost`.
        """
        if not self._kept.has(number):
            step = self.order.encoder(number)
            if step:
                self._open(step)
            elif number == 0 and self._settings.source == "http":
                cost.check(self, self._settings.http, self._given.lsr)
            validation = {"step": step, **self.judge()}
            self._kept.write(number, validation, self.ask(self.search(number)))
        asked = {f"scored_{side.name}": own.made for side, own in zip(self.sides, self.scores, strict=True)}
        return asked | self.lm.usage

    def judge(self) -> dict[str, float]:
        """On the queries not learnt from: bits per byte of the ensemble, and recall of the right page."""
        figures = {}
        for i, (side, kept) in enumerate(zip(self.sides, self.scores, strict=True)):
            held = side.judging
            if not len(held):
                continue
            shown, similarities = self.shown(i)
            if side.pages is None:
                kept.score(logprob_table.unique_pairs(held, shown))
                log_probs, n_bytes = logprob_table.gather(kept.judged, held, shown)
                nats = -ensemble.token_mixture(log_probs, ensemble.log_weights(similarities, 1.0)).sum()
                figures[f"bpb_k{SHOWN}"] = float(ensemble.bits_per_byte(nats, n_bytes.sum()))
            else:
                right = documents.read(side.docs, shown).titles == side.pages[:, None]
                figures["recall_at_1"] = float(right[:, 0].mean())
                figures[f"recall_at_{SHOWN}"] = float(right.any(1).mean())
        return figures

    def search(self, number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """A round's candidates of each side: rows (n,) of its queries, positions (n, k)."""
        return [(rows, self.found(i, rows, self.k)[0]) for i, rows in enumerate(self.order.rows(number))]

    def ask(self, candidates: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[Candidates]:
        """Have the language model score what it did not score before: what a round's candidates are worth."""
        valued = []
        for kept, (rows, found) in zip(self.scores, candidates, strict=True):
            nothing = np.full((len(rows), 1), logprob_table.NONE)
            kept.score(logprob_table.unique_pairs(rows, np.concatenate([nothing, found], axis=1)))
            sums, tokens = kept.look_up(rows, found)
            targets = objective.likelihood(sums, tokens, self._given.lsr.likelihood)
            alone = objective.likelihood(*kept.look_up(rows, nothing), "mean_logprob")
            gains = objective.likelihood(sums, tokens, "mean_logprob") - alone
            valued.append(Candidates(rows, found, targets, gains))
        return valued

    def shown(self, side: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and similarities (n, SHOWN) for a side's queries that judge."""
        return self.found(side, self.sides[side].judging, SHOWN)

    def found(self, side: int, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and similarities (n, k) for a side's queries."""
        return self.indexes[side].search(self.encoder.embed_queries(list(self.sides[side].queries.texts[rows])), k)

    def _open(self, step: int) -> None:
        """Take the encoder as it was after so many steps, and its documents; embed and index them if nobody did."""
        given, folder, model = self._given, self._kept.index(step), self._kept.model(step)
        self.indexes = []  # a file that is mapped would stay on the disk
        self._kept.forget_indexes(but=step)
        self.encoder = Encoder.open(model, given.retriever, given.compute, self.encoder.numerics)
        if not folder.exists():
            with shards.atomic(folder) as whole:
                looks = [self._index(side, model, whole / side.name) for side in self.sides]
                (whole / "looks.json").write_text(json.dumps(looks), encoding="utf-8")
            for side in self.sides:
                forget_shards(f"{side.stage}-embeddings")
        looks = json.loads((folder / "looks.json").read_text(encoding="utf-8"))
        self.indexes = [
            dense.Index(folder / side.name, *look, given.compute.threads)
            for side, look in zip(self.sides, looks, strict=True)
        ]

    def _index(self, side: Side, model: Path, folder: Path) -> tuple[int, int]:
        """Embed and index a corpus; how far the index looks: probe and refine."""
        given = self._given
        embed_corpus(side.docs, model, folder / "embeddings", given, f"{side.stage}-embeddings")
        queries = partial(self.encoder.embed_queries, list(side.queries.texts[-HELD_OUT:]))
        made, _ = build_and_tune(folder, queries, given, side.stage)
        return made.probe, made.refine

    def _untuned(self, side: Side) -> dense.Index:
        folder = INDEXES / "dense" / side.name
        return dense.Dense.load(folder, side.docs, RETRIEVER, self.encoder, self._given.compute).index


def reproducible() -> None:
    """Have torch sum in one order in this process."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS's sums are in no fixed order
    torch.use_deterministic_algorithms(True)


def key_of_scores(given: SimpleNamespace) -> str:
    """Of all that the main language model's scores depend on, and who else may find them."""
    key = score_cache.key_of_lm(*main_lm(given), given.compute)
    if given.lsr.keep_scores:
        return key
    # only this very training, once killed, may find them
    return shards.key_of(key, given.seed, given.lsr, given.retriever, given.index, fingerprint(RETRIEVER))


def forget(given: SimpleNamespace, sides: Sequence[Side]) -> None:
    """Remove what is kept for a killed run, once the training's result is written."""
    for side in sides:
        forget_shards(side.stage)
        if not given.lsr.keep_scores:
            score_cache.forget(given.lms[0], key_of_scores(given), side.docs)


def _last_gpu(compute: params.Compute) -> dict[str, str]:
    """The environment in which a process that has not begun to use GPUs sees the last alone."""
    if compute.device == "cpu" or torch.cuda.device_count() < 2:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    return {"CUDA_VISIBLE_DEVICES": visible.split(",")[-1]}
