"""Whether a server read a prompt as a whole.

Some servers cut what does not fit into their context, and say nothing. The tokens that they count
are then fewer than the prompt's words, and about as many in half of the prompt.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

CHARACTERS_PER_WORD = 4  # of Chinese and Japanese, which have no spaces between words
SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
FEWEST_WORDS = 500  # words of a request that is looked at
HALF = 0.75  # a larger share of a prompt's tokens is not in half of the prompt
SMALLEST_CONTEXT = 256  # tokens; a count below it is no context of a server
ADVICE = (
    "raise its context (Ollama: OLLAMA_CONTEXT_LENGTH or num_ctx, llama.cpp: --ctx-size, "
    "LM Studio: Context Length), or shorten the prompts (answer.n_shots, answer.passages)"
)


class _Usage(msgspec.Struct):
    """How many tokens were read, and how many of them were in a cache."""

    prompt_tokens: int = 0
    prompt_tokens_details: Any = None
    cache_read_input_tokens: Any = None


class _Used(msgspec.Struct):
    usage: _Usage


def count_words(prompts: Sequence[str | Sequence[int]]) -> int:
    """The words of texts. Prompts of token ids count as none, because they can't be cut unseen."""
    words = 0
    for prompt in prompts:
        if isinstance(prompt, str):
            words += len(prompt.split()) + len(SPACELESS.findall(prompt)) // CHARACTERS_PER_WORD
    return words


def tokens_read(body: bytes) -> int:
    """The tokens of the prompts by the server's count, cached ones included; 0 if it has none.

    Some servers count cached tokens twice then, which errs on the safe side.
    """
    try:
        usage = msgspec.json.decode(body, type=_Used).usage
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
    details = usage.prompt_tokens_details
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    counts = (usage.prompt_tokens, cached, usage.cache_read_input_tokens)
    return sum(count for count in counts if isinstance(count, int))


def are_too_few(tokens: int, words: int) -> bool:
    """Whether a server may have cut a prompt of so many words.

    Most tokenizers make a token or more of each word, but a few put several words into one.
    """
    return words >= FEWEST_WORDS and 0 < tokens < words


def is_cut(tokens: int, tokens_of_half: int) -> bool:
    """Whether a server that counts so many tokens in a prompt, and in half of it, has cut it."""
    return tokens_of_half > HALF * tokens
