"""Whether a server read a prompt as a whole.

Some servers cut what does not fit into their context, and say nothing. They may count fewer tokens
than the prompt has words, the size of a context, or as many as in another prompt that is longer. A
server that does is asked for half of the prompt and for twice the prompt, where it counts about as
many tokens if it cuts.
"""

import re

CHARACTERS_PER_WORD = 4  # of Chinese and Japanese, which have no spaces between words
SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
SMALLEST_CONTEXT = 256  # tokens; a count below it is no context of a server
SIZES_OF_CONTEXTS = 1024  # tokens; sizes of contexts are powers of two, or multiples of this
UNEQUAL = 1.05  # a prompt with so many times the words of another has not as many tokens
LONGER = 1.5  # a prompt with so many times the words of another has more tokens
NEW_TOKENS = 64  # the most tokens of what makes a prompt new to a cache
HALF = 0.75  # a larger share of a prompt's tokens is not in half of the prompt
TWICE = 1.02  # twice the prompt has more than so many times its tokens
ADVICE = (
    "raise its context (Ollama: OLLAMA_CONTEXT_LENGTH or num_ctx, llama.cpp: --ctx-size, "
    "LM Studio: Context Length), or shorten the prompts (answer.n_shots, answer.passages)"
)


def count_words(prompt: str) -> int:
    """The words of a text."""
    return len(prompt.split()) + len(SPACELESS.findall(prompt)) // CHARACTERS_PER_WORD


class Counts:
    """The tokens that a server counted in prompts, which tell whether it may have cut one."""

    def __init__(self) -> None:
        self._most_tokens = 0  # in one of the prompts so far
        self._words = 0  # the fewest words of the prompts that have so many tokens

    def may_be_cut(self, tokens: int, words: int) -> bool:
        """Whether a server that counts so many tokens may have cut a prompt of so many words.

        Most tokenizers make a token or more of each word, but a few put several words into one.
        """
        if words < SMALLEST_CONTEXT or not tokens:
            return False
        if tokens < words or is_round(tokens):
            return True
        if tokens > self._most_tokens:
            self._most_tokens = tokens
            self._words = words
            return False
        if tokens < self._most_tokens:
            return words > LONGER * self._words
        shorter = min(words, self._words)
        longer = max(words, self._words)
        self._words = shorter
        return longer > UNEQUAL * shorter


def is_round(tokens: int) -> bool:
    """Whether contexts have such a size."""
    return tokens % SIZES_OF_CONTEXTS == 0 or tokens.bit_count() == 1


def is_cut(tokens: int, of_half: int, of_twice: int) -> bool:
    """Whether a server that counts so many tokens in a prompt, in half and twice of it, cuts it."""
    return of_half > HALF * tokens or 0 < of_twice < TWICE * tokens
