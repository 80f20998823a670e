"""A local language model beside plain loops: scoring and short answers.

Every way scores the same (query, document) pairs on one core; that all give the same log-probs is
checked. Here, weights are random in GPT-2 small's shape, beside the published code's loop. The rows
of real weights are those of lm_real.py.

The limit is the product of two large squares in the same number format; its share is of the
products that no way can do without.
"""

from functools import partial
from pathlib import Path

import numpy as np
from transformers import AutoModelForCausalLM, GPT2Config, PreTrainedTokenizerFast

from benchmarks import lm_real, measure, operations, plain_ways
from benchmarks.lm_real import open_model, scores
from benchmarks.measure import Row
from benchmarks.random_models import join_words, write_language_model
from pipelines.lm.language_model import Prompt

PUBLISHED = "one pair at a time, all logits, fp32"
SHAPE = GPT2Config()  # GPT-2 small
TINY = GPT2Config(vocab_size=500, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
DOCUMENTS = 10  # of the query
TOKENS = 128  # of a document, of the context and of the continuation
CLOSE = {"fp32": 1e-4, "bf16": 0.05}  # nats a token between two ways


def rows(quick: bool = False) -> list[Row]:
    with measure.in_folder():
        shape = TINY if quick else SHAPE
        random_weights = compare(shape, rounds=1 if quick else 2)
        return random_weights + lm_real.compare_all(quick)


def compare(shape: GPT2Config, rounds: int) -> list[Row]:
    """The rows of each number format, beside the published code's loop with eager attention."""
    folder = Path("gpt2")
    write_language_model(shape, folder)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=operations.DTYPES["fp32"], attn_implementation="eager"
    ).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    prompts, continuations = make_pairs(shape.vocab_size)

    ways = {"loop": partial(plain_ways.scores, model, tokenizer, 1, prompts, continuations)}
    for dtype in operations.DTYPES:
        lm = open_model(folder, dtype)
        lm.score(prompts, continuations)  # a model's first call takes longer
        ways[dtype] = partial(scores, lm, prompts, continuations)
    runs = measure.in_turns(ways, rounds)

    tokens = 3 * TOKENS
    needed = operations.of_gpt2(read=tokens - 1, predicted=TOKENS, shape=shape)
    loop = runs["loop"]
    table = []
    for dtype, close in CLOSE.items():
        ours = runs[dtype]
        assert np.abs(ours.result - loop.result).mean() < close, f"{dtype} differs"
        row = measure.row(
            f"scoring, GPT-2 small shape, {dtype}",
            PUBLISHED,
            "tokens",
            len(prompts) * tokens,
            loop,
            ours,
            limit=f"products in {dtype}",
            most=operations.products_per_second(dtype) * tokens / needed,
            memory=False,
        )
        table.append(row)
    return table


def make_pairs(vocabulary: int) -> tuple[list[Prompt], list[str]]:
    """A query with DOCUMENTS documents: prompts, and the same continuation for each."""
    draw = np.random.default_rng(0)
    documents = draw.integers(1, vocabulary, (DOCUMENTS, TOKENS))
    context = join_words(draw.integers(1, vocabulary, TOKENS))
    continuation = join_words(draw.integers(1, vocabulary, TOKENS))

    prompts = [Prompt(f"{context} ", f"{join_words(document)} ") for document in documents]
    return prompts, [f"{continuation} "] * DOCUMENTS
