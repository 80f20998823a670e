"""A device on which works are timed, how much of them is done there, and the rows of the table.

Seconds are by the clock, and a GPU's queued work counts. The limit of a row is the speed of matrix
products alone.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import BertConfig, LlamaConfig

from benchmarks import encoder_speed, measure, operations
from benchmarks.measure import Row
from flows import profiles
from pipelines.params import params_file
from pipelines.params.params import Params
from pipelines.plan import speed

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class LanguageModelSize:
    shape: LlamaConfig
    questions: int  # without passages; fewer with passages
    queries: int  # that are scored


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    encoder: BertConfig
    language_models: dict[str, LanguageModelSize]
    texts: int
    steps: int  # of LSR
    batch_size: int  # queries of a step
    top_k: int  # documents of each query
    embeddings: int
    dimensions: int
    searches: int
    rounds: int


def llama(
    width: int, layers: int, inner_width: int, key_value_heads: int, words: int
) -> LlamaConfig:
    """The shape of a language model whose heads are 64 wide, or 128 from a width of 4,096 on."""
    heads = width // (128 if width >= 4096 else 64)
    return LlamaConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        intermediate_size=inner_width,
        num_attention_heads=heads,
        num_key_value_heads=min(heads, key_value_heads),
        vocab_size=words,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )


FULL = Sizes(
    encoder=encoder_speed.SHAPE,
    language_models={
        "1 B": LanguageModelSize(llama(2048, 16, 8192, 8, 32_000), questions=1024, queries=300),
        "7 B": LanguageModelSize(llama(4096, 32, 11_008, 32, 32_000), questions=512, queries=80),
    },
    texts=40_000,
    steps=20,
    batch_size=16,
    top_k=20,
    embeddings=2_000_000,
    dimensions=768,
    searches=4096,
    rounds=2,
)
QUICK = Sizes(
    encoder=encoder_speed.SMALL,
    language_models={"tiny": LanguageModelSize(llama(64, 2, 128, 1, 500), questions=32, queries=2)},
    texts=16,
    steps=2,
    batch_size=2,
    top_k=3,
    embeddings=1000,
    dimensions=32,
    searches=20,
    rounds=1,
)


@dataclass(frozen=True)
class Comparison:
    """A work that is done in two ways."""

    work: str
    unit: str
    size: int  # units of the work
    operations: float  # multiplications and additions of the whole work in any way
    peer: str
    plain: Callable[[], Any]
    ours: Callable[[], Any]
    agree: Callable[[Any, Any, "Device"], bool]


class Device:
    """A device with its number format: bf16 on a GPU, fp32 on a CPU."""

    def __init__(self, name: str, sizes: Sizes) -> None:
        self.name = name
        self.is_gpu = name == "cuda"
        self.sizes = sizes
        self.number_format = "bf16" if self.is_gpu else "fp32"
        self.dtype = operations.DTYPES[self.number_format]
        threads = os.cpu_count() if self.is_gpu else 1
        changes = {"device": name, "threads": threads}
        self.compute = measure.compute().model_copy(update=changes)
        device = speed.GPU if self.is_gpu else speed.CPU
        self.products = speed.matrix_products(self.compute.threads, device, self.is_gpu)

    def row(self, comparison: Comparison) -> Row:
        """The row of the table; raises where the two ways do not agree."""
        works = {
            "plain": partial(self._finish, comparison.plain),
            "ours": partial(self._finish, comparison.ours),
        }
        runs = measure.in_turns(works, self.sizes.rounds)
        plain = runs["plain"]
        ours = runs["ours"]
        if not comparison.agree(plain.result, ours.result, self):
            raise AssertionError(f"{comparison.work}: {comparison.peer} gives other results")
        return measure.row(
            f"{comparison.work}, {self.number_format}",
            comparison.peer,
            comparison.unit,
            comparison.size,
            plain,
            ours,
            limit=f"products in {self.number_format}",
            most=self.products * comparison.size / comparison.operations,
            wall=True,
            memory=False,
        )

    def _finish(self, way: Callable[[], Any]) -> Any:
        """The result of a way, once the device has done all."""
        result = way()
        if self.is_gpu:
            torch.cuda.synchronize()
        return result


def read_profile(name: str, device: Device) -> Params:
    """The params of a paper's profile on this device."""
    values = yaml.safe_load(profiles.compose(name, ROOT))
    return params_file.parse(values).model_copy(update={"compute": device.compute})
