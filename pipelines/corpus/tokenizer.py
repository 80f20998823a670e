"""Stage `tokenizer`: the tokenizer that corpora are cut with, trained on raw text or taken from a
pretrained model.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from pipelines.corpus.clean import BadWikitext, wikitext_to_text
from pipelines.errors import LongtailError
from pipelines.params.param_types import Section
from pipelines.params.params import Tokenizer
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import Raw, read_raw
from pipelines.sources.streams import source_files
from pipelines.sources.wikipedia import source_parts
from pipelines.storage.atomic import atomic
from pipelines.work import stage

SEGMENT = 500_000  # characters of a text that are tokenised at once
SAMPLE_MB = 20  # megabytes of each data set that a tokenizer learns from
LONGEST = 1000  # characters without a space that a tokenizer learns from as one; no word is so long
LONG_RUN = re.compile(rf"(\S{{{LONGEST}}})(?=\S)")
RAW = Path("data/raw")
OUT = Path("data/models/tokenizer")
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    tokenizer: Tokenizer


def make_tokenizer(settings: Settings) -> dict[str, float]:
    """Train the tokenizer or copy it; return the size of its vocabulary."""
    section = settings.tokenizer
    if section.source == "pretrained":
        copy_pretrained("tokenizer", section.path, section.revision, OUT)
    else:
        with atomic(OUT) as folder:
            train_tokenizer(raw_texts(RAW, section), section.vocab_size, folder)
    return {"vocabulary": float(open_tokenizer(OUT).get_vocab_size())}


def raw_texts(raw: Path, section: Tokenizer) -> Iterator[str]:
    """The first SAMPLE_MB megabytes of each data set that `tokenizer.text` names; LongtailError if
    it has no file.
    """
    for name in section.text:
        n_bytes = 0
        for document in _documents(raw, name):
            with suppress(BadWikitext):
                text = document.text
                if document.wikitext:
                    text = wikitext_to_text(text)
                yield text
                n_bytes += len(text.encode("utf-8"))
            if n_bytes >= SAMPLE_MB * 1_000_000:
                break


def _documents(raw: Path, name: str) -> Iterator[Raw]:
    """A data set's documents. The stages that keep the documents check the share of bad rows."""
    rejects = Rejects(1.0)
    for part in source_parts(*source_files(raw / name)):
        yield from read_raw(name, part, rejects)


def train_tokenizer(texts: Iterable[str], vocab_size: int | None, folder: Path) -> None:
    """Train a byte-level BPE of `vocab_size` entries and save it to `folder` in Hugging Face's
    layout.

    The same texts give the same bytes. LongtailError if `vocab_size` has no room for bytes and
    special tokens.
    """
    from transformers import PreTrainedTokenizerFast

    smallest = 256 + len(SPECIAL_TOKENS)
    if vocab_size is None or vocab_size < smallest:
        raise LongtailError(
            f"params.yaml: tokenizer.vocab_size is {vocab_size}, expected at least {smallest}"
        )
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
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


def copy_pretrained(section: str, path: str | None, revision: str | None, out: Path) -> None:
    """Save a folder's or a Hub model's tokenizer to `out`; LongtailError without path or pinned
    revision.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not path:
        raise LongtailError(
            f"params.yaml: {section}.path is null, expected a local folder or a Hub name"
        )
    if not Path(path).is_dir() and not revision:
        raise LongtailError(
            f"params.yaml: {section}.revision is null; {path} is no local folder, and a Hub model "
            "needs a pinned commit"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path, revision=revision, use_fast=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        message = " ".join(str(error).split())[:300]
        raise LongtailError(f"{path}: no tokenizer could be loaded: {message}") from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise LongtailError(
            f"{path}: {type(tokenizer).__name__} is no fast tokenizer, and token offsets need one"
        )
    with atomic(out) as folder:
        tokenizer.save_pretrained(folder)


def open_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """A folder's tokenizer, to which special tokens' names are plain text; LongtailError without a
    tokenizer.json.
    """
    file = Path(folder) / "tokenizer.json"
    if not file.is_file():
        raise LongtailError(
            f"{file}: no such file, expected a fast tokenizer; run the tokenizer stage"
        )
    try:
        tokenizer = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exception
        raise LongtailError(f"{file}: no tokenizer: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def encode(
    tokenizer: tokenizers.Tokenizer, texts: Sequence[str]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each text's token ids (tokens,) and their (start, end) characters (tokens, 2); no special
    tokens, no truncation.

    Long texts are tokenised in `stretches`, so that a book takes little more memory than a page.
    """
    stretches_of = [list(stretches(text)) for text in texts]
    flat = [stretch for _, stretch in chain.from_iterable(stretches_of)]
    encodings = iter(tokenizer.encode_batch(flat, add_special_tokens=False))

    results = []
    for parts in stretches_of:
        ids = []
        spans = []
        for begin, _ in parts:
            encoding = next(encodings)
            ids.append(np.array(encoding.ids, dtype=np.int64))
            spans.append(np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2) + begin)
        results.append((np.concatenate(ids), np.concatenate(spans)))
    return results


def stretches(text: str) -> Iterator[tuple[int, str]]:
    """(first character, text) of each stretch of up to SEGMENT characters; it ends before a line
    break if it can.
    """
    begin = 0
    while len(text) - begin > SEGMENT:
        end = text.rfind("\n", begin + 1, begin + SEGMENT)
        if end < 0:
            end = begin + SEGMENT
        yield begin, text[begin:end]
        begin = end
    yield begin, text[begin:]


def main() -> None:
    stage.run("tokenizer", Settings, make_tokenizer, out=str(OUT))


if __name__ == "__main__":
    main()
