"""BM25's index built out of core: postings counted by segments of documents, merged and scored by ranges of terms.

bm25s's own way holds every token of every document as a Python object, so 36 million documents don't fit in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from itertools import pairwise
from operator import methodcaller
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import params, pool, shards
from pipelines.retrieval import documents
from pipelines.retrieval.meta import describe, fingerprint
from pipelines.retrieval.terms import VOCABULARY, Analyser, strings

SEGMENT = 1 << 16  # documents counted together: places in a segment fit in 16 bits
POSTINGS = 1 << 23  # merged together; twice as many at most, but for terms that have more by themselves
WORKER = 0.6  # GB that a segment or a merge takes, of passages of 100 words


def build(
    docs: Path, out: Path, *, k1: float, b: float, memory_gb: float, compute: params.Compute, name: str
) -> dict[str, float]:
    """Write the index of all of `docs`, one that bm25s loads, to the folder `out`.

    Segments and merges are mapped over `compute`'s workers, as many as `memory_gb` has room for, and a killed run goes
    on under `name` where it stopped; scratch files take twice the index's disk. Raises LongtailError for no documents.
    """
    count = documents.count(docs)
    key = shards.key_of(fingerprint(docs), Analyser.name, SEGMENT, POSTINGS, k1, b)
    starts = range(0, count, SEGMENT)
    with pool.processes(compute, min(len(starts), int(memory_gb / WORKER))) as executor:
        counted = shards.map_shards(f"{name}.counts", key, partial(_count, docs), starts, executor)
        mean = sum(int(_load(one, "lengths").sum(dtype=np.int64)) for one in counted) / count or 1.0  # no term at all
        merge = partial(_merge, counted, count, mean, k1, b)
        merged = shards.map_shards(f"{name}.scores", key, merge, list(pairwise(_bounds(counted))), executor)
    having = np.concatenate([np.load(part / "having.npy") for part in merged])
    with shards.atomic(out) as folder:
        _index(count, k1, b, having).save(folder)
        for array in ("data", "indices"):
            _join(merged, array, folder / f"{array}.csc.index.npy")
        _write_terms(merged, folder / VOCABULARY)
        facts = {"k1": k1, "b": b, "mean_length": mean, "terms": len(having), "postings": int(having.sum())}
        shards.write_json(folder / "meta.json", describe(docs, None, kind="bm25", analyser=Analyser.name, **facts))
    for part in ("counts", "scores"):
        shards.forget(f"{name}.{part}", key)
    return {"documents": float(count), "terms": float(facts["terms"]), "postings": float(facts["postings"])}


def _count(docs: Path, start: int, path: Path) -> None:
    """Which documents of the segment at `start` have each term, in the terms' order, and how often."""
    analyser, found, sizes = Analyser(), [], []
    for texts in documents.texts(docs, start, start + SEGMENT):
        words = analyser.words(texts)
        found.append(words.values)
        sizes.append(np.diff(np.from_dlpack(words.offsets)))
    words = pa.chunked_array(found).dictionary_encode().combine_chunks()
    stems = analyser.stems(words.dictionary.to_pylist())
    terms, numbers = _numbered(strings([*stems, ""]))  # "" is the first, and no term
    number = numbers[np.from_dlpack(words.indices)] - 1
    sizes = np.concatenate(sizes)
    document = np.repeat(np.arange(len(sizes)), sizes)[number >= 0]
    lengths = np.bincount(document, minlength=len(sizes))
    pairs, counts = np.unique(number[number >= 0] * len(lengths) + document, return_counts=True)
    term, document = np.divmod(pairs, len(lengths))
    starts = np.searchsorted(term, np.arange(len(terms)))
    arrays = {"documents": document.astype(np.uint16), "counts": counts.astype(np.int32)}
    _save(path, terms[1:], **arrays, starts=starts, lengths=lengths.astype(np.int32))


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
    distinct, numbers = _numbered(pa.chunked_array(terms))
    columns = np.split(numbers, np.cumsum([len(own) for own in terms])[:-1])
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


def _index(count: int, k1: float, b: float, having: np.ndarray) -> bm25s.BM25:
    """bm25s's index without what would be large in memory: terms and postings, which go to its folder by themselves."""
    index = bm25s.BM25(k1=k1, b=b)
    columns = np.cumsum(np.concatenate([[0], having, [0]]))  # the last is bm25s's term "", which is in no document
    index.scores = {"data": having[:0], "indices": having[:0], "indptr": columns, "num_docs": count}
    index.vocab_dict, index.nonoccurrence_array = {}, None
    return index


def _join(parts: list[Path], name: str, file: Path) -> None:
    """Write the parts' arrays of that name behind each other."""
    ends = np.cumsum([0, *(len(_load(part, name)) for part in parts)])
    whole = np.lib.format.open_memmap(file, "w+", _load(parts[0], name).dtype, (int(ends[-1]),))
    for part, begin, end in zip(parts, ends, ends[1:], strict=False):
        whole[begin:end] = _load(part, name)
    whole.flush()


def _write_terms(parts: list[Path], file: Path) -> None:
    """Write the terms of all parts, in order, as JSON: {"term":number,…}, bm25s's vocabulary."""
    number = 0
    with file.open("wb") as json:
        json.write(b"{")
        for terms in map(_terms, parts):
            numbers = pa.py_buffer(np.arange(number, number := number + len(terms)))
            numbers = pa.Array.from_buffers(pa.int64(), len(terms), [None, numbers]).cast(pa.string())
            json.write(pc.binary_join_element_wise('"', terms, '":', numbers, ",", "").buffers()[2])
        json.write(f'"":{number}}}'.encode())


def _numbered(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """The distinct texts in order, and the place of each text among them."""
    encoded = pa.chunked_array(texts).dictionary_encode().combine_chunks()
    order = pc.sort_indices(encoded.dictionary)
    return encoded.dictionary.take(order), np.argsort(np.from_dlpack(order))[np.from_dlpack(encoded.indices)]


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
