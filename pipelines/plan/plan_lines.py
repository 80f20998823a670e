"""`longtail plan`: a forecast as lines for people, and as plain values for programs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pipelines.plan.forecast import Forecast, Memory, Work, show_number
from pipelines.plan.speed import H200
from pipelines.retrieval.dense_build import GIB


def plan_lines(plan: Forecast) -> Iterator[str]:
    """The plan as lines: documents, a table of what models read, and space."""
    yield f"profile {plan.profile}, on {_device(plan)}"
    yield f"documents: {_documents(plan)}"
    yield ""
    if plan.work:
        yield from _table_lines([*plan.work, plan.together])
    else:
        yield "no model reads anything"
    yield ""

    if plan.unknown:
        advice = "`hf download NAME config.json` brings one, or write them into plan.models"
        yield "download: an unknown size of weights"
        yield (
            f"unknown: the sizes of {', '.join(plan.unknown)}, whose config.json is not at hand; "
            f"{advice}"
        )
    if plan.download is not None:
        yield f"download: {_gigabytes(plan.download)} of weights"
    for memory in plan.memory:
        yield _memory_line(memory)
    if plan.disk is None:
        yield "disk: an unknown size of embeddings"
    else:
        yield f"disk: {_gigabytes(plan.disk)} of embeddings"
    for path, size in plan.published.items():
        read = "unknown" if size is None else _gigabytes(size)
        yield f"disk: published vectors are read from {path}, {read}"


def plan_as_json(plan: Forecast) -> dict[str, Any]:
    """The plan as plain values; docs/command-line.md lists the keys. Null: unknown."""
    documents = []
    for corpus, size in plan.documents.items():
        documents.append({"corpus": corpus} | asdict(size))
    memory = []
    for model in plan.memory:
        row = {"model": model.model, "dtype": model.dtype, "weights_bytes": model.weights}
        row["training_bytes"] = model.training
        row["index_bytes"] = model.index.memory if model.index else None
        row["part_bytes"] = model.part
        memory.append(row)
    published = []
    for path, size in plan.published.items():
        published.append({"path": path, "bytes": size})
    return {
        "profile": plan.profile,
        "device": plan.device,
        "documents": documents,
        "work": [_work_as_json(work) for work in plan.work],
        "together": _work_as_json(plan.together),
        "unknown": plan.unknown,
        "download_bytes": plan.download,
        "memory": memory,
        "embeddings_bytes": plan.disk,
        "published": published,
    }


def _work_as_json(work: Work) -> dict[str, Any]:
    return {
        "label": work.label,
        "tokens": work.tokens,
        "tokens_per_second": work.rate,
        "hours": work.hours,
        "cost": work.cost,
        "note": work.note,
    }


def _device(plan: Forecast) -> str:
    if plan.device == H200:
        return "one H200 or H100, by measured rates; this machine has no GPU"
    return f"this machine's {plan.device}"


def _documents(plan: Forecast) -> str:
    words = []
    for corpus, size in plan.documents.items():
        if size.documents is None:
            words.append(f"{corpus} {size.source}")
        else:
            words.append(f"{corpus} {size.documents:,} ({size.source})")
    return ", ".join(words) or "none"


def _table_lines(rows: Sequence[Work]) -> Iterator[str]:
    table = [("", "tokens", "tokens/s", "takes", "")]
    for row in rows:
        tokens = show_number(row.tokens)
        rate = show_number(row.rate)
        table.append((row.label, tokens, rate, _hours(row.hours), row.note))

    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for label, *numbers, note in table:
        line = f"{label:{widths[0]}}"
        for text, width in zip(numbers, widths[1:-1], strict=True):
            line += f"  {text:>{width}}"
        yield f"{line}  {note}".rstrip()


def _hours(hours: float | None) -> str:
    if hours is None:
        return "unknown"
    digits = 2 if hours < 100 else 0
    return f"{hours:,.{digits}f} h"


def _memory_line(memory: Memory) -> str:
    weights = f"{_gibibytes(memory.weights)} of weights in {memory.dtype}"
    line = f"memory: {memory.model} {weights}"
    if memory.training:
        trained = _gibibytes(memory.training)
        line += f"; to train it {trained}, and the texts of lsr.micro_batch"
    if memory.index:
        index = _gibibytes(memory.index.memory)
        line += f"; its largest index {index} ({memory.index.reason})"
    if memory.part:
        line += f"; of its published vectors {_gibibytes(memory.part)} at a time"
    return line


def _gigabytes(size: int) -> str:
    return _in_tenths(size / 1e9, "GB")


def _gibibytes(size: int) -> str:
    return _in_tenths(size / GIB, "GiB")


def _in_tenths(size: float, unit: str) -> str:
    if 0 < size < 0.1:
        return f"less than 0.1 {unit}"
    return f"{size:,.1f} {unit}"
