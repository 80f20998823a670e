"""Small local models for tests: of every family, opened, with pairs to score, and what the
model reads.
"""

from contextlib import contextmanager

import tiny_models
import torch
from tiny_models import DECODER, SPECIAL
from transformers import AutoConfig, AutoModelForCausalLM

from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel

OF_FEW_KEYS = DECODER | {"num_key_value_heads": 2}  # grouped-query attention
FAMILIES = {
    "gpt2": {"n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3},
    "opt": DECODER | SPECIAL | {"ffn_dim": 48, "word_embed_proj_dim": 16, "init_std": 0.3},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3, "pad_token_id": 2},
    # Every layer looks back 8 tokens only.
    "mistral": OF_FEW_KEYS | {"sliding_window": 8},
    # The logits are capped after the output embedding.
    "gemma2": OF_FEW_KEYS | SPECIAL | {"head_dim": 8, "sliding_window": 8, "final_logit_softcapping": 2.0},
    # Every other layer looks back 8 tokens only, which the cache does not know.
    "gpt_neo": {
        "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 128, "window_size": 8,
        "attention_types": [[["global", "local"], 1]], "initializer_range": 0.3,
    },
    # The decoder alone, in which padding takes positions.
    "bart": {
        "d_model": 32, "decoder_ffn_dim": 48, "decoder_layers": 2, "decoder_attention_heads": 4,
        "max_position_embeddings": 128, "init_std": 0.3, **SPECIAL,
    },
    # Recurrent: there are no keys and values.
    "mamba": {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "time_step_rank": 4},
    # A convolution in one layer and attention in the other, each with a cache of its own.
    "lfm2": OF_FEW_KEYS | {"layer_types": ["conv", "full_attention"]},
}  # fmt: skip


def save_family(family, folder, *, bos=True, **changes):
    """A small model of the family with random weights, in `folder`, with its tokenizer."""
    tokenizer = tiny_models.tokenizer(bos=bos)
    torch.manual_seed(0)
    config = {"vocab_size": len(tokenizer)} | FAMILIES.get(family, DECODER) | changes
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **config))
    if family == "mamba":  # else its outputs are all alike
        with torch.no_grad():
            model.get_input_embeddings().weight.normal_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def open_model(folder, batch_tokens=700, dtype="fp32", **changes):
    return LocalModel(
        folder,
        name="tiny",
        dtype=dtype,
        batch_tokens=batch_tokens,
        device="cpu",
        threads=1,
        **changes,
    )


def pairs(n=40):
    documents = ["", *[text + "\n" for text in tiny_models.words(n - 1, 1, at_most=15)]]
    contexts = tiny_models.words(n, 2, at_most=12)
    continuations = [" " + text for text in tiny_models.words(n, 3, at_most=10)]
    return [Prompt(c, d) for c, d in zip(contexts, documents, strict=True)], continuations


def encode(lm, text):
    return lm.tokenizer(text, add_special_tokens=False)["input_ids"]


@contextmanager
def counted(lm):
    """The shapes of the token ids that the model reads in the meantime, in order."""
    shapes = []
    layer = lm.model.get_input_embeddings()
    hook = layer.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    try:
        yield shapes
    finally:
        hook.remove()
