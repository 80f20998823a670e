"""How much a local language model works on at once: tokens, keys and values, and logits.

On a GPU all three follow from its memory beside the weights. On a CPU they are constants, and
`batch_tokens` of the params.
"""

from __future__ import annotations

from typing import NamedTuple

CPU_TOKENS = 4096  # tokens in one forward pass on a CPU, where the params name no number
# Bytes of keys and values on a CPU, or those of `batch_tokens` tokens if that is more.
CPU_CACHE_BYTES = 1 << 29
CPU_LOGITS = 1 << 23  # logits in memory at once on a CPU: 32 MiB
MOST_TOKENS = 65_536  # tokens in one forward pass on a GPU: more bring no speed
# Shares of a GPU's working memory.
CACHE_SHARE = 0.5  # for keys and values
PASS_SHARE = 0.25  # for the states of a forward pass
LOGITS_SHARE = 0.03  # for logits, which are copied some times
# Numbers of a token that a layer holds at once: states, and those between its two products.
STATES_HELD = 8
INNER_STATES_HELD = 3
LOGIT_BYTES = 4


class Sizes(NamedTuple):
    """How much a model works on at once, at most."""

    batch_tokens: int  # in one forward pass
    cache_bytes: int  # of keys and values of texts that are continued together
    logits: int  # in memory


def choose_sizes(model, batch_tokens: int | None) -> Sizes:
    """The sizes for an open model of transformers on its device.

    `batch_tokens` of the params bounds the tokens of a pass; null leaves them to the device.
    """
    from pipelines.work import devices  # imports torch, which a server's answers do without

    weights = list(model.parameters())
    n_devices = len({weight.device for weight in weights})
    bytes_of_weights = sum(weight.nbytes for weight in weights) // n_devices  # on each of them
    memory = devices.working_memory(model.device.type, bytes_of_weights)
    if memory is None:
        return Sizes(batch_tokens or CPU_TOKENS, CPU_CACHE_BYTES, CPU_LOGITS)

    fitting = int(PASS_SHARE * memory) // _bytes_of_token(model)
    most = min(fitting, batch_tokens or MOST_TOKENS)
    return Sizes(
        batch_tokens=max(1, most),
        cache_bytes=int(CACHE_SHARE * memory),
        logits=int(LOGITS_SHARE * memory) // LOGIT_BYTES,
    )


def _bytes_of_token(model) -> int:
    """Bytes that a forward pass takes for a token."""
    config = model.config.get_text_config()
    width = config.hidden_size
    inner_width = getattr(config, "intermediate_size", None) or 4 * width
    numbers = STATES_HELD * width + INNER_STATES_HELD * inner_width
    return numbers * model.dtype.itemsize
