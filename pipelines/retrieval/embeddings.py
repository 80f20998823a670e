"""A corpus's embeddings (REPLUG §3.1): made shard by shard by many processes, stored in fp16, read from disk."""

from __future__ import annotations

import io
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.retrieval import documents
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import WorkStore, key_of, map_shards
from pipelines.work.executors import visible_gpus
from pipelines.work.workers import Model, Steps, Workers, map_texts

if TYPE_CHECKING:
    from pipelines.retrieval.encoder import Encoder

SHARD = 10_000  # documents: a tenth of a row group of docs.parquet
# Number of shards of a corpus: enough work for many processes, and fewer than the memory maps that a process may have
FEWEST, MOST = 64, 4096
LEAST = 100  # documents in a shard of a small corpus
PROCESS = (
    10**9
)  # bytes that a process takes besides the weights: torch, and the texts and states of a batch


class Embeddings:
    """The shards 000000.npy, 000001.npy … of a folder as one (count, dim) array of fp16, read from disk when needed."""

    def __init__(self, folder: Path) -> None:
        """Raises LongtailError if a shard is missing."""
        self._files = sorted(Path(folder).glob("*.npy"))
        if not self._files or self._files[-1].stem != f"{len(self._files) - 1:06d}":
            raise LongtailError(
                f"{folder}: {len(self._files)} shards of embeddings, expected 000000.npy and so on without a gap; "
                "run the stage `index` again"
            )
        self._open = cache(lambda number: _mapped(self._files[number]))
        self._shard_size, self.dim = self._open(0).shape
        self.count = (len(self._files) - 1) * self._shard_size + len(
            self._open(len(self._files) - 1)
        )

    def rows(self, start: int, stop: int, dtype: type = np.float32) -> np.ndarray:
        """The embeddings of documents `start` to `stop`, (n, dim) of the type, a copy."""
        stop, size = min(stop, self.count), self._shard_size
        firsts = range(start - start % size, stop, size)
        shards = [
            self._open(first // size)[max(start - first, 0) : stop - first] for first in firsts
        ]
        return np.concatenate([np.empty((0, self.dim), dtype), *shards])

    def take(self, positions: np.ndarray) -> np.ndarray:
        """The embeddings at `positions` (n,), in any order, (n, dim) float32; read shard by shard."""
        result = np.empty((len(positions), self.dim), np.float32)
        order = np.argsort(positions)
        number, row = np.divmod(np.asarray(positions, np.int64)[order], self._shard_size)
        cuts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
        for begin, end in pairwise([*cuts, len(order)]):
            result[order[begin:end]] = self._open(int(number[begin]))[row[begin:end]]
        return result


def embed_corpus(
    docs: Path, model: Path, out: Path, params: SimpleNamespace, name: str
) -> Embeddings:
    """Embed `docs` (docs.parquet), titles and texts, with the encoder in `model` into the folder `out`.

    `params.compute`'s processes, one a core, GPUs or a cluster do the work. Shards are kept under `name` until
    `forget_embeddings(name)`, so that a killed run continues. LongtailError for an empty corpus.
    """
    import torch

    from pipelines.retrieval.encoder import Encoder

    # one thread a process, so that the number of cores can't change a byte
    n_processes = max(params.compute.workers, params.compute.threads)
    compute = params.compute.model_copy(update={"threads": 1, "workers": n_processes})
    count = documents.count_documents(docs)
    size = max(min(SHARD, max(LEAST, -(-count // FEWEST))), -(-count // MOST))
    ranges = [(start, min(start + size, count)) for start in range(0, count, size)]
    n_threads = torch.get_num_threads()
    try:
        encoder = Encoder.open(model, params.retriever, compute)
        key = key_of(docs, model, params.retriever, compute.device, encoder.numerics)
        texts = partial(_texts, docs, params.retriever.document)
        if compute.device == "cuda" and compute.executor == "local" and len(visible_gpus()) < 2:

            def work(positions: tuple[int, int], path: Path) -> None:
                _write(positions, _embed(encoder, texts(positions)), path)

            threads = ThreadPoolExecutor(
                2
            )  # one reads and tokenises the next shard while the GPU works on the other's
            try:
                files = map_shards(name, key, work, ranges, threads)
            finally:
                threads.shutdown(cancel_futures=True)
        else:
            of_documents = encoder.documents.model.named_parameters()
            multiplying = sum(
                weight.numel() for of, weight in of_documents if not of.startswith("embeddings.")
            )
            memory = PROCESS + 4 * sum(weight.numel() for weight in encoder.parameters())
            settings = (params.retriever, compute, encoder.numerics)
            sizes = [stop - start for start, stop in ranges]
            steps = Steps(texts, _embed, _write, lambda texts: sum(map(len, texts)))
            with Workers(
                Model(Encoder.open, model, settings, multiplying, memory), compute, encoder
            ) as many:
                del encoder
                files = map_texts(many, name, key, ranges, steps, sizes=sizes, unit="document")
    finally:
        torch.set_num_threads(n_threads)
    with atomic(out) as folder:
        folder.mkdir()
        for number, file in enumerate(files):
            try:
                os.link(file, folder / f"{number:06d}.npy")
            except OSError:  # a file system without links
                shutil.copyfile(file, folder / f"{number:06d}.npy")
    return Embeddings(out)


def forget_embeddings(name: str) -> None:
    """Remove the shards kept under `name`, once the result made of them is written."""
    WorkStore().forget(name)


def _texts(docs: Path, template: str, positions: tuple[int, int]) -> list[str]:
    return [text for batch in documents.filled(docs, *positions, template) for text in batch]


def _embed(encoder: Encoder, texts: list[str]) -> np.ndarray:
    return encoder.embed(texts).astype(np.float16)


def _write(_: tuple[int, int], vectors: np.ndarray, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, vectors)


def _mapped(file: Path) -> np.ndarray:
    """A .npy file's array (rows, dim), memory-mapped; unlike with np.load, the file does not stay open."""
    with pa.memory_map(str(file)) as source:
        buffer = source.read_buffer()
    header = io.BytesIO(buffer[:1024].to_pybytes())
    try:
        np.lib.format.read_magic(header)
        shape, _, dtype = np.lib.format.read_array_header_1_0(header)
        return np.frombuffer(buffer, dtype, offset=header.tell()).reshape(shape)
    except ValueError as error:
        raise LongtailError(
            f"{file}: damaged ({error}), expected embeddings; run the stage `index` again"
        ) from None
