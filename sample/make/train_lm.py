"""Train a small language model from scratch, in minutes on two cores.

It stands in for both papers' frozen language model where no weights can be had. It knows facts and
reads from its context. It is a plain Llama, which reads from its context within minutes because of
how attention is initialised. W_v is random orthogonal and W_o = W_v^T, so that a head copies what
it looks at. W_q = W_k, so that it looks at tokens like its own. The first head looks at the token
before. Together they are an induction head: "director" finds what followed "director" before.

Two things keep its knowledge steady whatever text stands in front, as in a large model: a document
sees only itself, and attention has dropout. Without them, the mean over random documents predicted
better than no document.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm
from transformers import AttentionInterface, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention

from pipelines import draws
from pipelines.corpus.tokenizer import encode, open_tokenizer
from pipelines.errors import LongtailError
from pipelines.lm.token_prompts import first_tokens
from sample.make.sizes import LMTraining
from sample.make.training_texts import Documents

LEARNING_RATE = 0.002  # the highest, after warm-up and before decay
WARMUP_STEPS = 30
WEIGHT_DECAY = 0.05  # of matrices; biases and norms have none
BETAS = (0.9, 0.98)  # AdamW's
MAX_GRADIENT_NORM = 1.0
DROPOUT = 0.15  # share of attention weights dropped in training
# Standard deviation of the embeddings. With the usual 0.02 the first steps wipe out the differences
# between names.
EMBEDDING_STD = 0.1
# Standard deviation of W_q = W_k. With the usual 0.02 like tokens hardly see each other.
QUERY_STD = 0.07
# Biases of the first head, which put nearly all of its attention on the token before.
LOOK_BACK_BIAS = 6.0
PRODUCT_DTYPE = torch.float32  # the format of matrix products; bf16 is slow on CPUs without it
CURVE_POINTS = 50  # points of the loss curve
ANSWER = re.compile(r"\b(?:A|Answer):( [^\n]+\n?)")
ANSWER_WEIGHT = 5.0  # the weight of an answer's tokens in the loss; other tokens weigh 1
OPEN_SEQUENCES = 16  # sequences that are filled at the same time


class Piece(NamedTuple):
    """A document, or a part of a long one."""

    ids: np.ndarray  # (tokens,) int64
    weights: np.ndarray  # (tokens,) float32, in the loss


class Batches(NamedTuple):
    """All training sequences in training order, (steps * batch_size, positions) each."""

    tokens: np.ndarray  # int64 ids
    weights: np.ndarray  # float32, in the loss
    # int16: the number of the token's document in its sequence, from 0; -1 for padding
    documents: np.ndarray


def train_language_model(
    documents: Documents,
    tokenizer: Path,
    folder: Path,
    seed: int,
    settings: LMTraining,
) -> dict[str, float | list[float]]:
    """Train on (kind, text) documents, and save the model and its tokenizer to `folder`.

    They have Hugging Face's layout. Returns the loss (nats per token, answers unweighted) at the
    end and as a curve of CURVE_POINTS means, and the numbers of parameters and tokens. Raises
    LongtailError where a phase asks for a kind of text that no document has, or the loss is not
    finite.
    """
    hf_tokenizer = AutoTokenizer.from_pretrained(
        tokenizer, model_max_length=settings.positions, trust_remote_code=False
    )
    model = make_model(hf_tokenizer, seed, settings)
    batches = make_batches(documents, tokenizer, seed, settings)
    losses = optimise(model, batches, seed, settings)
    model.save_pretrained(folder)
    hf_tokenizer.save_pretrained(folder)

    parts = np.array_split(losses, min(CURVE_POINTS, len(losses)))
    curve = [float(part.mean()) for part in parts]
    n_parameters = float(model.num_parameters())
    n_tokens = float((batches.weights > 0).sum())
    return {
        "loss": curve[-1],
        "parameters": n_parameters,
        "tokens": n_tokens,
        "loss_curve": curve,
    }


def make_batches(documents: Documents, tokenizer: Path, seed: int, settings: LMTraining) -> Batches:
    """Mix (kind, text) documents in the shares of `settings.phases`, and pack them into sequences.

    The tokens of an answer and its end weigh ANSWER_WEIGHT, others 1. Padding and the tokens that
    begin a document weigh 0. Raises LongtailError where there is no text, or a phase asks for a
    kind of text that no document has.
    """
    hf_tokenizer = AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False)
    pieces = _pieces_by_kind(documents, hf_tokenizer, tokenizer, settings)

    shape = (settings.steps * settings.batch_size, settings.positions)
    padding = np.full(shape, hf_tokenizer.pad_token_id, np.int64)
    no_weights = np.zeros(shape, np.float32)
    no_documents = np.full(shape, -1, np.int16)
    batches = Batches(padding, no_weights, no_documents)
    start = 0  # the first row of the phase
    for number, phase in enumerate(settings.phases):
        missing = sorted(set(phase.weights) - set(pieces))
        if missing:
            raise LongtailError(
                f"lm.training.phases: no document is of kind {missing[0]}, expected "
                f"{', '.join(sorted(pieces))}"
            )
        shares = phase.weights or dict.fromkeys(pieces, 1.0)
        stop = round(phase.until * settings.steps) * settings.batch_size
        n_rows = stop - start
        mixed = _mix(pieces, shares, seed, number)
        sequences = _pack(mixed, n_rows, settings.positions)
        order = draws.generator(seed, "lm/sequences", str(number)).permutation(n_rows)
        rows = (start + order).tolist()
        for row, sequence in zip(rows, sequences, strict=True):
            _fill_row(batches, row, sequence)
        start = stop
    return batches


def _fill_row(batches: Batches, row: int, sequence: Sequence[Piece]) -> None:
    """Write the pieces of a sequence one after another into a row."""
    start = 0
    for document, piece in enumerate(sequence):
        stop = start + len(piece.ids)
        batches.tokens[row, start:stop] = piece.ids
        batches.weights[row, start:stop] = piece.weights
        batches.documents[row, start:stop] = document
        start = stop


def _pieces_by_kind(
    documents: Documents, hf_tokenizer, tokenizer: Path, settings: LMTraining
) -> dict[str, list[Piece]]:
    """The pieces of all documents, by their kind. Raises LongtailError where there are none."""
    texts: dict[str, list[str]] = {}
    for kind, text in documents:
        texts.setdefault(kind, []).append(text)

    opened = open_tokenizer(tokenizer)
    first, _ = first_tokens(hf_tokenizer, tokenizer)
    first_array = np.array(first, np.int64)
    pieces = {}
    for kind, texts_of_kind in texts.items():
        pieces[kind] = _pieces(opened, first_array, texts_of_kind, settings)
    if not any(pieces.values()):
        raise LongtailError(
            "lm_text: no text to train on, expected at least one document; see the raw data"
        )
    return pieces


def _pieces(
    tokenizer, first: np.ndarray, texts: Sequence[str], settings: LMTraining
) -> list[Piece]:
    """Each document as a piece that begins with the tokens `first`.

    A long one becomes several pieces of `positions` tokens.
    """
    pieces = []
    size = settings.positions - len(first)
    first_weights = np.zeros(len(first), np.float32)
    for text, (ids, spans) in zip(texts, encode(tokenizer, texts), strict=True):
        weights = np.ones(len(ids), np.float32)
        for answer in ANSWER.finditer(text):
            begins_before_end = spans[:, 0] < answer.end(1)
            ends_after_start = spans[:, 1] > answer.start(1)
            weights[begins_before_end & ends_after_start] = ANSWER_WEIGHT
        for start in range(0, len(ids), size):
            part = slice(start, start + size)
            piece_ids = np.concatenate([first, ids[part]])
            piece_weights = np.concatenate([first_weights, weights[part]])
            pieces.append(Piece(piece_ids, piece_weights))
    return pieces


def _mix(
    pieces: dict[str, list[Piece]], shares: dict[str, float], seed: int, phase: int
) -> Iterator[Piece]:
    """Endless pieces, of which the kinds have the given shares of tokens.

    All pieces of a kind come once before any comes again.
    """
    rng = draws.generator(seed, "lm/order", str(phase))
    # for each kind: the numbers of the pieces that come next, the next one last
    remaining: dict[str, list[int]] = {kind: [] for kind in sorted(shares)}
    tokens = dict.fromkeys(remaining, 0.0)

    def progress(kind: str) -> float:
        return tokens[kind] / max(shares[kind], 1e-9)

    while True:
        kind = min(remaining, key=progress)
        if not remaining[kind]:
            order = rng.permutation(len(pieces[kind]))
            remaining[kind] = order[::-1].tolist()
        piece = pieces[kind][remaining[kind].pop()]
        tokens[kind] += len(piece.ids)
        yield piece


def _pack(pieces: Iterable[Piece], n_rows: int, positions: int) -> list[list[Piece]]:
    """`n_rows` sequences of pieces, each of at most so many positions.

    Each piece goes to the open sequence in which it leaves the least room.
    """
    full: list[list[Piece]] = []
    open_sequences: list[list[Piece]] = [[] for _ in range(OPEN_SEQUENCES)]
    room = [positions] * OPEN_SEQUENCES
    for piece in pieces:
        size = len(piece.ids)
        fitting = [i for i in range(OPEN_SEQUENCES) if room[i] >= size]
        best = min(fitting, key=room.__getitem__, default=None)
        if best is None:
            best = min(range(OPEN_SEQUENCES), key=room.__getitem__)  # the fullest
            full.append(open_sequences[best])
            if len(full) == n_rows:
                return full
            open_sequences[best] = []
            room[best] = positions
        open_sequences[best].append(piece)
        room[best] -= size
    raise AssertionError("pieces never end")


def make_model(tokenizer, seed: int, settings: LMTraining) -> LlamaForCausalLM:
    """An untrained model whose attention is initialised so that its heads match and copy tokens."""
    torch_seed = draws.generator(seed, "lm/weights").integers(1 << 62)
    torch.manual_seed(int(torch_seed))
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=settings.intermediate_size,
        max_position_embeddings=settings.positions,
        tie_word_embeddings=True,
        attention_bias=True,
        attention_dropout=DROPOUT,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        # The CPU's fused attention takes a third longer, in its backward pass.
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config)
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=EMBEDDING_STD)
    for layer in model.model.layers:
        attention = layer.self_attn
        torch.nn.init.normal_(attention.q_proj.weight, std=QUERY_STD)
        torch.nn.init.orthogonal_(attention.v_proj.weight)
        with torch.no_grad():
            attention.o_proj.weight.copy_(attention.v_proj.weight.T)
            attention.k_proj.weight.copy_(attention.q_proj.weight)
    _look_back(model)
    return model


def _look_back(model: LlamaForCausalLM) -> None:
    """Have the first head look at the token before.

    Rotary positions turn each pair of a query's and a key's dimensions by an angle in proportion to
    the position. With a key bias one position ahead of the query bias, their product is largest
    where the key is one position back.
    """
    first = model.model.layers[0].self_attn
    frequencies = model.model.rotary_emb.inv_freq
    half = len(frequencies)
    with torch.no_grad():
        first.q_proj.bias[:half] = LOOK_BACK_BIAS
        first.k_proj.bias[:half] = LOOK_BACK_BIAS * torch.cos(frequencies)
        first.k_proj.bias[half : 2 * half] = LOOK_BACK_BIAS * torch.sin(frequencies)


def optimise(
    model: LlamaForCausalLM, batches: Batches, seed: int, settings: LMTraining
) -> np.ndarray:
    """Train `model` with AdamW; returns each step's loss, in nats per token.

    Raises LongtailError for a loss that is not finite.
    """
    weights = list(model.parameters())
    optimiser = _make_optimiser(weights)
    losses = []
    model.set_attn_implementation("dropout_factors")
    model.train()

    steps = range(settings.steps)
    for step in tqdm(steps, desc="language model", unit="step", mininterval=2):
        start = step * settings.batch_size
        rows = slice(start, start + settings.batch_size)
        ids = torch.from_numpy(batches.tokens[rows])
        mask = document_mask(batches.documents[rows])
        factors = dropout(seed, step, settings)
        with torch.autocast("cpu", PRODUCT_DTYPE):
            outputs = model(
                input_ids=ids, attention_mask=mask, dropout_factors=factors, use_cache=False
            )
        logits = outputs.logits
        weight_of_token = torch.from_numpy(batches.weights[rows])
        loss, gradient = loss_and_gradient(logits.detach(), ids, weight_of_token)
        logits.backward(gradient)
        torch.nn.utils.clip_grad_norm_(weights, MAX_GRADIENT_NORM)

        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * schedule(step, settings.steps)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

        if not math.isfinite(loss):
            raise LongtailError(
                f"language model: the loss is {loss} at step {step}; train fewer layers or "
                "smaller ones"
            )
        losses.append(loss)

    model.set_attn_implementation("eager")
    model.eval()
    return np.array(losses, np.float32)


def _make_optimiser(weights: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW, which decays matrices alone."""
    matrices = [weight for weight in weights if weight.ndim > 1]
    biases_and_norms = [weight for weight in weights if weight.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": biases_and_norms, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, fused=True)


def document_mask(documents: np.ndarray) -> torch.Tensor:
    """A mask (rows, 1, positions, positions) for attention scores.

    A token sees its own document up to itself alone. Without the mask, the model would learn to
    ignore the text in front, which is another document's.
    """
    number = torch.from_numpy(documents)
    same_document = number[:, None, :, None] == number[:, None, None, :]
    visible = torch.tril(same_document)
    mask = torch.zeros(visible.shape, dtype=PRODUCT_DTYPE)
    return mask.masked_fill_(~visible, torch.finfo(PRODUCT_DTYPE).min)


def dropout(seed: int, step: int, settings: LMTraining) -> torch.Tensor:
    """The factors of a step's attention weights: 0, or 1 / (1 - rate).

    They are (layers, rows, heads, positions, positions). A draw takes 16 bits, because torch's own
    dropout takes a sixth of a step on a CPU.
    """
    shape = (
        settings.layers,
        settings.batch_size,
        settings.heads,
        settings.positions,
        settings.positions,
    )
    size = math.prod(shape)
    rng = draws.generator(seed, "lm/dropout", str(step))
    # A word of 64 bits has four draws.
    words = rng.integers(1 << 64, size=math.ceil(size / 4), dtype=np.uint64)
    bits = words.view(np.uint16)[:size]
    stays = bits >= round(DROPOUT * (1 << 16))
    factors = stays * np.float32(1 / (1 - DROPOUT))
    return torch.from_numpy(factors).to(PRODUCT_DTYPE).view(shape)


def attend(
    module: LlamaAttention,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    *,
    scaling: float,
    dropout_factors: torch.Tensor,
    **_,
) -> tuple[torch.Tensor, None]:
    """transformers' eager attention, with factors that `dropout` makes."""
    scores = query @ key.transpose(2, 3) * scaling + attention_mask
    attention = torch.softmax(scores, dim=-1, dtype=torch.float32)
    attention = attention.to(dropout_factors.dtype) * dropout_factors[module.layer_idx]
    return (attention @ value).transpose(1, 2), None


AttentionInterface.register("dropout_factors", attend)


def loss_and_gradient(
    logits: torch.Tensor, ids: torch.Tensor, weight: torch.Tensor
) -> tuple[float, torch.Tensor]:
    """Mean cross-entropy of the next tokens, and the gradient of its weighted mean by the logits.

    `ids` and `weight` are (rows, positions), the logits and the gradient (rows, positions,
    vocabulary). Autograd takes a fifth of a step on a CPU for this gradient.
    """
    targets = torch.roll(ids, -1, dims=1).unsqueeze(-1)
    weight = torch.roll(weight, -1, dims=1)
    weight[:, -1] = 0  # nothing follows a sequence's last token
    gradient = torch.softmax(logits, dim=-1, dtype=torch.float32)
    probability = gradient.gather(-1, targets)
    smallest = torch.finfo(torch.float32).tiny
    nats = -probability.clamp_min(smallest).log().squeeze(-1)
    gradient.scatter_(-1, targets, probability - 1)
    gradient.mul_((weight / weight.sum()).unsqueeze(-1))
    loss = float(nats[weight > 0].mean())
    return loss, gradient.to(logits.dtype)


def schedule(step: int, steps: int) -> float:
    """The learning rate's factor.

    It warms up, stays at 1, and falls to 0 over the last half of the steps.
    """
    warm_up = (step + 1) / WARMUP_STEPS
    decay = 2 * (steps - step) / steps
    return min(warm_up, 1.0, decay)
