"""`longtail plan --device` and `--measure`: hours, money and memory of a run by the number of a cluster's workers.

A worker is one GPU of devices.yaml, or a process of this machine whose speed is measured. Work on texts is divided into
shards, so it takes a worker's seconds divided by the number of workers. One worker trains. Every worker opens every
model itself.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import yaml

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.lsr import plan, speed, workload
from pipelines.retrieval.index_plan import GIB

WORKERS = (1, 2, 4, 8, 16, 32, 64)
NETWORK = 1.25e9  # bytes per second between two workers: 10 Gbit/s
READING = 1e9  # bytes of weights that a worker reads from its disk in a second


class Part(NamedTuple):
    """Work that workers share, and what goes with it."""

    label: str
    shared: float  # seconds of one worker
    most: int | None = None  # workers that can share it; None: any number
    each: float = 0.0  # seconds that every worker takes besides
    summed: float = 0.0  # bytes of gradients that the workers sum

    def seconds(self, workers: int) -> float:
        """Seconds on so many workers; each sends and receives twice what it sums, but for its own part (a ring)."""
        sharing = min(workers, self.most or workers)
        return self.shared / sharing + self.each + 2 * (sharing - 1) / sharing * self.summed / NETWORK


def devices() -> dict[str, speed.Device]:
    """The GPUs of devices.yaml, by name."""
    table = yaml.safe_load(Path(__file__).with_name("devices.yaml").read_text(encoding="utf-8"))
    return {
        name: speed.Device(name, row["memory"] * GIB, 1e12 * row["fp32"], 1e12 * row["half"])
        for name, row in table.items()
    }


def device(name: str) -> speed.Device:
    """The GPU of this name; LongtailError for a name that devices.yaml lacks."""
    known = devices()
    if name not in known:
        raise LongtailError(f"--device: no {name} in pipelines/lsr/devices.yaml, expected one of {', '.join(known)}")
    return known[name]


def forecast(params: SimpleNamespace, gpu: speed.Device | None, price: float | None) -> list[str]:
    """The plan for a cluster of GPUs, or without `gpu` of processes such as this machine's, as lines.

    `price` is that of a worker's hour.
    """
    rows, unknown = parts(params, gpu)
    needed, memory = worker_memory(params), gpu.memory if gpu else psutil.virtual_memory().total
    what = f"one {gpu.name} each, at {speed.SHARE:.0%} of its stated speed" if gpu else "processes as fast as one here"
    lines = [
        f"workers: {what}; {8 * NETWORK / 1e9:g} Gbit/s between them",
        "",
        f"{'workers':>7} {'hours':>9} {'money':>10} {'efficiency':>10}  longest part",
    ]
    alone = sum(part.seconds(1) for part in rows)
    for workers in WORKERS if alone else ():
        took = sum(part.seconds(workers) for part in rows)
        money = f"{took / 3600 * workers * price:,.2f}" if price is not None else "-"
        longest = max(rows, key=lambda part: part.seconds(workers))
        at_most = f"; at most {longest.most} share it" if longest.most and longest.most < workers else ""
        lines.append(
            f"{workers:>7} {took / 3600:>9.3g} {money:>10} {alone / took / workers:>10.0%}  "
            f"{longest.label}, {longest.seconds(workers) / took:.0%}{at_most}"
        )
    lines.append("")
    for label, size in needed.items():
        fits = "" if size <= memory else f": more than a worker's {memory / GIB:.0f} GiB"
        lines.append(f"memory of a worker: {label} {size / GIB:.1f} GiB{fits}")
    if unknown:
        lines.append(f"not counted: what is asked of {', '.join(unknown)}, whose sizes are not known")
    return [*lines, "not counted: reading dumps, searching and building lists, starting processes, sending shards"]


def parts(params: SimpleNamespace, gpu: speed.Device | None) -> tuple[list[Part], list[str]]:
    """What a run's models do, with the seconds of one worker, and the names of that of which these are unknown."""
    alone = SimpleNamespace(**{**vars(params), "compute": params.compute.model_copy(update={"workers": 1})})
    alone.gpu = gpu
    counts, _ = plan.documents_by_corpus(alone)
    rows, gradients = [], {}
    for name in params.retrievers:
        of_retriever, tuned = methods.with_retriever(alone, name), name in params.parts.tuned
        made = (plan.tuned_rows if tuned else plan.untuned_rows)(of_retriever, counts)[0]
        rows += [row._replace(label=f"{name}, {row.label}") for row in made]
        if tuned:
            encoder, _ = speed.shape_of(
                speed.MODELS / "retriever" / name, of_retriever.retriever, speed.CONTRIEVER, params.made
            )
            gradients[f"{name}, training"] = (
                params.lsr.steps * 4 * (encoder.weights + encoder.vocabulary * encoder.hidden)
            )
    sizes = workload.sizes(alone)
    rows += plan.lm_rows(alone, sizes)
    stages = sum(len(reading.stages) for reading in workload.readings(params))
    weights = {
        name: plan.BYTES[params.lm[name].dtype] * (sizes[name].parameters or 0) for name in params.lms if name in sizes
    }
    known = []
    for row in rows:
        if row.rate and row.tokens:
            most = 1 if row.label in gradients else row.most
            seconds, summed = row.tokens / row.rate.tokens, gradients.get(row.label, 0.0)
            known.append(Part(row.label, seconds, most, summed=summed))
    known += [Part(f"{name}, opening", 0.0, each=stages * size / READING) for name, size in weights.items()]
    return known, list(dict.fromkeys(row.label.partition(",")[0] for row in rows if row.rate is None))


def worker_memory(params: SimpleNamespace) -> dict[str, float]:
    """Bytes that a worker needs at most for each kind of work: weights, and in training what goes with them."""
    needed = {}
    sizes = workload.sizes(params)
    for name, size in sizes.items():
        dtype = params.lm[name].dtype if name in params.lm else "fp32"
        if size.parameters:
            needed[f"{name}, weights"] = plan.BYTES[dtype] * size.parameters
    for name in params.parts.tuned:
        of_retriever = methods.with_retriever(params, name)
        folder = speed.MODELS / "retriever" / name
        encoder, _ = speed.shape_of(folder, of_retriever.retriever, speed.CONTRIEVER, params.made)
        counts, _ = plan.documents_by_corpus(params)
        at_once = plan.amounts(of_retriever, counts, plan.queries_to_learn_from(params)).at_once
        needed[f"{name}, training"] = sum(plan.training_bytes(of_retriever, at_once, encoder))
    return needed
