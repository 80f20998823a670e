"""Models with random weights, in any shape, and texts of made-up words that are a token each."""

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

ENCODER_WORDS = 30_000
ENCODER_SPECIAL = ("[PAD]", "[CLS]", "[SEP]")


def random_words(draw: np.random.Generator, count: int, words: int = ENCODER_WORDS) -> str:
    """A text of so many words, of w1 to the vocabulary's last."""
    return join_words(draw.integers(1, words, count))


def join_words(numbers: np.ndarray) -> str:
    return " ".join(f"w{number}" for number in numbers)


def write_language_model(
    shape: PreTrainedConfig,
    folder: Path,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> None:
    """Random weights, drawn on `device`, and a tokenizer whose tokens are the words w0, w1, ..."""
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(shape, dtype=dtype)
    model.save_pretrained(folder)

    vocabulary = {f"w{number}": number for number in range(shape.vocab_size)}
    words = _split_at_spaces(vocabulary, unknown="w0")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="w0", eos_token="w0", pad_token="w0"
    )
    tokenizer.save_pretrained(folder)


def write_encoder(shape: BertConfig, folder: Path) -> None:
    """Random weights, and a tokenizer whose tokens are the words w0, w1, ... and special ones."""
    torch.manual_seed(0)
    model = BertModel(shape, add_pooling_layer=False)
    model.save_pretrained(folder)

    tokens = [*ENCODER_SPECIAL, *(f"w{number}" for number in range(ENCODER_WORDS))]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    words = _split_at_spaces(vocabulary)
    words.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    tokenizer.save_pretrained(folder)


def _split_at_spaces(vocabulary: dict[str, int], unknown: str = "<unk>") -> Tokenizer:
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return words
