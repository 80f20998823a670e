"""A corpus's embeddings (REPLUG §3.1): made shard by shard by many processes, kept in fp16, read from disk."""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import params, shards
from pipelines.errors import LongtailError
from pipelines.pool import processes
from pipelines.retrieval import documents

if TYPE_CHECKING:
    from pipelines.retrieval.encoder import Encoder, Numerics

SHARD = 10_000  # documents: a tenth of a row group of docs.parquet
FEWEST, MOST = 64, 4096  # shards of a corpus: work for many processes, and maps that a system allows one of
LEAST = 100  # documents of a shard of a small corpus
WORTH = 4e12  # floating-point operations, some 20 seconds of a core: less is not worth a process


class Embeddings:
    """The shards 000000.npy, 000001.npy … of a folder as one (count, dim) array of fp16, of which nothing is in memory.

    `scattered` says that single rows are wanted, so that the system need not read on beyond each. Raises
    LongtailError where the folder has no shards, or lacks one.
    """

    def __init__(self, folder: Path, scattered: bool = False) -> None:
        self._scattered = scattered
        self._files = sorted(Path(folder).glob("*.npy"))
        if not self._files or self._files[-1].stem != f"{len(self._files) - 1:06d}":
            raise LongtailError(
                f"{folder}: {len(self._files)} shards of embeddings, expected 000000.npy and so on without a gap; "
                "run the stage `index` again"
            )
        self._opened: dict[int, np.ndarray] = {}
        self._shard, self.dim = self._open(0).shape
        self.count = (len(self._files) - 1) * self._shard + len(self._open(len(self._files) - 1))

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The embeddings of documents `start` to `stop`, (n, dim) float32."""
        stop = max(start, min(stop, self.count))
        result = np.empty((stop - start, self.dim), np.float32)
        for first in range(start - start % self._shard, stop, self._shard):
            begin, end = max(start, first), min(stop, first + self._shard)
            result[begin - start : end - start] = self._open(first // self._shard)[begin - first : end - first]
        return result

    def take(self, positions: np.ndarray) -> np.ndarray:
        """The embeddings at `positions` (n,), in any order, (n, dim) float32; read from shard to shard."""
        result = np.empty((len(positions), self.dim), np.float32)
        order = np.argsort(positions)
        number, row = np.divmod(np.asarray(positions, np.int64)[order], self._shard)
        cuts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
        for begin, end in pairwise([*cuts, len(order)]):
            result[order[begin:end]] = self._open(int(number[begin]))[row[begin:end]]
        return result

    def _open(self, number: int) -> np.ndarray:
        if number not in self._opened:
            self._opened[number] = _mapped(self._files[number], self._scattered)
        return self._opened[number]


def embed_corpus(docs: Path, model: Path, out: Path, params: SimpleNamespace, name: str) -> Embeddings:
    """Embed the texts of `docs` (docs.parquet) with the encoder in `model` into the folder `out`.

    Work goes to `params.compute`'s processes, a core each, or to its GPU. A killed run goes on from its last whole
    shard; shards are kept under `name` until `forget(name)`. Raises LongtailError for an empty corpus.
    """
    import torch

    from pipelines.retrieval.encoder import Encoder

    compute = params.compute.model_copy(update={"threads": 1, "workers": _cores(params.compute)})
    count = documents.count(docs)
    size = max(min(SHARD, max(LEAST, -(-count // FEWEST))), -(-count // MOST))
    stretches = [(start, min(start + size, count)) for start in range(0, count, size)]
    threads = torch.get_num_threads()
    try:
        encoder = Encoder.open(model, params.retriever, compute)
        key = shards.key_of(docs, model, params.retriever, compute.device, encoder.numerics)
        with _executor(compute, _worth(encoder, count)) as executor:
            if executor is None or isinstance(executor, ThreadPoolExecutor):
                work = partial(_embed, encoder, docs)
            else:
                work = partial(_embed_elsewhere, key, model, params.retriever, compute, encoder.numerics, docs)
                del encoder
            files = shards.map_shards(name, key, work, stretches, executor)
    finally:
        torch.set_num_threads(threads)
    with shards.atomic(out) as folder:
        folder.mkdir()
        for number, file in enumerate(files):
            _link(file, folder / f"{number:06d}.npy")
    return Embeddings(out)


def forget(name: str) -> None:
    """Remove the shards kept under `name`, once what was made of them is written."""
    for folder in (shards.SCRATCH / "shards").glob(f"{name}-{'?' * 16}"):  # any key
        shards.forget(*folder.name.rsplit("-", 1))


def _cores(compute: params.Compute) -> int:
    """A process for each core that the stage may take: one thread each, so that their number can't change a byte."""
    return max(compute.workers, compute.threads)


def _worth(encoder: Encoder, count: int) -> int:
    """How many processes the work is worth: a multiplication and an addition for each weight and token."""
    named = encoder.documents.model.named_parameters()
    weights = sum(one.numel() for name, one in named if not name.startswith("embeddings."))
    return int(2.0 * weights * count * encoder.documents.max_tokens / WORTH)


@contextmanager
def _executor(compute: params.Compute, most: int) -> Iterator[Executor | None]:
    if compute.device == "cpu" or compute.executor == "dask":
        with processes(compute, most) as executor:
            yield executor
        return
    threads = ThreadPoolExecutor(2)  # the next shard is read and tokenised while the GPU is at this one
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)


def _embed(encoder: Encoder, docs: Path, stretch: tuple[int, int], path: Path) -> None:
    vectors = encoder.embed(_texts(docs, *stretch)).astype(np.float16)
    with path.open("wb") as file:
        np.save(file, vectors)


def _embed_elsewhere(
    key: str,
    model: Path,
    retriever: params.Retriever,
    compute: params.Compute,
    numerics: Numerics,
    docs: Path,
    stretch: tuple[int, int],
    path: Path,
) -> None:
    _embed(_opened(key, model, retriever, compute, numerics), docs, stretch, path)


@lru_cache(maxsize=1)
def _opened(key: str, model: Path, retriever: params.Retriever, compute: params.Compute, numerics: Numerics) -> Encoder:
    """The encoder in a worker, which lives for many shards; `key` stands for its bytes."""
    from pipelines.retrieval.encoder import Encoder

    return Encoder.open(model, retriever, compute, numerics)


def _texts(docs: Path, start: int, stop: int) -> list[str]:
    """A stretch of the documents' texts, by reading only the row groups that it lies in."""
    file = pq.ParquetFile(docs)
    groups = range(file.num_row_groups)
    ends = np.cumsum([file.metadata.row_group(number).num_rows for number in groups])
    first, last = np.searchsorted(ends, [start, stop - 1], "right")
    read = file.read_row_groups(groups[first : last + 1], columns=["text"])["text"]
    skipped = start - (ends[first - 1] if first else 0)
    return read.slice(skipped, stop - start).to_pylist()


def _mapped(file: Path, scattered: bool) -> np.ndarray:
    """A .npy file's array (rows, dim), memory-mapped; unlike np.load, not a file stays open for each."""
    with pa.memory_map(str(file)) as source:
        buffer = source.read_buffer()
    if scattered:  # 80 rows from a cold disk took 40 ms without, 9 with
        page = buffer.address % mmap.PAGESIZE
        ctypes.CDLL(None).madvise(
            ctypes.c_void_p(buffer.address - page), ctypes.c_size_t(buffer.size + page), mmap.MADV_RANDOM
        )
    header = io.BytesIO(buffer[:1024].to_pybytes())
    np.lib.format.read_magic(header)
    shape, _, dtype = np.lib.format.read_array_header_1_0(header)
    return np.frombuffer(buffer, dtype, offset=header.tell()).reshape(shape)


def _link(file: Path, target: Path) -> None:
    """The same file under another name; a copy where the file system can't."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)
