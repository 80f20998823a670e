"""Train a small tokenizer: a byte-level BPE, in which most names of the sample's world are one
token.
"""

import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from pipelines.errors import LongtailError

LONGEST = 1000  # characters without a space that a tokenizer learns from as one; no word is so long
LONG_RUN = re.compile(rf"(\S{{{LONGEST}}})(?=\S)")
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def train_tokenizer(texts: Iterable[str], vocabulary: int, folder: Path) -> None:
    """Train a byte-level BPE of `vocabulary` entries and save it to `folder` in Hugging Face's
    layout.

    The same texts give the same bytes. LongtailError if `vocabulary` has no room for bytes and
    special tokens.
    """
    smallest = 256 + len(SPECIAL_TOKENS)
    if vocabulary < smallest:
        raise LongtailError(f"the vocabulary is {vocabulary}, expected at least {smallest}")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Training looks at a run without spaces again and again, in a time that grows with the square
    # of its length.
    runs = chain.from_iterable(map(LONG_RUN.split, texts))
    tokenizer.train_from_iterator(runs, trainer)
    begin = SPECIAL_TOKENS["bos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A",
        pair=f"{begin} $A $B",
        special_tokens=[(begin, tokenizer.token_to_id(begin))],
    )
    # Raw text has "</s>" as HTML's strike-through; it must not become the token that ends a
    # sequence.
    saved = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        **SPECIAL_TOKENS,
    )
    saved.save_pretrained(folder)
