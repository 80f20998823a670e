"""Small local models for tests: open one, make pairs to score, and watch what the model reads."""

from contextlib import contextmanager

import tiny_models

from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel


def open_model(folder, batch_tokens=700, dtype="fp32"):
    return LocalModel(folder, name="tiny", dtype=dtype, batch_tokens=batch_tokens, device="cpu", threads=1)


def pairs(n=40):
    documents = ["", *[text + "\n" for text in tiny_models.words(n - 1, 1, at_most=15)]]
    contexts = tiny_models.words(n, 2, at_most=12)
    continuations = [" " + text for text in tiny_models.words(n, 3, at_most=10)]
    return [Prompt(c, d) for c, d in zip(contexts, documents, strict=True)], continuations


def encode(lm, text):
    return lm.tokenizer(text, add_special_tokens=False)["input_ids"]


@contextmanager
def counted(lm):
    """The shapes of the token ids that the model reads in the meantime, in order."""
    shapes = []
    layer = lm.model.get_input_embeddings()
    hook = layer.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    try:
        yield shapes
    finally:
        hook.remove()
