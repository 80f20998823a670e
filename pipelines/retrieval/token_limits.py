"""How many tokens an encoder reads at once, by the memory of its device and the model's own sizes.

On a CPU this follows from the params alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from pipelines.work import devices

CPU_TOKENS = 4096  # in a forward pass on a CPU
MOST_TOKENS = 65_536  # in a forward pass on a GPU; more bring no speed
BYTES = 4  # of a number in fp32; numbers in bf16 take less
LAYERS_IN_PASS = 4  # numbers of a token at one time in a pass, as many times the widest layer's
# Numbers of a token that a backward pass needs, for each number that a linear layer gives: those
# of activations, norms and sums are about as many.
KEPT_FOR_BACKWARD = 2
TRAINING_COPIES = 4  # numbers for each weight in training: itself, its gradient, and Adam's means


def tokens_in_pass(models: Sequence[torch.nn.Module], device: str, batch_tokens: int | None) -> int:
    """The tokens, padding included, that one of the models may read in a pass without gradients.

    `batch_tokens` bounds them; null stands for CPU_TOKENS on a CPU, and for MOST_TOKENS on a GPU.
    """
    memory = devices.working_memory(device, _bytes_of_weights(models))
    if memory is None:
        return CPU_TOKENS if batch_tokens is None else batch_tokens

    widest = max(_widths(models))
    fitting = memory // (BYTES * LAYERS_IN_PASS * widest)
    most = MOST_TOKENS if batch_tokens is None else batch_tokens
    return max(1, min(most, fitting))


def tokens_with_gradient(models: Sequence[torch.nn.Module], device: str) -> int | None:
    """The tokens whose states fit on a GPU until the backward pass; None for a CPU."""
    weights = TRAINING_COPIES * _bytes_of_weights(models)
    memory = devices.working_memory(device, weights)
    if memory is None:
        return None
    numbers = KEPT_FOR_BACKWARD * sum(_widths(models[:1]))
    return max(1, memory // (BYTES * numbers))


def _bytes_of_weights(models: Sequence[torch.nn.Module]) -> int:
    return sum(weight.nbytes for model in models for weight in model.parameters())


def _widths(models: Sequence[torch.nn.Module]) -> Iterator[int]:
    """The numbers that each linear layer gives for a token."""
    for model in models:
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear):
                yield layer.out_features
