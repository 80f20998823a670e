"""A corpus's embeddings (REPLUG §3.1), stored in fp16 and read from disk.

Many processes make them, shard by shard.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import code
from pipelines.work.executors import visible_gpus
from pipelines.work.workers import Model, Steps, Workers, map_texts

if TYPE_CHECKING:
    from pipelines.retrieval.encoder import Encoder

SHARD = 10_000  # documents: a tenth of a row group of docs.parquet
FEWEST_SHARDS = 64  # of a corpus: enough work for many processes
MOST_SHARDS = 4096  # of a corpus: fewer than the memory maps that a process may have
LEAST_SHARD = 100  # documents in a shard of a small corpus
PROCESS_BYTES = 10**9  # besides the weights: torch, and the texts and states of a batch

Range = tuple[int, int]  # positions of documents: the first, and one past the last


class Embeddings:
    """The shards 000000.npy, 000001.npy … of a folder as one (count, dim) array of fp16.

    It is read from disk when needed.
    """

    def __init__(self, folder: Path) -> None:
        """Raises LongtailError if a shard is missing."""
        self.files = sorted(Path(folder).glob("*.npy"))
        last = len(self.files) - 1
        if not self.files or self.files[last].stem != f"{last:06d}":
            raise LongtailError(
                f"{folder}: {len(self.files)} shards of embeddings, expected 000000.npy and so on "
                "without a gap; `longtail run` makes it anew"
            )
        self._open = cache(self._map_shard)
        self._shard_size, self.dim = self._open(0).shape
        self.count = last * self._shard_size + len(self._open(last))

    def _map_shard(self, number: int) -> np.ndarray:
        return map_array(self.files[number])

    def rows(self, start: int, stop: int, dtype: type = np.float32) -> np.ndarray:
        """The embeddings of documents `start` to `stop`, (n, dim) of the type, a copy."""
        stop = min(stop, self.count)
        size = self._shard_size
        shards: list[np.ndarray] = [np.empty((0, self.dim), dtype)]
        for first in range(start - start % size, stop, size):
            shard = self._open(first // size)
            shards.append(shard[max(start - first, 0) : stop - first])
        return np.concatenate(shards)

    def take(self, positions: np.ndarray) -> np.ndarray:
        """The embeddings at `positions` (n,), in any order, (n, dim) float32; read by shard."""
        result = np.empty((len(positions), self.dim), np.float32)
        for number, rows, places in by_shard(np.asarray(positions, np.int64), self._shard_size):
            result[places] = self._open(number)[rows]
        return result


def embed_corpus(
    docs: Path,
    model: Path,
    out: Path,
    *,
    retriever: params.Retriever,
    compute: params.Compute,
    name: str,
    positions: np.ndarray | None = None,
) -> Embeddings:
    """Embed `docs` (docs.parquet), titles and texts, with the encoder in `model`, into `out`.

    With `positions` (n,), ascending, only these documents are embedded. `compute`'s processes, one
    a core, GPUs or a cluster do the work. Shards are kept under `name` until
    `forget_embeddings(name)`, so that a killed run continues. Raises LongtailError for an empty
    corpus.
    """
    import torch

    from pipelines.retrieval.encoder import Encoder

    if positions is None:
        positions = np.arange(documents.count_documents(docs))
    shards = [positions[start:stop] for start, stop in shard_ranges(len(positions))]
    texts = partial(_texts, docs, retriever.document)
    # One thread a process, so that the number of cores can't change a byte.
    processes = max(compute.workers, compute.threads)
    compute = compute.model_copy(update={"threads": 1, "workers": processes})
    n_threads = torch.get_num_threads()
    try:
        encoder = Encoder.open(model, retriever, compute)
        chosen = hashlib.blake2b(positions.tobytes()).hexdigest()
        result_depends_on = (retriever, compute.device, encoder.numerics, chosen)
        key = content_key(result_depends_on, code.fingerprint(__name__), docs, model)
        if compute.device == "cuda" and not compute.dask and len(visible_gpus()) < 2:
            files = _embed_on_gpu(encoder, texts, shards, name, key)
        else:
            steps = Steps(read=texts, work=_embed, write=_write, length=_characters)
            sizes = [len(shard) for shard in shards]
            with Workers(_for_workers(encoder, model, compute), compute, encoder) as workers:
                del encoder  # workers may close it, to have its memory
                files = map_texts(workers, name, key, shards, steps, sizes=sizes, unit="document")
    finally:
        torch.set_num_threads(n_threads)

    with atomic(out) as folder:
        link_shards(files, folder)
    return Embeddings(out)


def shard_ranges(count: int) -> list[Range]:
    """The ranges of documents that are embedded together."""
    share_of_fewest = -(-count // FEWEST_SHARDS)
    share_of_most = -(-count // MOST_SHARDS)
    size = max(min(SHARD, max(LEAST_SHARD, share_of_fewest)), share_of_most)
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def by_shard(
    positions: np.ndarray, shard_size: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the number of each shard that has some of the documents at `positions` (n,).

    Beside it are these documents' rows in the shard, and their places in `positions`.
    """
    order = np.argsort(positions)
    numbers, rows = np.divmod(positions[order], shard_size)
    cuts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for begin, end in pairwise([*cuts, len(order)]):
        yield int(numbers[begin]), rows[begin:end], order[begin:end]


def shard_path(folder: Path, number: int) -> Path:
    """Where `Embeddings` looks for a shard."""
    return folder / f"{number:06d}.npy"


def link_shards(files: Sequence[Path], folder: Path) -> None:
    """Make the `files` the shards of a new folder, as links where the file system has links."""
    folder.mkdir()
    for number, file in enumerate(files):
        shard = shard_path(folder, number)
        try:
            os.link(file, shard)
        except OSError:  # a file system without links
            shutil.copyfile(file, shard)


def _embed_on_gpu(
    encoder: Encoder,
    texts: Callable[[np.ndarray], list[str]],
    shards: Sequence[np.ndarray],
    name: str,
    key: str,
) -> list[Path]:
    """Embed in this process: a thread reads or writes a shard while the GPU embeds another."""

    def embed_shard(positions: np.ndarray, path: Path) -> None:
        _write(positions, _embed(encoder, texts(positions)), path)

    threads = ThreadPoolExecutor(2)
    try:
        return WorkStore().parts(name, key, shards, embed_shard, threads)
    finally:
        threads.shutdown(cancel_futures=True)


def _for_workers(encoder: Encoder, folder: Path, compute: params.Compute) -> Model:
    """What workers need to know to open the encoder, and how large it is."""
    from pipelines.retrieval.encoder import Encoder

    multiplied = 0  # weights that a token's states are multiplied by: all but the embeddings
    for name, weight in encoder.documents.model.named_parameters():
        if not name.startswith("embeddings."):
            multiplied += weight.numel()
    weights = sum(weight.numel() for weight in encoder.parameters())
    return Model(
        open=Encoder.open,
        folder=folder,
        settings=(encoder.settings, compute, encoder.numerics),
        parameters=multiplied,
        bytes=PROCESS_BYTES + 4 * weights,
    )


def forget_embeddings(name: str) -> None:
    """Remove the shards kept under `name`, once the result made of them is written."""
    WorkStore().forget(name)


def _texts(docs: Path, template: str, positions: np.ndarray) -> list[str]:
    """The texts of the documents at `positions` (n,), ascending."""
    texts: list[str] = []
    start = int(positions[0])
    for batch in documents.filled(docs, start, int(positions[-1]) + 1, template):
        stop = start + len(batch)
        first, last = np.searchsorted(positions, (start, stop))
        texts += [batch[i] for i in positions[first:last] - start]
        start = stop
    return texts


def _characters(texts: list[str]) -> int:
    return sum(map(len, texts))


def _embed(encoder: Encoder, texts: list[str]) -> np.ndarray:
    return encoder.embed(texts).astype(np.float16)


def _write(_: np.ndarray, vectors: np.ndarray, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, vectors)


def map_array(file: Path) -> np.ndarray:
    """A .npy file's array, memory-mapped; unlike by np.load, the file is closed."""
    with pa.memory_map(str(file)) as source:
        buffer = source.read_buffer()
    header = io.BytesIO(buffer[:1024].to_pybytes())
    try:
        np.lib.format.read_magic(header)
        shape, _, dtype = np.lib.format.read_array_header_1_0(header)
        return np.frombuffer(buffer, dtype, offset=header.tell()).reshape(shape)
    except ValueError as error:
        raise LongtailError(
            f"{file}: damaged ({error}), expected embeddings; `longtail run` makes it anew"
        ) from None
