"""The token sequences that the small language model is trained on: kinds of text mixed in shares, documents packed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from transformers import AutoTokenizer

from pipelines import draws
from pipelines.corpus.tokenizer import encode, open_tokenizer
from pipelines.errors import LongtailError
from pipelines.lm.token_prompts import first_tokens
from pipelines.params import params

ANSWER = re.compile(r"\b(?:A|Answer):( [^\n]+\n?)")
ANSWER_WEIGHT = 5.0  # of an answer's tokens in the loss; other tokens weigh 1
OPEN_SEQUENCES = 16  # sequences that are filled at the same time

Piece = tuple[np.ndarray, np.ndarray]  # token ids and loss weights of a document, or of a part of it


class Batches(NamedTuple):
    """All training sequences in training order, (steps * batch_size, positions) each."""

    tokens: np.ndarray  # int64 ids
    weights: np.ndarray  # float32, in the loss
    documents: np.ndarray  # int16: number of the token's document in its sequence, from 0; -1 for padding


def make_batches(
    documents: Iterable[tuple[str, str]], tokenizer: Path, seed: int, settings: params.LMTraining
) -> Batches:
    """Mix (kind, text) documents in the shares of `settings.phases`, and pack them into sequences.

    The tokens of an answer and its end weigh ANSWER_WEIGHT, other tokens 1. Padding weighs 0, and so do the tokens
    that begin a document, which nothing before them predicts. Raises LongtailError where there is no text, or a phase
    asks for a kind of text that no document has.
    """
    special = AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False)
    opened = open_tokenizer(tokenizer)
    first = np.array(first_tokens(special, tokenizer)[0], np.int64)
    texts: dict[str, list[str]] = {}
    for kind, text in documents:
        texts.setdefault(kind, []).append(text)
    pieces = {kind: _pieces(opened, first, texts_of_kind, settings) for kind, texts_of_kind in texts.items()}
    if not any(pieces.values()):
        raise LongtailError("lm_text: no text to train on, expected at least one document; see the raw data")
    shape = settings.steps * settings.batch_size, settings.positions
    batches = Batches(
        np.full(shape, special.pad_token_id, np.int64), np.zeros(shape, np.float32), np.full(shape, -1, np.int16)
    )
    done = 0
    for number, phase in enumerate(settings.phases):
        if missing := sorted(set(phase.weights) - set(pieces)):
            raise LongtailError(
                f"lm.training.phases: no document is of kind {missing[0]}, expected {', '.join(sorted(pieces))}"
            )
        until = round(phase.until * settings.steps) * settings.batch_size
        shares = phase.weights or {kind: 1.0 for kind in pieces}
        mixed = _mix(pieces, shares, draws.generator(seed, "lm/order", str(number)))
        packed = _pack(mixed, until - done, settings.positions)
        order = draws.generator(seed, "lm/sequences", str(number)).permutation(until - done)
        for row, sequence in zip((done + order).tolist(), packed, strict=True):
            end = 0
            for document, (ids, weights) in enumerate(sequence):
                span = slice(end, end + len(ids))
                batches.tokens[row, span], batches.weights[row, span] = ids, weights
                batches.documents[row, span] = document
                end += len(ids)
        done = until
    return batches


def _pieces(tokenizer, first: np.ndarray, texts: Sequence[str], settings: params.LMTraining) -> list[Piece]:
    """Each document as a piece that begins with `first`; a long one as several pieces of `positions` tokens."""
    pieces = []
    size, unweighted = settings.positions - len(first), np.zeros(len(first), np.float32)
    for text, (ids, spans) in zip(texts, encode(tokenizer, texts), strict=True):
        weights = np.ones(len(ids), np.float32)
        for answer in ANSWER.finditer(text):
            weights[(spans[:, 0] < answer.end(1)) & (spans[:, 1] > answer.start(1))] = ANSWER_WEIGHT
        for i in range(0, len(ids), size):
            part = slice(i, i + size)
            pieces.append((np.concatenate([first, ids[part]]), np.concatenate([unweighted, weights[part]])))
    return pieces


def _mix(pieces: dict[str, list[Piece]], shares: dict[str, float], rng: np.random.Generator) -> Iterable[Piece]:
    """Endless pieces. Kinds have the given shares of tokens; all pieces of a kind come once before any comes again."""
    kinds = sorted(shares)
    orders = {kind: iter(()) for kind in kinds}
    tokens = dict.fromkeys(kinds, 0.0)
    while True:
        kind = min(kinds, key=lambda kind: tokens[kind] / max(shares[kind], 1e-9))
        index = next(orders[kind], None)
        if index is None:
            orders[kind] = iter(rng.permutation(len(pieces[kind])).tolist())
            index = next(orders[kind])
        tokens[kind] += len(pieces[kind][index][0])
        yield pieces[kind][index]


def _pack(pieces: Iterable[Piece], rows: int, positions: int) -> list[list[Piece]]:
    """`rows` sequences of pieces. Each piece goes to the open sequence in which it leaves the least room."""
    full: list[list[Piece]] = []
    open_: list[list[Piece]] = [[] for _ in range(OPEN_SEQUENCES)]
    room = [positions] * OPEN_SEQUENCES
    for piece in pieces:
        size = len(piece[0])
        fits = [i for i in range(OPEN_SEQUENCES) if room[i] >= size]
        if not fits:
            fullest = min(range(OPEN_SEQUENCES), key=room.__getitem__)
            full.append(open_[fullest])
            if len(full) == rows:
                return full
            open_[fullest], room[fullest] = [], positions
            fits = [fullest]
        best = min(fits, key=room.__getitem__)
        open_[best].append(piece)
        room[best] -= size
    raise AssertionError("pieces never end")
