"""Faster replacements for parts of a transformers model, with the same formulas."""

from __future__ import annotations

import copy
import platform

import torch
from torch import nn
from torch.nn import functional
from transformers.activations import NewGELUActivation
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.pytorch_utils import Conv1D

MIN_ROWS = 64  # torch's default multiplies fewer rows faster than oneDNN, as in decoding


class OneDNNLinear(nn.Module):
    """x W^T + b in fp32 by oneDNN: as precise as torch's default, MKL, and twice as fast on AMD's processors."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias  # (outputs, inputs), (outputs,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel() < MIN_ROWS * x.shape[-1]:
            return functional.linear(x, self.weight, self.bias)
        return functional.linear(x.to_mkldnn(), self.weight, self.bias).to_dense()


def replace_slow_layers(model: nn.Module) -> None:
    """Replace layers of `model` in place: fp32 linear layers on an x86 processor, and GPT-2's activation anywhere."""
    x86 = torch.backends.mkldnn.is_available() and platform.machine().lower() in ("x86_64", "amd64")
    for module in list(model.modules()):
        for name, layer in module.named_children():
            weight = getattr(layer, "weight", None)
            in_fp32 = isinstance(weight, torch.Tensor) and weight.device.type == "cpu" and weight.dtype == torch.float32
            if type(layer) is NewGELUActivation:  # it passes over its input eight times
                setattr(module, name, nn.GELU(approximate="tanh"))
            elif x86 and in_fp32 and type(layer) is nn.Linear:
                setattr(module, name, OneDNNLinear(weight, layer.bias))
            elif x86 and in_fp32 and type(layer) is Conv1D:
                transposed = nn.Parameter(weight.T.contiguous(), requires_grad=False)
                setattr(module, name, OneDNNLinear(transposed, layer.bias))


class Head:
    """The part of `model` that makes logits of hidden states: the output embedding and, in some models, a scale or cap.

    Calling it computes logits at the positions that are needed, not at all. `separable` says whether that works for
    the model; a few tokens are tried to find out. Do not call a head that is not separable.
    """

    def __init__(self, model) -> None:
        self._layers = _GivenStates()
        self._model = copy.copy(model)  # shares the weights
        self._model._modules = {**model._modules, model.base_model_prefix: self._layers}
        self.separable = model.base_model is not model and self._agrees(model)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) of the hidden states (n, width)."""
        self._layers.hidden = hidden[None]
        return self._model(input_ids=hidden.new_zeros(1, len(hidden), dtype=torch.int64)).logits[0]

    @torch.inference_mode()
    def _agrees(self, model) -> bool:
        ids = torch.arange(8, device=model.device)[None] % model.config.get_text_config().vocab_size
        expected, hidden = model(input_ids=ids).logits[0], model.base_model(input_ids=ids).last_hidden_state[0]
        try:
            logits = self(hidden)
        except (AttributeError, TypeError):  # the model needs more from its layers than their last hidden states
            return False
        return torch.allclose(expected, logits, rtol=1e-3, atol=1e-3)


class _GivenStates(nn.Module):
    """Takes the place of a model's layers and returns the hidden states it was given."""

    hidden: torch.Tensor

    @property
    def decoder(self) -> _GivenStates:
        """OPT calls its layers' `decoder`."""
        return self

    def forward(self, *_, **__) -> BaseModelOutputWithPastAndCrossAttentions:
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=self.hidden)
