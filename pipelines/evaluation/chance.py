"""Chance: how well a uniform guess over a language model's vocabulary predicts a text.

A uniform guess over V tokens has a perplexity by token of V. It needs tokens x log2 V / bytes bits
per byte. A model is worse than chance by both measures, or by none.
"""

from pathlib import Path

from pipelines.intervals import Interval
from pipelines.storage.atomic import read_json


def vocabulary_size(folder: Path) -> int | None:
    """How many tokens a language model guesses among, by its files in `folder`.

    This is what config.json says, or else the size of tokenizer.json, which is all that is here of
    a model on a server. None if neither is there.
    """
    config_file = folder / "config.json"
    if config_file.is_file():
        config = read_json(config_file)
        text_config = config.get("text_config") or {}
        return config.get("vocab_size") or text_config.get("vocab_size")

    tokenizer_file = folder / "tokenizer.json"
    if tokenizer_file.is_file():
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(tokenizer_file)).get_vocab_size()
    return None


def worse_than_chance(perplexity: Interval, vocabulary: int | None) -> str:
    """Why scores on a text are no evidence: the model is not clearly better than chance on it.

    `perplexity` is the model's by token, without documents. "" if the model is better, or if the
    size of its `vocabulary` is not known.
    """
    if not vocabulary or not perplexity.high >= vocabulary:
        return ""
    how = "worse" if perplexity.low > vocabulary else "not clearly better"
    return (
        f"Without documents the model predicts this text {how} than a uniform guess over its "
        f"{vocabulary:,} tokens would."
    )
