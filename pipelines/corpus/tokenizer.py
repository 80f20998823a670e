"""Stage `tokenizer`: the tokenizer that corpora are cut with, a language model's."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import tokenizers

from pipelines.errors import LongtailError, one_line
from pipelines.params.param_types import Section
from pipelines.params.params import Tokenizer
from pipelines.storage.atomic import atomic
from pipelines.work import stage

SEGMENT = 500_000  # characters of a text that are tokenised at once
OUT = Path("data/models/tokenizer")


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    tokenizer: Tokenizer


def make_tokenizer(settings: Settings) -> dict[str, float]:
    """Copy the tokenizer; return the size of its vocabulary."""
    copy_pretrained("tokenizer", settings.tokenizer.path, settings.tokenizer.revision, OUT)
    return {"vocabulary": float(open_tokenizer(OUT).get_vocab_size())}


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
        message = one_line(error)[:300]
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
