"""Encoders with random weights, in any shape, and texts of made-up words that are a token each."""

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

ENCODER_WORDS = 30_000
ENCODER_SPECIAL = ("[PAD]", "[CLS]", "[SEP]")


def join_words(numbers: np.ndarray) -> str:
    return " ".join(f"w{number}" for number in numbers)


def write_encoder(shape: BertConfig, folder: Path) -> None:
    """Random weights, and a tokenizer whose tokens are the words w0, w1, ... and special ones."""
    torch.manual_seed(0)
    model = BertModel(shape, add_pooling_layer=False)
    model.save_pretrained(folder)

    tokens = [*ENCODER_SPECIAL, *(f"w{number}" for number in range(ENCODER_WORDS))]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    tokenizer.save_pretrained(folder)
