"""A small language model trained from scratch in minutes on two cores, which knows facts and reads from its context.

It stands in for the frozen language model of both papers where no weights can be had. Plain Llama, standard class; what
makes it read from context within minutes is how attention starts: W_v random orthogonal with W_o = W_v^T, so that a
head copies what it looks at; W_q = W_k, so that it looks at tokens like its own; and one head that looks at the token
before. Together they make an induction head before the first step: what followed "director" is found by "director".

Two things keep its memory steady whatever stands in front, as a large model's is: a document sees itself alone, and
attention drops out in training. Without them the mean over random documents predicted better than no document.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import AttentionInterface, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention

from pipelines import draws, params
from pipelines.checkpoint import Checkpoints, digest
from pipelines.corpus.tokenizer import encode, open_tokenizer
from pipelines.errors import LongtailError
from pipelines.lm.ragged import first_tokens

ANSWER = re.compile(r"\b(?:A|Answer):( [^\n]+\n?)")
BINS = 16  # sequences that are filled at a time
WARMUP = 30  # steps
EMBEDDINGS = 0.1  # standard deviation; at the usual 0.02 the first steps wash away what tells one name from another
QUERIES = 0.07  # of W_q = W_k; at the usual 0.02 like tokens hardly see each other
LOOK_BACK = 6.0  # the first head's biases: nearly all of its attention is on the token before
CURVE = 50  # points of the loss curve


def train(
    documents: Iterable[tuple[str, str]],
    tokenizer: Path,
    folder: Path,
    seed: int,
    settings: params.LMTraining,
    stage: str,
) -> dict[str, float | list[float]]:
    """Train on (kind, text) documents, kinds mixed as `settings.phases` say, and save to `folder` as Hugging Face does.

    Returns the loss (nats per token, answers not weighted) at the end and as a curve of CURVE means. The same
    arguments, machine and number of threads give the same bytes; so does going on from the checkpoints of `stage` that
    a killed training left. Raises LongtailError where a phase asks for a kind that no document is of.
    """
    model = make_model(AutoTokenizer.from_pretrained(tokenizer), seed, settings)
    tokens, weights, places = batches(documents, tokenizer, seed, settings)
    curve = optimise(model, tokens, weights, places, seed, settings, stage)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer, model_max_length=settings.positions).save_pretrained(folder)
    means = [float(part.mean()) for part in np.array_split(curve, min(CURVE, len(curve)))]
    size = sum(weight.numel() for weight in model.parameters())
    return {"loss": means[-1], "parameters": float(size), "tokens": float((weights > 0).sum()), "loss_curve": means}


def make_model(tokenizer, seed: int, settings: params.LMTraining) -> LlamaForCausalLM:
    """An untrained model, its attention initialised so that heads match and copy."""
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
            attention_dropout=settings.attention_dropout,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
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
    _look_back(model.model.layers[0].self_attn, model.model.rotary_emb.inv_freq)
    return model


@torch.no_grad()
def _look_back(attention: LlamaAttention, frequencies: torch.Tensor) -> None:
    """Start the first head by looking at the token before, through its biases alone.

    Rotary positions turn a query's and a key's pair of dimensions by angles in proportion to their positions; a key
    bias one position ahead of the query bias makes their product largest where the key is one position back.
    """
    half = len(frequencies)
    attention.q_proj.bias[:half] = LOOK_BACK
    attention.k_proj.bias[:half] = LOOK_BACK * torch.cos(frequencies)
    attention.k_proj.bias[half : 2 * half] = LOOK_BACK * torch.sin(frequencies)


def batches(
    documents: Iterable[tuple[str, str]], tokenizer: Path, seed: int, settings: params.LMTraining
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids (steps * batch_size, positions) int64, the weight of each in the loss, float32, and which document of
    its sequence it belongs to, int16; all in training order.

    A document begins as the tokenizer begins any text. Weights are 1, `answer_weight` for the tokens of an answer and
    its end, and 0 for padding and for what begins a document, which nothing before it can tell.
    """
    opened = open_tokenizer(tokenizer)
    special = AutoTokenizer.from_pretrained(tokenizer)
    first, _ = first_tokens(special, tokenizer)
    kinds: dict[str, list[str]] = {}
    for kind, text in documents:
        kinds.setdefault(kind, []).append(text)
    pieces = {kind: _pieces(opened, first, texts, settings) for kind, texts in kinds.items()}
    if not any(pieces.values()):
        raise LongtailError("lm_text: no text to train on, expected at least one document; see the raw data")
    rows = settings.steps * settings.batch_size
    tokens = np.full((rows, settings.positions), special.pad_token_id, np.int64)
    weights = np.zeros((rows, settings.positions), np.float32)
    places = np.full((rows, settings.positions), -1, np.int16)
    done = 0
    for number, phase in enumerate(settings.phases):
        missing = sorted(set(phase.weights) - set(pieces))
        if missing:
            raise LongtailError(
                f"lm.training.phases: no document is of kind {missing[0]}, expected {', '.join(sorted(pieces))}"
            )
        until = round(phase.until * settings.steps) * settings.batch_size
        shares = phase.weights or {kind: 1.0 for kind in pieces}
        packed = _pack(
            _mixed(pieces, shares, draws.generator(seed, "lm/order", str(number))), until - done, settings.positions
        )
        order = draws.generator(seed, "lm/sequences", str(number)).permutation(until - done)
        for row, sequence in zip((done + order).tolist(), packed, strict=True):
            end = 0
            for place, (ids, weight) in enumerate(sequence):
                span = slice(end, end + len(ids))
                tokens[row, span], weights[row, span], places[row, span] = ids, weight, place
                end += len(ids)
        done = until
    return tokens, weights, places


def _pieces(
    tokenizer, first: np.ndarray, texts: Sequence[str], settings: params.LMTraining
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(ids, weights) of each document; longer ones cut into pieces of `positions` tokens, each begun by `first`."""
    found = []
    size, unweighted = settings.positions - len(first), np.zeros(len(first), np.float32)
    for text, (ids, spans) in zip(texts, encode(tokenizer, texts), strict=True):
        weights = np.ones(len(ids), np.float32)
        for answer in ANSWER.finditer(text):
            weights[(spans[:, 0] < answer.end(1)) & (spans[:, 1] > answer.start(1))] = settings.answer_weight
        for i in range(0, len(ids), size):
            span = slice(i, i + size)
            found.append((np.concatenate([first, ids[span]]), np.concatenate([unweighted, weights[span]])))
    return found


def _mixed(
    pieces: dict[str, list], shares: dict[str, float], rng: np.random.Generator
) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Endlessly, pieces of the kinds in the given shares of tokens; every piece of a kind once before any again."""
    names = sorted(shares)
    orders = {name: iter(()) for name in names}
    spent = dict.fromkeys(names, 0.0)
    while True:
        name = min(names, key=lambda kind: spent[kind] / max(shares[kind], 1e-9))
        index = next(orders[name], None)
        if index is None:
            orders[name] = iter(rng.permutation(len(pieces[name])).tolist())
            index = next(orders[name])
        spent[name] += len(pieces[name][index][0])
        yield pieces[name][index]


def _pack(pieces: Iterable[tuple[np.ndarray, np.ndarray]], rows: int, positions: int) -> list[list]:
    """`rows` sequences of pieces; each piece goes where it leaves the least room, among BINS open sequences."""
    done: list[list] = []
    open_: list[list] = [[] for _ in range(BINS)]
    room = [positions] * BINS
    for piece in pieces:
        size = len(piece[0])
        fits = [i for i in range(BINS) if room[i] >= size]
        if not fits:
            fullest = min(range(BINS), key=room.__getitem__)
            done.append(open_[fullest])
            if len(done) == rows:
                return done
            open_[fullest], room[fullest] = [], positions
            fits = [fullest]
        best = min(fits, key=room.__getitem__)
        open_[best].append(piece)
        room[best] -= size
    raise AssertionError("pieces never end")


def optimise(
    model: LlamaForCausalLM,
    tokens: np.ndarray,
    weights: np.ndarray,
    places: np.ndarray,
    seed: int,
    settings: params.LMTraining,
    stage: str,
) -> np.ndarray:
    """AdamW over the batches in their order; returns the loss of each step, (steps,) nats per token.

    A token sees its own document alone: with the documents packed before it in view, the model would be used to text
    in front that has nothing to do with what follows.
    """
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=True)
    learnt, size = list(model.parameters()), settings.batch_size
    seen = digest([*(weight.detach().numpy() for weight in learnt), tokens, weights, places])
    checkpoints = Checkpoints(stage, seed, settings, seen, Path(__file__))
    done = checkpoints.load(learnt, optimiser).get("losses", [])
    losses = np.r_[done, np.zeros(settings.steps - len(done))].astype(np.float32)
    dtype = torch.bfloat16 if settings.dtype == "bf16" else torch.float32
    model.set_attn_implementation("given_dropout")
    model.train()
    with tqdm(total=settings.steps, initial=len(done), desc="language model", unit="step", mininterval=2) as bar:
        for step in range(len(done), settings.steps):
            rows = slice(step * size, (step + 1) * size)
            ids, weight = torch.from_numpy(tokens[rows]), torch.from_numpy(weights[rows])
            mask, kept = own_document(places[rows], dtype), dropout(seed, step, settings, dtype)
            with torch.autocast("cpu", torch.bfloat16, enabled=settings.dtype == "bf16"):
                logits = model(input_ids=ids, attention_mask=mask, kept=kept, use_cache=False).logits
            losses[step], gradient = loss_and_gradient(logits.detach(), ids, weight)
            logits.backward(gradient)
            torch.nn.utils.clip_grad_norm_(learnt, 1.0)
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * schedule(step, settings.steps)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            if not math.isfinite(losses[step]):
                raise LongtailError(
                    f"language model: the loss is {losses[step]} at step {step}; lower lm.training.learning_rate"
                )
            if checkpoints.due():
                checkpoints.save({"step": step + 1, "losses": losses[: step + 1].tolist()}, learnt, optimiser)
            bar.update()
            if step % 20 == 0:
                bar.set_postfix(loss=f"{losses[max(0, step - 19) : step + 1].mean():.3f}", refresh=False)
    model.set_attn_implementation("eager")
    model.eval()
    return losses


def own_document(places: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """What is added to attention, (rows, 1, positions, positions): 0 where a token sees one of its own document that is
    not after it, else the least number; `places` (rows, positions) numbers the documents of each sequence."""
    place = torch.from_numpy(places)
    seen = torch.tril(place[:, None, :, None] == place[:, None, None, :])
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)


def dropout(seed: int, step: int, settings: params.LMTraining, dtype: torch.dtype) -> torch.Tensor:
    """What a step multiplies attention by, (layers, rows, heads, positions, positions): 0, or what makes up for it.

    Drawn 16 bits each: torch's own dropout takes a sixth of a step on a CPU.
    """
    shape = (settings.layers, settings.batch_size, settings.heads, settings.positions, settings.positions)
    size, rng = math.prod(shape), draws.generator(seed, "lm/dropout", str(step))
    bits = rng.integers(1 << 64, size=-(-size // 4), dtype=np.uint64).view(np.uint16)[:size]
    stays = bits >= round(settings.attention_dropout * (1 << 16))
    return torch.from_numpy(stays * np.float32(1 / (1 - settings.attention_dropout))).to(dtype).view(shape)


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
    """transformers' eager attention, but that the layers' `dropout` is given."""
    scores = query @ key.transpose(2, 3) * scaling + attention_mask
    shares = torch.softmax(scores, dim=-1, dtype=torch.float32).to(kept.dtype) * kept[module.layer_idx]
    return (shares @ value).transpose(1, 2), None


AttentionInterface.register("given_dropout", attend)


def loss_and_gradient(logits: torch.Tensor, ids: torch.Tensor, weight: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Cross-entropy of the next tokens, and its weighted mean's gradient by the logits (rows, positions, vocabulary).

    Written out, softmax less one at the target, since autograd's own takes a fifth of a step on a CPU.
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
    """The learning rate's factor: warm-up, then constant, then falling to 0 over the last half."""
    return min((step + 1) / WARMUP, 1.0, 2 * (steps - step) / steps)
