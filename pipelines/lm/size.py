"""How large a language model is, and of which family, without loading it."""

from __future__ import annotations

import json
import math
from pathlib import Path


def parameters(folder: Path) -> int | None:
    """How many parameters the weights in `folder` have, by the headers of its safetensors files; None without any.

    A tensor that two names share is stored, and so counted, once. The attention masks that GPT-2's files keep beside
    the weights are no parameters: they are called a bias, but have more than one dimension.
    """
    shapes: dict[str, list[int]] = {}
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        shapes |= {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}
    counted = [shape for name, shape in shapes.items() if not (name.endswith(".bias") and len(shape) > 1)]
    return sum(map(math.prod, counted)) if counted else None


def family(folder: Path) -> str | None:
    """The architecture that config.json in `folder` names, as gpt2, opt or bloom; None where it names none."""
    file = folder / "config.json"
    return json.loads(file.read_text(encoding="utf-8")).get("model_type") if file.is_file() else None
