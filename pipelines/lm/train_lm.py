"""Train a small language model from scratch, in minutes on two cores. It knows facts and reads from its context.

It stands in for both papers' frozen language model where no weights can be had. It is a plain Llama. It reads from its
context within minutes because of how attention is initialised: W_v is random orthogonal and W_o = W_v^T, so that a head
copies what it looks at; W_q = W_k, so that it looks at tokens like its own; and the first head looks at the token
before. Together they are an induction head: "director" finds what followed "director" before.

Two things keep its knowledge steady whatever text stands in front, as in a large model: a document sees only itself,
and attention has dropout. Without them, the mean over random documents predicted better than no document.
"""

import math
import re
from collections.abc import Iterable, Sequence
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
from pipelines.params import params
from pipelines.storage.checkpoint import Checkpoints, digest

LEARNING_RATE = 0.002  # the highest, after warm-up and before decay
WARMUP = 30  # steps
DROPOUT = 0.15  # share of attention weights dropped in training
EMBEDDINGS = 0.1  # standard deviation; with the usual 0.02 the first steps wipe out the differences between names
QUERIES = (
    0.07  # standard deviation of W_q = W_k; with the usual 0.02 like tokens hardly see each other
)
LOOK_BACK = (
    6.0  # biases of the first head: they put nearly all of its attention on the token before
)
NUMBERS = torch.bfloat16  # the format of matrix products
CURVE = 50  # points of the loss curve
ANSWER = re.compile(r"\b(?:A|Answer):( [^\n]+\n?)")
ANSWER_WEIGHT = 5.0  # the weight of an answer's tokens in the loss; other tokens weigh 1
OPEN_SEQUENCES = 16  # sequences that are filled at the same time

Documents = Iterable[tuple[str, str]]  # (kind, text)
Piece = tuple[
    np.ndarray, np.ndarray
]  # token ids and loss weights of a document, or of a part of it


class Batches(NamedTuple):
    """All training sequences in training order, (steps * batch_size, positions) each."""

    tokens: np.ndarray  # int64 ids
    weights: np.ndarray  # float32, in the loss
    documents: (
        np.ndarray
    )  # int16: number of the token's document in its sequence, from 0; -1 for padding


def train_language_model(
    documents: Documents,
    tokenizer: Path,
    folder: Path,
    seed: int,
    settings: params.LMTraining,
    stage: str,
) -> dict[str, float | list[float]]:
    """Train on (kind, text) documents and save the model and its tokenizer to `folder` in Hugging Face's layout.

    Returns the loss (nats per token, answers unweighted) at the end and as a curve of CURVE means, and the numbers of
    parameters and tokens. A killed training of `stage` continues to the same bytes. Raises LongtailError where a phase
    asks for a kind of text that no document has, or the loss is not finite.
    """
    own = AutoTokenizer.from_pretrained(
        tokenizer, model_max_length=settings.positions, trust_remote_code=False
    )
    model = make_model(own, seed, settings)
    batches = make_batches(documents, tokenizer, seed, settings)
    losses = optimise(model, batches, seed, settings, stage)
    model.save_pretrained(folder)
    own.save_pretrained(folder)
    means = [float(part.mean()) for part in np.array_split(losses, min(CURVE, len(losses)))]
    parameters, tokens = float(model.num_parameters()), float((batches.weights > 0).sum())
    return {"loss": means[-1], "parameters": parameters, "tokens": tokens, "loss_curve": means}


def make_batches(
    documents: Documents, tokenizer: Path, seed: int, settings: params.LMTraining
) -> Batches:
    """Mix (kind, text) documents in the shares of `settings.phases`, and pack them into sequences.

    The tokens of an answer and its end weigh ANSWER_WEIGHT, others 1, padding and the tokens that begin a document 0.
    Raises LongtailError where there is no text, or a phase asks for a kind of text that no document has.
    """
    special, opened = (
        AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False),
        open_tokenizer(tokenizer),
    )
    first = np.array(first_tokens(special, tokenizer)[0], np.int64)
    texts: dict[str, list[str]] = {}
    for kind, text in documents:
        texts.setdefault(kind, []).append(text)
    pieces = {
        kind: _pieces(opened, first, texts_of_kind, settings)
        for kind, texts_of_kind in texts.items()
    }
    if not any(pieces.values()):
        raise LongtailError(
            "lm_text: no text to train on, expected at least one document; see the raw data"
        )
    shape = settings.steps * settings.batch_size, settings.positions
    tokens, unweighted = np.full(shape, special.pad_token_id, np.int64), np.zeros(shape, np.float32)
    batches, done = Batches(tokens, unweighted, np.full(shape, -1, np.int16)), 0
    for number, phase in enumerate(settings.phases):
        if missing := sorted(set(phase.weights) - set(pieces)):
            raise LongtailError(
                f"lm.training.phases: no document is of kind {missing[0]}, expected {', '.join(sorted(pieces))}"
            )
        until = round(phase.until * settings.steps) * settings.batch_size
        mixed = _mix(pieces, phase.weights or dict.fromkeys(pieces, 1.0), seed, number)
        order = draws.generator(seed, "lm/sequences", str(number)).permutation(until - done)
        for row, sequence in zip(
            (done + order).tolist(), _pack(mixed, until - done, settings.positions), strict=True
        ):
            end = 0
            for document, (ids, weights) in enumerate(sequence):
                span = slice(end, end := end + len(ids))
                for array, values in zip(batches, (ids, weights, document), strict=True):
                    array[row, span] = values
        done = until
    return batches


def _pieces(
    tokenizer, first: np.ndarray, texts: Sequence[str], settings: params.LMTraining
) -> list[Piece]:
    """Each document as a piece that begins with `first`; a long one as several pieces of `positions` tokens."""
    pieces = []
    size, unweighted = settings.positions - len(first), np.zeros(len(first), np.float32)
    for text, (ids, spans) in zip(texts, encode(tokenizer, texts), strict=True):
        weights = np.ones(len(ids), np.float32)
        for answer in ANSWER.finditer(text):
            weights[(spans[:, 0] < answer.end(1)) & (spans[:, 1] > answer.start(1))] = ANSWER_WEIGHT
        for i in range(0, len(ids), size):
            part = slice(i, i + size)
            pieces.append(
                (np.concatenate([first, ids[part]]), np.concatenate([unweighted, weights[part]]))
            )
    return pieces


def _mix(
    pieces: dict[str, list[Piece]], shares: dict[str, float], seed: int, phase: int
) -> Iterable[Piece]:
    """Endless pieces. Kinds have the given shares of tokens; all pieces of a kind come once before any comes again."""
    rng = draws.generator(seed, "lm/order", str(phase))
    orders: dict[str, list[int]] = {
        kind: [] for kind in sorted(shares)
    }  # the pieces that come next, last first
    tokens = dict.fromkeys(orders, 0.0)
    while True:
        kind = min(orders, key=lambda kind: tokens[kind] / max(shares[kind], 1e-9))
        orders[kind] = orders[kind] or rng.permutation(len(pieces[kind]))[::-1].tolist()
        piece = pieces[kind][orders[kind].pop()]
        tokens[kind] += len(piece[0])
        yield piece


def _pack(pieces: Iterable[Piece], rows: int, positions: int) -> list[list[Piece]]:
    """`rows` sequences of pieces. Each piece goes to the open sequence in which it leaves the least room."""
    full: list[list[Piece]] = []
    open_: list[list[Piece]] = [[] for _ in range(OPEN_SEQUENCES)]
    room = [positions] * OPEN_SEQUENCES
    for piece in pieces:
        size = len(piece[0])
        best = min(
            (i for i in range(OPEN_SEQUENCES) if room[i] >= size),
            key=room.__getitem__,
            default=None,
        )
        if best is None:
            best = min(range(OPEN_SEQUENCES), key=room.__getitem__)  # the fullest
            full.append(open_[best])
            if len(full) == rows:
                return full
            open_[best], room[best] = [], positions
        open_[best].append(piece)
        room[best] -= size
    raise AssertionError("pieces never end")


def make_model(tokenizer, seed: int, settings: params.LMTraining) -> LlamaForCausalLM:
    """An untrained model whose attention is initialised so that its heads match and copy tokens."""
    torch.manual_seed(int(draws.generator(seed, "lm/weights").integers(1 << 62)))
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=settings.hidden_size,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            intermediate_size=settings.intermediate_size,
            max_position_embeddings=settings.positions,
            tie_word_embeddings=True,
            attention_bias=True,
            attention_dropout=DROPOUT,
            **{
                name: getattr(tokenizer, name)
                for name in ("bos_token_id", "eos_token_id", "pad_token_id")
            },
            attn_implementation="eager",  # the CPU's fused attention takes a third longer, in its backward pass
        )
    )
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=EMBEDDINGS)
    for layer in model.model.layers:
        attention = layer.self_attn
        torch.nn.init.normal_(attention.q_proj.weight, std=QUERIES)
        torch.nn.init.orthogonal_(attention.v_proj.weight)
        with torch.no_grad():
            attention.o_proj.weight.copy_(attention.v_proj.weight.T)
            attention.k_proj.weight.copy_(attention.q_proj.weight)
    # The first head looks at the token before. Rotary positions turn each pair of a query's and a key's dimensions by
    # an angle in proportion to the position. With a key bias one position ahead of the query bias, their product is
    # largest where the key is one position back.
    first, frequencies = model.model.layers[0].self_attn, model.model.rotary_emb.inv_freq
    half = len(frequencies)
    with torch.no_grad():
        first.q_proj.bias[:half] = LOOK_BACK
        first.k_proj.bias[:half] = LOOK_BACK * torch.cos(frequencies)
        first.k_proj.bias[half : 2 * half] = LOOK_BACK * torch.sin(frequencies)
    return model


def optimise(
    model: LlamaForCausalLM, batches: Batches, seed: int, settings: params.LMTraining, stage: str
) -> np.ndarray:
    """Train `model` with AdamW; returns each step's loss, nats per token; LongtailError for one that is not finite."""
    weights = list(model.parameters())
    matrices = {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": 0.05}
    biases_and_norms = {
        "params": [weight for weight in weights if weight.ndim == 1],
        "weight_decay": 0.0,
    }
    optimiser = torch.optim.AdamW(
        [matrices, biases_and_norms], lr=LEARNING_RATE, betas=(0.9, 0.98), fused=True
    )
    inputs = digest([*(weight.detach().numpy() for weight in weights), *batches])
    checkpoints = Checkpoints(stage, seed, settings, inputs, Path(__file__))
    done = checkpoints.load(weights, optimiser).get("losses", [])
    losses = np.r_[done, np.zeros(settings.steps - len(done))].astype(np.float32)
    model.set_attn_implementation("given_dropout")
    model.train()
    with tqdm(
        total=settings.steps, initial=len(done), desc="language model", unit="step", mininterval=2
    ) as bar:
        for step in range(len(done), settings.steps):
            rows = slice(step * settings.batch_size, (step + 1) * settings.batch_size)
            ids, weight = (
                torch.from_numpy(batches.tokens[rows]),
                torch.from_numpy(batches.weights[rows]),
            )
            mask, kept = document_mask(batches.documents[rows]), dropout(seed, step, settings)
            with torch.autocast("cpu", NUMBERS):
                logits = model(
                    input_ids=ids, attention_mask=mask, kept=kept, use_cache=False
                ).logits
            losses[step], gradient = loss_and_gradient(logits.detach(), ids, weight)
            logits.backward(gradient)
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            for group in optimiser.param_groups:
                group["lr"] = LEARNING_RATE * schedule(step, settings.steps)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            if not math.isfinite(losses[step]):
                raise LongtailError(
                    f"language model: the loss is {losses[step]} at step {step}; train fewer layers or smaller ones"
                )
            if checkpoints.due():
                checkpoints.save(
                    {"step": step + 1, "losses": losses[: step + 1].tolist()}, weights, optimiser
                )
            bar.update()
    model.set_attn_implementation("eager")
    model.eval()
    return losses


def document_mask(documents: np.ndarray) -> torch.Tensor:
    """A mask (rows, 1, positions, positions) for attention scores: a token sees its own document up to itself alone.

    Without it, the model would learn to ignore the text in front, which is another document's.
    """
    number = torch.from_numpy(documents)
    visible = torch.tril(number[:, None, :, None] == number[:, None, None, :])
    return torch.zeros(visible.shape, dtype=NUMBERS).masked_fill_(
        ~visible, torch.finfo(NUMBERS).min
    )


def dropout(seed: int, step: int, settings: params.LMTraining) -> torch.Tensor:
    """The factors of a step's attention weights, (layers, rows, heads, positions, positions): 0, or 1 / (1 - rate).

    A draw takes 16 bits: torch's own dropout takes a sixth of a step on a CPU.
    """
    shape = (
        settings.layers,
        settings.batch_size,
        settings.heads,
        settings.positions,
        settings.positions,
    )
    size, rng = math.prod(shape), draws.generator(seed, "lm/dropout", str(step))
    bits = rng.integers(1 << 64, size=-(-size // 4), dtype=np.uint64).view(np.uint16)[:size]
    stays = bits >= round(DROPOUT * (1 << 16))
    return torch.from_numpy(stays * np.float32(1 / (1 - DROPOUT))).to(NUMBERS).view(shape)


def attend(
    module: LlamaAttention,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    *,
    scaling: float,
    kept: torch.Tensor,
    **_,
) -> tuple[torch.Tensor, None]:
    """transformers' eager attention with given dropout factors `kept`, as `dropout` makes them."""
    scores = query @ key.transpose(2, 3) * scaling + attention_mask
    attention = (
        torch.softmax(scores, dim=-1, dtype=torch.float32).to(kept.dtype) * kept[module.layer_idx]
    )
    return (attention @ value).transpose(1, 2), None


AttentionInterface.register("given_dropout", attend)


def loss_and_gradient(
    logits: torch.Tensor, ids: torch.Tensor, weight: torch.Tensor
) -> tuple[float, torch.Tensor]:
    """Mean cross-entropy of the next tokens, and the gradient of its weighted mean by the logits (rows, positions,
    vocabulary).

    `ids` and `weight` are (rows, positions). Autograd takes a fifth of a step on a CPU for this gradient.
    """
    targets = torch.roll(ids, -1, dims=1).unsqueeze(-1)
    weight = torch.roll(weight, -1, dims=1)
    weight[:, -1] = 0  # nothing follows a sequence's last token
    gradient = torch.softmax(logits, dim=-1, dtype=torch.float32)
    probability = gradient.gather(-1, targets)
    nats = -probability.clamp_min(torch.finfo(torch.float32).tiny).log().squeeze(-1)
    gradient.scatter_(-1, targets, probability - 1)
    gradient.mul_((weight / weight.sum()).unsqueeze(-1))
    return float(nats[weight > 0].mean()), gradient.to(logits.dtype)


def schedule(step: int, steps: int) -> float:
    """The learning rate's factor: it warms up, stays at 1, and falls to 0 over the last half of the steps."""
    return min((step + 1) / WARMUP, 1.0, 2 * (steps - step) / steps)
