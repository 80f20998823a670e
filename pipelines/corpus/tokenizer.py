"""Stage `tokenizer`: the tokenizer that corpora are cut with, trained on raw text or taken from a pretrained model.

`open_encoder` gives texts as its tokens, with the byte where each token ends: what cutting needs.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tiktoken
import tokenizers
from tiktoken_ext.openai_public import r50k_pat_str
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from pipelines.corpus.clean import BadWikitext, wikitext_to_text
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.sources import wikipedia
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.streams import source_files
from pipelines.storage.atomic import atomic
from pipelines.work import stage

SEGMENT = 500_000  # characters
SAMPLE_MB = 20  # megabytes of each data set that a tokenizer learns from
LONGEST = 1000  # characters without a space that a tokenizer learns from as one; no word is so long
LONG_RUN = re.compile(rf"(\S{{{LONGEST}}})(?=\S)")
RAW = Path("data/raw")
OUT = Path("data/models/tokenizer")
CONTINUES = 0b10  # the first two bits of every byte of a character but its first
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def work(chosen) -> dict[str, float]:
    settings = chosen.tokenizer
    if settings.source == "pretrained":
        copy_pretrained("tokenizer", settings.path, settings.revision, OUT)
    else:
        with atomic(OUT) as folder:
            train_tokenizer(raw_texts(RAW, settings), settings.vocab_size, folder)
    return {"vocabulary": float(open_tokenizer(OUT).get_vocab_size())}


def raw_texts(raw: Path, settings: params.Tokenizer) -> Iterator[str]:
    """The first SAMPLE_MB megabytes of each data set that `tokenizer.text` names; LongtailError if it has no file."""
    for name in settings.text:
        rejects, size = (
            Rejects(1.0),
            0,
        )  # the stages that keep the documents check the share of bad rows
        parts = chain.from_iterable(map(wikipedia.wikipedia_parts, source_files(raw / name)))
        for document in chain.from_iterable(read_raw(name, part, rejects) for part in parts):
            with suppress(BadWikitext):
                text = wikitext_to_text(document.text) if document.wikitext else document.text
                yield text
                size += len(text.encode("utf-8"))
            if size >= SAMPLE_MB * 1_000_000:
                break


def train_tokenizer(texts: Iterable[str], vocab_size: int, folder: Path) -> None:
    """Train a byte-level BPE of `vocab_size` entries and save it to `folder` in Hugging Face's layout.

    The same texts give the same bytes. LongtailError if `vocab_size` has no room for bytes and special tokens.
    """
    from transformers import PreTrainedTokenizerFast

    smallest = 256 + len(SPECIAL_TOKENS)
    if vocab_size < smallest:
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
    # Training looks at a run without spaces again and again, in a time that grows with the square of its length.
    tokenizer.train_from_iterator(chain.from_iterable(map(LONG_RUN.split, texts)), trainer)
    begin = SPECIAL_TOKENS["bos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A",
        pair=f"{begin} $A $B",
        special_tokens=[(begin, tokenizer.token_to_id(begin))],
    )
    # Raw text has "</s>" as HTML's strike-through; it must not become the token that ends a sequence.
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        **SPECIAL_TOKENS,
    ).save_pretrained(folder)


def copy_pretrained(section: str, path: str | None, revision: str | None, out: Path) -> None:
    """Save a folder's or a Hub model's tokenizer to `out`; LongtailError without path or pinned revision."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not path:
        raise LongtailError(
            f"params.yaml: {section}.path is null, expected a local folder or a Hub name"
        )
    if not Path(path).is_dir() and not revision:
        raise LongtailError(
            f"params.yaml: {section}.revision is null; {path} is no local folder, and a Hub model needs a pinned commit"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path, revision=revision, use_fast=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        raise LongtailError(
            f"{path}: no tokenizer could be loaded: {' '.join(str(error).split())[:300]}"
        ) from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise LongtailError(
            f"{path}: {type(tokenizer).__name__} is no fast tokenizer, and token offsets need one"
        )
    with atomic(out) as folder:
        tokenizer.save_pretrained(folder)


def open_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """A folder's tokenizer, to which special tokens' names are plain text; LongtailError without a tokenizer.json."""
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
    """Each text's token ids (tokens,) and their (start, end) characters (tokens, 2); no special tokens, no truncation.

    Long texts are tokenised in `stretches`, so that a book takes little more memory than a page.
    """
    split = [list(stretches(text)) for text in texts]
    encoded = iter(
        tokenizer.encode_batch(
            [text for parts in split for _, text in parts], add_special_tokens=False
        )
    )
    results = []
    for parts in split:
        encodings = [(begin, next(encoded)) for begin, _ in parts]
        ids = [np.array(encoding.ids, dtype=np.int64) for _, encoding in encodings]
        spans = [
            np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2) + begin
            for begin, encoding in encodings
        ]
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


class Tokens(NamedTuple):
    """The tokens of a text."""

    ids: np.ndarray  # (tokens,) uint32
    bounds: (
        np.ndarray
    )  # (tokens + 1,) int64: the bytes of `data` between which tokens lie; -1 inside a character
    data: bytes  # the text in UTF-8

    def text(self, begin: int, end: int) -> str:
        """The text of the tokens from `begin` up to, without, `end`."""
        return self.data[self.bounds[begin] : self.bounds[end]].decode()


Encoder = Callable[[Sequence[str]], list[Tokens]]


def open_encoder(folder: Path) -> Encoder:
    """The tokenizer of a Hugging Face folder as a function of texts; raises LongtailError as `open_tokenizer` does.

    A byte-level BPE like GPT-2's runs in tiktoken, six times as fast; its tokens spell the text's bytes, so no offsets
    are needed. Any other tokenizer runs in `tokenizers`, which gives offsets.
    """
    tokenizer = open_tokenizer(folder)
    ranks = byte_pairs(tokenizer)
    return _by_tiktoken(ranks) if ranks else _by_offsets(tokenizer)


def byte_pairs(tokenizer: tokenizers.Tokenizer) -> dict[bytes, int] | None:
    """The id of each token's bytes if tiktoken gives the same ids as `tokenizer`, else None.

    tiktoken joins any two neighbours that make a token, the lowest id first; `tokenizers` follows its list of merges.
    Both give the same ids if ids have the order of the merges, each token has one merge, and the bytes of every token
    are merged to that token.
    """
    config = json.loads(tokenizer.to_str())
    model, split = config["model"], config["pre_tokenizer"] or {}
    options = (
        "dropout",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "byte_fallback",
        "ignore_merges",
    )
    splitting = split.get("type"), split.get("add_prefix_space"), split.get("use_regex", True)
    if (
        model["type"] != "BPE"
        or any(model.get(name) for name in options)
        or config["normalizer"] is not None
        or splitting != ("ByteLevel", False, True)
        or not all(token["special"] for token in config["added_tokens"])
    ):
        return None
    vocabulary = model["vocab"]
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    merged = ["".join(pair) for pair in pairs]
    ids = [vocabulary[token] for token in merged]
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {chr(byte): byte for byte in shown} | {
        chr(256 + i): byte for i, byte in enumerate(hidden)
    }  # GPT-2's
    if (
        any(second <= first for first, second in pairwise(ids))
        or not set(pre_tokenizers.ByteLevel.alphabet()) <= vocabulary.keys()
        or any(
            [part.value for part in tokenizer.model.tokenize(token)] != [token] for token in merged
        )
    ):
        return None
    return {bytes(letters[c] for c in token): vocabulary[token] for token in [*letters, *merged]}


def _by_tiktoken(ranks: dict[bytes, int]) -> Encoder:
    """A byte-level BPE with these tokens, whose lengths say where each ends."""
    # Without a special token, tiktoken would look for the empty text. This one, where a text has it, is text too.
    special = {"<|special|>": max(ranks.values()) + 1}
    encoding = tiktoken.Encoding(
        "longtail", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens=special
    )
    lengths = np.zeros(max(ranks.values()) + 1, dtype=np.int64)
    lengths[list(ranks.values())] = [len(token) for token in ranks]

    def tokens(text: str) -> Tokens:
        data, parts = text.encode("utf-8"), (part for _, part in stretches(text))
        ids = np.concatenate(
            [encoding.encode_to_numpy(part, disallowed_special=()) for part in parts]
        )
        bounds = np.concatenate([[0], np.cumsum(lengths[ids])])
        assert len(data) == bounds[-1], "tokens don't spell their text"
        following = np.frombuffer(data + b" ", dtype=np.uint8)[bounds]
        return Tokens(ids, np.where(following >> 6 == CONTINUES, -1, bounds), data)

    return lambda texts: list(map(tokens, texts))


def _by_offsets(tokenizer: tokenizers.Tokenizer) -> Encoder:
    """Any fast tokenizer, with the offsets of its tokens."""
    # RoBERTa's offsets leave out a token's leading space, so that a token of nothing else would have no bytes.
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)

    def tokens(text: str, ids: np.ndarray, offsets: np.ndarray) -> Tokens:
        data, characters = text.encode("utf-8"), np.maximum.accumulate(offsets[:, 1])
        ends = np.flatnonzero(np.frombuffer(data + b" ", dtype=np.uint8) >> 6 != CONTINUES)[
            characters
        ]
        # Each of several tokens that spell a character spans the whole character, so a token that starts before the
        # end of an earlier token continues a character.
        ends[:-1][offsets[1:, 0] < characters[:-1]] = -1
        ends[-1:] = len(
            data
        )  # text that the tokenizer leaves out at the end belongs to the last token
        return Tokens(ids.astype(np.uint32), np.concatenate([[0], ends]), data)

    return lambda texts: [
        tokens(text, *of) for text, of in zip(texts, encode(tokenizer, texts), strict=True)
    ]


if __name__ == "__main__":
    stage.run("tokenizer", ("tokenizer",), work, out=str(OUT))
