"""BM25's index built out of core: postings counted by segments of documents, merged and scored by ranges of terms.

bm25s's own way holds every token of every document as a Python object, so 36 million documents don't fit in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import partial
from itertools import chain, pairwise
from operator import methodcaller
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import params, pool, shards
from pipelines.retrieval import documents
from pipelines.retrieval.meta import describe, fingerprint
from pipelines.retrieval.terms import Analyser

SEGMENT = 1 << 16  # documents counted together: places in a segment fit in 16 bits
POSTINGS = 1 << 23  # merged together; twice as many at most, but for terms that have more by themselves
WORKER = 0.6  # GB that a segment or a merge takes, of passages of 100 words


def build(
    docs: Path, out: Path, *, k1: float, b: float, memory_gb: float, compute: params.Compute, name: str
) -> dict[str, float]:
    """Write the index of all of `docs`, one that bm25s loads, to the folder `out`.

    Segments and merges are mapped over `compute`'s workers, as many as `memory_gb` has room for, and a killed run goes
    on under `name` where it stopped; beside them the vocabulary is in memory, some 250 bytes a term, and scratch files
    take three times the index's disk. Raises LongtailError for no documents.
    """
    count = documents.count(docs)
    key = shards.key_of(fingerprint(docs), Analyser.name, SEGMENT, POSTINGS, k1, b)
    starts = range(0, count, SEGMENT)
    with pool.processes(compute, min(len(starts), int(memory_gb / WORKER))) as executor:
        counted = shards.map_shards(f"{name}.counts", key, partial(_count, docs), starts, executor)
        mean = sum(int(_load(one, "lengths").sum(dtype=np.int64)) for one in counted) / count or 1.0  # no term at all
        merge = partial(_merge, counted, count, mean, k1, b)
        merged = shards.map_shards(f"{name}.scores", key, merge, list(pairwise(_bounds(counted))), executor)
    with shards.atomic(out) as folder:
        folder.mkdir()
        index = _Merged(count, k1, b)
        index.index(merged, create_empty_token=False)
        index.save(folder)
        facts = {"k1": k1, "b": b, "mean_length": mean}
        facts |= {"terms": len(index.vocab_dict) - 1, "postings": len(index.scores["data"])}
        shards.write_json(folder / "meta.json", describe(docs, None, kind="bm25", analyser=Analyser.name, **facts))
    for part in ("counts", "scores"):
        shards.forget(f"{name}.{part}", key)
    return {"documents": float(count), "terms": float(facts["terms"]), "postings": float(facts["postings"])}


def _count(docs: Path, start: int, path: Path) -> None:
    """Which documents of the segment at `start` have each term, in the terms' order, and how often."""
    analyser, parts, lengths = Analyser(), [], []
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    for texts in documents.texts(docs, start, start + SEGMENT):
        found = [analyser.terms(text) for text in texts]
        lengths += map(len, found)
        parts.append(np.fromiter(map(numbers.__getitem__, chain.from_iterable(found)), np.int64))
    terms = sorted(numbers)
    places = np.argsort([numbers[term] for term in terms])
    pairs = places[np.concatenate(parts)] * len(lengths) + np.repeat(np.arange(len(lengths)), lengths)
    pairs, counts = np.unique(pairs, return_counts=True)
    term, document = np.divmod(pairs, len(lengths))
    starts = np.searchsorted(term, np.arange(len(terms) + 1))
    arrays = {"documents": document.astype(np.uint16), "counts": counts.astype(np.int32)}
    _save(path, _strings(terms), **arrays, starts=starts, lengths=np.array(lengths, np.int32))


def _bounds(counted: list[Path]) -> list[str | None]:
    """Terms between which, the next one left out, lie some POSTINGS of all segments; None is behind the last."""
    step, met = max(POSTINGS // len(counted), 1), []
    for one in counted:
        terms, starts = _terms(one), _load(one, "starts")
        places = np.searchsorted(starts, np.arange(step, starts[-1], step), "right") - 1
        met += [terms[place].as_py() for place in places.tolist()]
    return ["", *sorted(set(sorted(met)[len(counted) - 1 :: len(counted)])), None]


def _merge(
    counted: list[Path], count: int, mean: float, k1: float, b: float, bounds: tuple[str, str | None], path: Path
) -> None:
    """The columns of the terms from the first of `bounds` up to the second: documents, and what the term adds to each.

    That is idf * tf / (tf + k1 (1 - b + b length / mean length)), as bm25s has it with method="lucene".
    """
    terms, starts = [], []  # of each segment; a view of an array would leave its file open
    for one in counted:
        own = _terms(one)
        first, last = (len(own) if at is None else bisect_left(own, at, key=methodcaller("as_py")) for at in bounds)
        terms.append(own[first:last])
        starts.append(_load(one, "starts")[first : last + 1].copy())
    encoded = pa.chunked_array(terms).dictionary_encode().combine_chunks()
    order = pc.sort_indices(encoded.dictionary)
    distinct, places = encoded.dictionary.take(order), np.argsort(np.from_dlpack(order))
    columns = np.split(places[np.from_dlpack(encoded.indices)], np.cumsum([len(own) for own in terms])[:-1])
    having = np.zeros(len(distinct), np.int64)
    for own, begins in zip(columns, starts, strict=True):
        having[own] += np.diff(begins)
    idf = np.log1p((count - having + 0.5) / (having + 0.5))
    free = np.cumsum(having) - having  # where the next posting of each column goes
    indices, data = np.empty(having.sum(), np.int32), np.empty(having.sum(), np.float32)
    for number, (one, own, begins) in enumerate(zip(counted, columns, starts, strict=True)):
        place, times = (_load(one, name)[begins[0] : begins[-1]] for name in ("documents", "counts"))
        sizes = np.diff(begins)
        at = np.repeat(free[own] - begins[:-1], sizes) + np.arange(begins[0], begins[-1])
        longer = k1 * (1 - b + b * _load(one, "lengths")[place] / mean)
        indices[at] = place + np.int32(number * SEGMENT)
        data[at] = np.repeat(idf[own], sizes) * times / (times + longer)
        free[own] += sizes
    _save(path, distinct, having=having, indices=indices, data=data)


class _Merged(bm25s.BM25):
    """bm25s's index, of columns that lie on disk: `index` takes the files of _merge."""

    def __init__(self, count: int, k1: float, b: float) -> None:
        super().__init__(k1=k1, b=b)
        self._count, self.nonoccurrence_array = count, None

    def build_index_from_tokens(self, corpus_tokens: list[Path], **_: bool) -> tuple[dict, dict[str, int]]:
        terms = [*chain.from_iterable(_terms(part).to_pylist() for part in corpus_tokens), ""]
        having = np.concatenate(
            [[0], *(np.load(part / "having.npy") for part in corpus_tokens), [0]]
        )  # "" is in no document
        scores = {name: _joined(corpus_tokens, name) for name in ("data", "indices")}
        scores |= {"indptr": np.cumsum(having), "num_docs": self._count}
        return scores, dict(zip(terms, range(len(terms)), strict=True))


def _joined(parts: list[Path], name: str) -> np.ndarray:
    """The parts' arrays of that name behind each other, in a file beside them."""
    ends = np.cumsum([0, *(len(_load(part, name)) for part in parts)])
    kind, file = _load(parts[0], name).dtype, parts[0].with_name(f"{name}.npy")
    whole = np.lib.format.open_memmap(file, "w+", kind, (int(ends[-1]),))
    for part, begin, end in zip(parts, ends, ends[1:], strict=False):
        whole[begin:end] = _load(part, name)
    return whole


def _strings(terms: list[str]) -> pa.Array:
    """As pa.array makes it, which would import pandas, as would numpy's reading of an array but by from_dlpack."""
    pieces = [term.encode() for term in terms]
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(terms), pa.py_buffer(ends), pa.py_buffer(b"".join(pieces)))


def _save(folder: Path, terms: pa.Array, **arrays: np.ndarray) -> None:
    folder.mkdir()
    batch = pa.record_batch([terms], ["terms"])
    with pa.ipc.new_file(folder / "terms.arrow", batch.schema) as file:
        file.write_batch(batch)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def _terms(folder: Path) -> pa.Array:
    return pa.ipc.open_file(pa.memory_map(str(folder / "terms.arrow"))).get_batch(0).column(0)


def _load(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / f"{name}.npy", mmap_mode="r")
