"""Stage `tokenizer`: the tokenizer that corpora are cut with, trained on raw text or taken from a pretrained model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.corpus.clean import BadWikitext, wikitext_to_text
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.sources import wikipedia
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.streams import source_files
from pipelines.storage import shards
from pipelines.work import stage

if TYPE_CHECKING:
    import tokenizers

SEGMENT = 500_000  # characters
SAMPLE_MB = 20  # megabytes of each data set that a tokenizer learns from
LONGEST = 1000  # characters without a space that a tokenizer learns from as one; no word is so long
LONG_RUN = re.compile(rf"(\S{{{LONGEST}}})(?=\S)")
RAW = Path("data/raw")
OUT = Path("data/models/tokenizer")
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def work(chosen) -> dict[str, float]:
    settings = chosen.tokenizer
    if settings.source == "pretrained":
        copy_pretrained("tokenizer", settings.path, settings.revision, OUT)
    else:
        with shards.atomic(OUT) as folder:
            train_tokenizer(raw_texts(RAW, settings), settings.vocab_size, folder)
    return {"vocabulary": float(open_tokenizer(OUT).get_vocab_size())}


def raw_texts(raw: Path, settings: params.Tokenizer) -> Iterator[str]:
    """The first SAMPLE_MB megabytes of each data set that `tokenizer.text` names; LongtailError if it has no file."""
    for name in settings.text:
        rejects, size = Rejects(1.0), 0  # the stages that keep the documents check the share of bad rows
        parts = (part for file in source_files(raw / name) for part in wikipedia.wikipedia_parts(file))
        for document in (document for part in parts for document in read_raw(name, part, rejects)):
            with suppress(BadWikitext):
                text = wikitext_to_text(document.text) if document.wikitext else document.text
                yield text
                size += len(text.encode("utf-8"))
            if size >= SAMPLE_MB * 1_000_000:
                break


def train_tokenizer(texts: Iterable[str], vocab_size: int, folder: Path) -> None:
    """Train a byte-level BPE of `vocab_size` entries and save it to `folder` in Hugging Face's layout.

    The same texts give the same bytes, because the library breaks ties between merges in a fixed order. Raises
    LongtailError if `vocab_size` leaves no room for the 256 bytes and the special tokens.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    smallest = 256 + len(SPECIAL_TOKENS)
    if vocab_size < smallest:
        raise LongtailError(f"params.yaml: tokenizer.vocab_size is {vocab_size}, expected at least {smallest}")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Training looks at a run without spaces again and again, in a time that grows with the square of its length.
    tokenizer.train_from_iterator(chain.from_iterable(map(LONG_RUN.split, texts)), trainer)
    begin = SPECIAL_TOKENS["bos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A $B", special_tokens=[(begin, tokenizer.token_to_id(begin))]
    )
    # Raw text has "</s>" as HTML's strike-through; it must not become the token that ends a sequence.
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, split_special_tokens=True, clean_up_tokenization_spaces=False, **SPECIAL_TOKENS
    ).save_pretrained(folder)


def copy_pretrained(section: str, path: str | None, revision: str | None, out: Path) -> None:
    """Save a folder's or a Hub model's tokenizer to `out`; LongtailError without path or pinned revision."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not path:
        raise LongtailError(f"params.yaml: {section}.path is null, expected a local folder or a Hub name")
    if not Path(path).is_dir() and not revision:
        raise LongtailError(
            f"params.yaml: {section}.revision is null; {path} is no local folder, and a Hub model needs a pinned commit"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision, use_fast=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise LongtailError(f"{path}: no tokenizer could be loaded: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise LongtailError(f"{path}: {type(tokenizer).__name__} is no fast tokenizer, and token offsets need one")
    with shards.atomic(out) as folder:
        tokenizer.save_pretrained(folder)


def open_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """A folder's tokenizer, to which special tokens' names are plain text; LongtailError without a tokenizer.json."""
    import tokenizers

    file = Path(folder) / "tokenizer.json"
    if not file.is_file():
        raise LongtailError(f"{file}: no such file, expected a fast tokenizer; run the tokenizer stage")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exception
        raise LongtailError(f"{file}: no tokenizer: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def encode(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each text's token ids (tokens,) and their (start, end) characters (tokens, 2); no special tokens, no truncation.

    Long texts are tokenised in `stretches`, so that a book takes little more memory than a page.
    """
    split = [list(stretches(text)) for text in texts]
    encoded = iter(tokenizer.encode_batch([text for parts in split for _, text in parts], add_special_tokens=False))
    results = []
    for parts in split:
        encodings = [(begin, next(encoded)) for begin, _ in parts]
        ids = [np.array(encoding.ids, dtype=np.int64) for _, encoding in encodings]
        spans = [np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2) + begin for begin, encoding in encodings]
        results.append((np.concatenate(ids), np.concatenate(spans)))
    return results


def stretches(text: str) -> Iterator[tuple[int, str]]:
    """(first character, text) of each stretch of up to SEGMENT characters; it ends before a line break if it can."""
    begin = 0
    while len(text) - begin > SEGMENT:
        end = text.rfind("\n", begin + 1, begin + SEGMENT)
        end = end if end > 0 else begin + SEGMENT
        yield begin, text[begin:end]
        begin = end
    yield begin, text[begin:]


if __name__ == "__main__":
    stage.run("tokenizer", ("tokenizer",), work, out=str(OUT))
