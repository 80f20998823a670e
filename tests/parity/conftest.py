"""Real passages, real questions, and the real language model that other libraries are compared
on.
"""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from pipelines.lm.local import LocalModel


class Passage(NamedTuple):
    text: str
    title: str


@pytest.fixture(scope="session")
def passages(real: Path) -> list[Passage]:
    """9,995 passages of Wikipedia in DPR's layout."""
    with gzip.open(real / "passages/psgs_w100.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        return [Passage(row["text"], row["title"]) for row in csv.DictReader(file, delimiter="\t")]


@pytest.fixture(scope="session")
def popqa(real: Path) -> list[dict[str, str]]:
    """PopQA's rows whose subjects the passages speak of."""
    with (real / "passages/popQA_covered.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.fixture(scope="session")
def pile(real: Path) -> list[str]:
    """The texts of a sample of the Pile."""
    with (real / "pile/pile_sample.jsonl.zst").open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        return [json.loads(line)["text"] for line in lines]


@pytest.fixture(scope="session")
def smollm(real_models: Path) -> LocalModel:
    return LocalModel(
        real_models / "smollm2-135m",
        name="smollm2",
        dtype="fp32",
        batch_tokens=4096,
        device="cpu",
        threads=1,
    )
