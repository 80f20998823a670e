"""The part of a transformers model that makes logits of hidden states, alone: for some positions and not for all."""

from __future__ import annotations

import copy

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions


class Head:
    """All that `model` does after its layers: the output embedding and, in some models, scaling or a cap.

    `apart` says whether that can be done alone, as compared on a few tokens; where it can't, don't call it.
    """

    def __init__(self, model) -> None:
        self._given = _Given()
        self._model = copy.copy(model)  # the same weights
        self._model._modules = {**model._modules, model.base_model_prefix: self._given}
        self.apart = model.base_model is not model and self._agrees(model)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) after the hidden states (n, width)."""
        self._given.hidden = hidden[None]
        return self._model(input_ids=hidden.new_zeros(1, len(hidden), dtype=torch.int64)).logits[0]

    @torch.inference_mode()
    def _agrees(self, model) -> bool:
        ids = torch.arange(8, device=model.device)[None] % model.config.get_text_config().vocab_size
        whole, hidden = model(input_ids=ids).logits[0], model.base_model(input_ids=ids).last_hidden_state[0]
        try:
            apart = self(hidden)
        except (AttributeError, TypeError):  # its forward wants more of its layers than their last hidden state
            return False
        return torch.allclose(whole, apart, rtol=1e-3, atol=1e-3)


class _Given(nn.Module):
    """Stands where the layers are, and gives what they gave before."""

    hidden: torch.Tensor

    @property
    def decoder(self) -> _Given:
        """OPT asks its layers' own decoder."""
        return self

    def forward(self, *_, **__) -> BaseModelOutputWithPastAndCrossAttentions:
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=self.hidden)
