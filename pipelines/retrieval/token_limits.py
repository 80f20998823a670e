"""How many tokens an encoder reads at once, by the memory of its device and the model's own sizes.

On a CPU this follows from the model alone, so that results don't depend on the machine.
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
CPU_TRAINING_BYTES = 1 << 31  # of states that wait for the backward pass on a CPU
TRAINING_COPIES = 4  # numbers for each weight in training: itself, its gradient, and Adam's means


def tokens_in_pass(models: Sequence[torch.nn.Module], device: str) -> int:
    """The tokens, padding included, that one of the models may read in a pass without gradients."""
    memory = devices.working_memory(device, _bytes_of_weights(models))
    if memory is None:
        return CPU_TOKENS

    widest = max(_widths(models))
    fitting = memory // (BYTES * LAYERS_IN_PASS * widest)
    return max(1, min(MOST_TOKENS, fitting))


def tokens_with_gradient(models: Sequence[torch.nn.Module], device: str) -> int:
    """The tokens whose states are held until the backward pass, at most."""
    weights = TRAINING_COPIES * _bytes_of_weights(models)
    memory = devices.working_memory(device, weights)
    if memory is None:
        memory = CPU_TRAINING_BYTES
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
