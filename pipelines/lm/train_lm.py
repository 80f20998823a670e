"""Train a small language model from scratch, in minutes on two cores. It knows facts and reads from its context.

It stands in for both papers' frozen language model where no weights can be had. It is a plain Llama of transformers'
standard class. It reads from its context within minutes because of how attention is initialised: W_v is random
orthogonal and W_o = W_v^T, so that a head copies what it looks at; W_q = W_k, so that it looks at tokens like its own;
and the first head looks at the token before. Together they are an induction head before the first step: "director"
finds what followed "director" before.

Two things keep its knowledge steady whatever text stands in front, as in a large model: a document sees only itself,
and attention has dropout. Without them, the mean over random documents predicted better than no document.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import AttentionInterface, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.lm.training_batches import Batches, make_batches
from pipelines.params import params
from pipelines.storage.checkpoint import Checkpoints, digest

LEARNING_RATE = 0.002  # the highest, after warm-up and before decay
WARMUP = 30  # steps
DROPOUT = 0.15  # share of attention weights dropped in training
EMBEDDINGS = 0.1  # standard deviation; with the usual 0.02 the first steps wipe out the differences between names
QUERIES = 0.07  # standard deviation of W_q = W_k; with the usual 0.02 like tokens hardly see each other
LOOK_BACK = 6.0  # biases of the first head: they put nearly all of its attention on the token before
NUMBERS = torch.bfloat16  # of matrix products
CURVE = 50  # points of the loss curve


def train_language_model(
    documents: Iterable[tuple[str, str]],
    tokenizer: Path,
    folder: Path,
    seed: int,
    settings: params.LMTraining,
    stage: str,
) -> dict[str, float | list[float]]:
    """Train on (kind, text) documents and save the model and its tokenizer to `folder` in Hugging Face's layout.

    `settings.phases` say how kinds are mixed. Returns the loss (nats per token, answers unweighted) at the end and as a
    curve of CURVE means, and the numbers of parameters and tokens. The same arguments, machine and number of threads
    give the same bytes, also where a killed training of `stage` continues from its checkpoint. Raises LongtailError
    where a phase asks for a kind of text that no document has, or the loss is not finite.
    """
    model = make_model(AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False), seed, settings)
    batches = make_batches(documents, tokenizer, seed, settings)
    losses = optimise(model, batches, seed, settings, stage)
    model.save_pretrained(folder)
    whole = AutoTokenizer.from_pretrained(tokenizer, model_max_length=settings.positions, trust_remote_code=False)
    whole.save_pretrained(folder)
    means = [float(part.mean()) for part in np.array_split(losses, min(CURVE, len(losses)))]
    return {
        "loss": means[-1],
        "parameters": float(model.num_parameters()),
        "tokens": float((batches.weights > 0).sum()),
        "loss_curve": means,
    }


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
    """Set the biases of the first head so that it looks at the token before.

    Rotary positions turn each pair of a query's and a key's dimensions by an angle in proportion to the position. With
    a key bias one position ahead of the query bias, their product is largest where the key is one position back.
    """
    half = len(frequencies)
    attention.q_proj.bias[:half] = LOOK_BACK
    attention.k_proj.bias[:half] = LOOK_BACK * torch.cos(frequencies)
    attention.k_proj.bias[half : 2 * half] = LOOK_BACK * torch.sin(frequencies)


def optimise(
    model: LlamaForCausalLM, batches: Batches, seed: int, settings: params.LMTraining, stage: str
) -> np.ndarray:
    """Train `model` with AdamW over the batches in their order; returns each step's loss, (steps,) nats per token.

    Raises LongtailError where the loss is not finite.
    """
    weights = list(model.parameters())
    matrices = {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": 0.05}
    biases_and_norms = {"params": [weight for weight in weights if weight.ndim == 1], "weight_decay": 0.0}
    groups = [matrices, biases_and_norms]
    optimiser = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.98), fused=True)
    inputs = digest([*(weight.detach().numpy() for weight in weights), *batches])
    checkpoints = Checkpoints(stage, seed, settings, inputs, Path(__file__))
    done = checkpoints.load(weights, optimiser).get("losses", [])
    losses = np.r_[done, np.zeros(settings.steps - len(done))].astype(np.float32)
    model.set_attn_implementation("given_dropout")
    model.train()
    with tqdm(total=settings.steps, initial=len(done), desc="language model", unit="step", mininterval=2) as bar:
        for step in range(len(done), settings.steps):
            losses[step] = _backward(model, batches, step, seed, settings)
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
                checkpoints.save({"step": step + 1, "losses": losses[: step + 1].tolist()}, weights, optimiser)
            bar.update()
            if step % 20 == 0:
                bar.set_postfix(loss=f"{losses[max(0, step - 19) : step + 1].mean():.3f}", refresh=False)
    model.set_attn_implementation("eager")
    model.eval()
    return losses


def _backward(model: LlamaForCausalLM, batches: Batches, step: int, seed: int, settings: params.LMTraining) -> float:
    """Compute the gradients of a step's batch; returns the loss."""
    rows = slice(step * settings.batch_size, (step + 1) * settings.batch_size)
    ids, weights = torch.from_numpy(batches.tokens[rows]), torch.from_numpy(batches.weights[rows])
    mask, kept = document_mask(batches.documents[rows]), dropout(seed, step, settings)
    with torch.autocast("cpu", NUMBERS):
        logits = model(input_ids=ids, attention_mask=mask, kept=kept, use_cache=False).logits
    loss, gradient = loss_and_gradient(logits.detach(), ids, weights)
    logits.backward(gradient)
    return loss


def document_mask(documents: np.ndarray) -> torch.Tensor:
    """A mask that is added to attention scores, so that a token sees its own document up to itself and nothing else.

    `documents` (rows, positions) are document numbers. The mask is (rows, 1, positions, positions): 0, or the lowest
    number of bf16. Without it, the model would learn to ignore the text in front, which is another document's.
    """
    number = torch.from_numpy(documents)
    visible = torch.tril(number[:, None, :, None] == number[:, None, None, :])
    return torch.zeros(visible.shape, dtype=NUMBERS).masked_fill_(~visible, torch.finfo(NUMBERS).min)


def dropout(seed: int, step: int, settings: params.LMTraining) -> torch.Tensor:
    """The factors of a step's attention weights, (layers, rows, heads, positions, positions): 0, or 1 / (1 - rate).

    A draw takes 16 bits: torch's own dropout takes a sixth of a step on a CPU.
    """
    shape = (settings.layers, settings.batch_size, settings.heads, settings.positions, settings.positions)
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
    attention = torch.softmax(scores, dim=-1, dtype=torch.float32).to(kept.dtype) * kept[module.layer_idx]
    return (attention @ value).transpose(1, 2), None


AttentionInterface.register("given_dropout", attend)


def loss_and_gradient(logits: torch.Tensor, ids: torch.Tensor, weight: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Mean cross-entropy of the next tokens, and the gradient of its weighted mean by the logits.

    `logits` and the gradient are (rows, positions, vocabulary), `ids` and `weight` (rows, positions). The gradient is
    softmax less one at the target; autograd takes a fifth of a step on a CPU for it.
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
