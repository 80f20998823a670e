"""Small models with random weights in Hugging Face's layout, for tests that need a real one and
not a good one.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tokenizers import ByteLevelBPETokenizer, processors
from transformers import (
    BertConfig,
    BertModel,
    DPRConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from pipelines.params import params

TEXT = [
    "The capital of Norland is Velm. Mira Tosh was born in Velm and wrote The Long Field.",
    "Q: What is the capital of Norland? A: Velm",
    "Q: Who is the author of The Long Field? A: Mira Tosh",
    "Ødegård façade, naïve café, 東京 and Санкт-Петербург, 🙂🙃 emoji, tabs\tand  spaces.",
]


CHAT = (
    "{{ bos_token }}system: Answer.{{ eos_token }}{% for message in messages %}{{ message.role }}: "
    "{{ message.content | trim }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}"
)
SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
ENCODER = SHAPE | {"num_hidden_layers": 1, "pad_token_id": 2, "initializer_range": 0.3}
DECODER = SHAPE | {"num_hidden_layers": 2, "initializer_range": 0.3}


def tokenizer(*, bos: bool = True) -> PreTrainedTokenizerFast:
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        TEXT * 3, vocab_size=400, min_frequency=2, special_tokens=["<s>", "</s>", "<pad>"]
    )
    if bos:
        bpe._tokenizer.post_processor = processors.TemplateProcessing(
            "<s> $A", special_tokens=[("<s>", 0)]
        )
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer, **special, model_max_length=128, chat_template=CHAT
    )


def save(
    folder: Path, make: Callable, config: type, own: PreTrainedTokenizerFast, seed: int = 0, **shape
) -> Path:
    """A model `make(config)` with weights drawn by `seed`, and its tokenizer."""
    torch.manual_seed(seed)
    make(config(vocab_size=len(own), **shape)).save_pretrained(folder)
    own.save_pretrained(folder)
    return folder


def language_model(
    folder: Path, *, bos: bool = True, positions: int = 128, scale: float = 0.3
) -> Path:
    shape = DECODER | SPECIAL | {"max_position_embeddings": positions, "initializer_range": scale}
    return save(folder, LlamaForCausalLM, LlamaConfig, tokenizer(bos=bos), **shape)


def saying(
    folder: Path, template: str, said: dict[str, list[str]], *, special: tuple[str, ...] = ()
) -> Path:
    """A chat model that says certain words after a token, each after the word before.

    The keys of `said` are tokens. No word may come twice. `special` are special tokens.
    """
    own = tokenizer()
    own.chat_template = template
    own.add_tokens([*special], special_tokens=True)
    for start, following in said.items():
        own.add_tokens([start, *following])
    size = len(own)
    shape = SPECIAL | {"hidden_size": size, "intermediate_size": 8, "head_dim": 16}
    one_layer = {"num_hidden_layers": 1, "num_attention_heads": 1, "max_position_embeddings": 128}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=size, **shape, **one_layer))
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()
        model.model.norm.weight.fill_(1.0)
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        for start, following in said.items():
            ids = own.convert_tokens_to_ids([start, *following, own.eos_token])
            model.lm_head.weight[ids[1:], ids[:-1]] = 1.0
    model.save_pretrained(folder)
    own.save_pretrained(folder)
    return folder


def encoder(folder: Path, *, seed: int = 0, spread: float = 0.3, size: int = 32) -> Path:
    shape = ENCODER | {"hidden_size": size, "initializer_range": spread}
    return save(
        folder,
        partial(BertModel, add_pooling_layer=False),
        BertConfig,
        tokenizer(bos=False),
        seed,
        **shape,
    )


def dpr(folder: Path, kind: type[PreTrainedModel], seed: int) -> Path:
    """One of DPR's towers: DPRContextEncoder or DPRQuestionEncoder."""
    return save(folder, kind, DPRConfig, tokenizer(), seed, **ENCODER)


def retriever(**changes) -> params.Retriever:
    """The params of `encoder`, some of them changed."""
    plain = {
        "path": None, "revision": None, "query_path": None, "query_revision": None,
        "pooling": "mean", "similarity": "cosine", "query_prefix": "", "document": "{title} {text}", "dtype": "fp32",
        "max_tokens": 64,
    }  # fmt: skip
    return params.Retriever(**plain | changes)


def local_lm(**changes) -> params.LM:
    """The params of `language_model`, some of them changed."""
    plain = {
        "path": None,
        "revision": None,
        "http": None,
        "dtype": "fp32",
        "batch_tokens": 1024,
        "chat": False,
        "n_shots": None,
    }
    return params.LM(**plain | changes)


def compute(**changes) -> params.Compute:
    """One thread in one process, but for what is changed."""
    plain = {"threads": 1, "workers": 1, "dask": None, "device": "cpu"}
    return params.Compute(**plain | changes)


def words(n: int, seed: int, *, at_least: int = 1, at_most: int = 40) -> list[str]:
    """Texts of words of TEXT, of many lengths."""
    draw = np.random.default_rng(seed)
    vocabulary = " ".join(TEXT).split()
    return [
        " ".join(draw.choice(vocabulary, draw.integers(at_least, at_most + 1))) for _ in range(n)
    ]
