"""Building BM25's index out of core: postings are counted by document segments, then merged and scored by term ranges.

bm25s's own builder holds every token as a Python object, so 36 million documents don't fit in memory.
"""

from bisect import bisect_left
from functools import partial
from itertools import pairwise
from operator import methodcaller
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.language.language import ENGLISH, Language
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.retrieval.bm25 import DOCUMENT, VOCABULARY, Analyser, arrow_strings
from pipelines.retrieval.protocol import describe
from pipelines.storage import disks, shards
from pipelines.work import pool

SEGMENT = 1 << 16  # documents counted together: a position within a segment fits in 16 bits
POSTINGS = 1 << 23  # merged together; at most twice as many, unless a single term has more
WORKER = 0.6  # GB that a segment or a merge of passages of 100 words takes


def build(
    docs: Path, out: Path, settings: params.Index, compute: params.Compute, name: str, language: Language = ENGLISH
) -> dict[str, float]:
    """Write the index of all of `docs`, titles and texts, to the folder `out`, in bm25s's layout.

    As many of `compute`'s workers as fit in `index.memory_gb` do the work. A killed run continues; its shards are kept
    under `name`, and take twice the index's disk space. Raises LongtailError if there are no documents.
    """
    k1, b = settings.bm25_k1, settings.bm25_b
    count, analyser = documents.count_documents(docs), Analyser(language).name
    key = shards.key_of(docs, analyser, language.terms, DOCUMENT, SEGMENT, POSTINGS, k1, b)
    starts = range(0, count, SEGMENT)
    with pool.processes(compute, min(len(starts), int(settings.memory_gb / WORKER))) as executor:
        segments = shards.map_shards(f"{name}.counts", key, partial(_count, docs, language), starts, executor)
        n_terms = sum(int(_load(segment, "lengths").sum(dtype=np.int64)) for segment in segments)
        mean_length = n_terms / count or 1.0  # 1 if no document has any term
        merge = partial(_merge, segments, count, mean_length, settings)
        merged = shards.map_shards(f"{name}.scores", key, merge, list(pairwise(_term_bounds(segments))), executor)
    frequencies = np.concatenate([np.load(part / "frequencies.npy") for part in merged])
    index = bm25s.BM25(k1=k1, b=b)  # without vocabulary and postings: both are large, and written separately
    columns = np.cumsum(np.concatenate([[0], frequencies, [0]]))  # the last is bm25s's term "", which no document has
    index.scores = {"data": frequencies[:0], "indices": frequencies[:0], "indptr": columns, "num_docs": count}
    index.vocab_dict, index.nonoccurrence_array = {}, None
    with shards.atomic(out) as folder:
        index.save(folder)
        for array in ("data", "indices"):
            _concatenate(merged, array, folder / f"{array}.csc.index.npy")
        _write_vocabulary(merged, folder / VOCABULARY)
        facts = {"kind": "bm25", "analyser": analyser, "document": DOCUMENT, "k1": k1, "b": b}
        facts |= {"mean_length": mean_length, "terms": len(frequencies), "postings": int(frequencies.sum())}
        shards.write_json(folder / "meta.json", describe(docs, None, **facts))
    for part in ("counts", "scores"):
        shards.forget_shards(f"{name}.{part}", key)
    return {"documents": float(count), "terms": float(facts["terms"]), "postings": float(facts["postings"])}


def _count(docs: Path, language: Language, start: int, path: Path) -> None:
    """Write the postings of the segment at `start`: its sorted terms, the documents that have each, and how often."""
    analyser, batches, sizes = Analyser(language), [], []
    for texts in documents.filled(docs, start, start + SEGMENT, DOCUMENT):
        words = analyser.words(texts)
        batches.append(words.values)
        sizes.append(np.diff(np.from_dlpack(words.offsets)))
    words = pa.chunked_array(batches).dictionary_encode().combine_chunks()
    stems = analyser.stems(words.dictionary.to_pylist())
    terms, numbers = _sorted_distinct(arrow_strings([*stems, ""]))  # "" comes first, and is no term
    number_of_word = numbers[np.from_dlpack(words.indices)] - 1
    is_term = number_of_word >= 0
    sizes = np.concatenate(sizes)
    document = np.repeat(np.arange(len(sizes)), sizes)[is_term]
    lengths = np.bincount(document, minlength=len(sizes))
    pairs, counts = np.unique(number_of_word[is_term] * len(lengths) + document, return_counts=True)
    term, document = np.divmod(pairs, len(lengths))
    starts = np.searchsorted(term, np.arange(len(terms)))
    arrays = {"documents": document.astype(np.uint16), "counts": counts.astype(np.int32)}
    _save(path, terms[1:], **arrays, starts=starts, lengths=lengths.astype(np.int32))


def _term_bounds(segments: list[Path]) -> list[str | None]:
    """Terms such that about POSTINGS postings lie from each up to, without, the next; the last is None, the end."""
    step, samples = max(POSTINGS // len(segments), 1), []
    for segment in segments:
        terms, starts = _terms(segment), _load(segment, "starts")
        places = np.searchsorted(starts, np.arange(step, starts[-1], step), "right") - 1
        samples += [terms[place].as_py() for place in places.tolist()]
    return ["", *sorted(set(sorted(samples)[len(segments) - 1 :: len(segments)])), None]


def _merge(
    segments: list[Path], count: int, mean_length: float, bm25: params.Index, bounds: tuple[str, str | None], path: Path
) -> None:
    """Write the postings of the terms from the first of `bounds` up to the second: documents, and the term's scores.

    A score is idf * tf / (tf + k1 (1 - b + b * length / mean length)), bm25s's method="lucene".
    """
    k1, b = bm25.bm25_k1, bm25.bm25_b
    terms, starts = [], []  # of each segment; copied, as a view of an array would keep its file open
    for segment in segments:
        segment_terms = _terms(segment)
        first, last = (
            len(segment_terms) if bound is None else bisect_left(segment_terms, bound, key=methodcaller("as_py"))
            for bound in bounds
        )
        terms.append(segment_terms[first:last])
        starts.append(_load(segment, "starts")[first : last + 1].copy())
    distinct, numbers = _sorted_distinct(pa.chunked_array(terms))
    columns = np.split(numbers, np.cumsum([len(segment_terms) for segment_terms in terms])[:-1])
    frequencies = np.zeros(len(distinct), np.int64)  # documents that have each term
    for column, begins in zip(columns, starts, strict=True):
        frequencies[column] += np.diff(begins)
    idf = np.log1p((count - frequencies + 0.5) / (frequencies + 0.5))
    free = np.cumsum(frequencies) - frequencies  # the place of each column's next posting
    indices, data = np.empty(frequencies.sum(), np.int32), np.empty(frequencies.sum(), np.float32)
    for number, (segment, column, begins) in enumerate(zip(segments, columns, starts, strict=True)):
        document, tf = (_load(segment, name)[begins[0] : begins[-1]] for name in ("documents", "counts"))
        sizes = np.diff(begins)
        places = np.repeat(free[column] - begins[:-1], sizes) + np.arange(begins[0], begins[-1])
        saturation = k1 * (1 - b + b * _load(segment, "lengths")[document] / mean_length)
        indices[places] = document + np.int32(number * SEGMENT)
        data[places] = np.repeat(idf[column], sizes) * tf / (tf + saturation)
        free[column] += sizes
    _save(path, distinct, frequencies=frequencies, indices=indices, data=data)


def _concatenate(parts: list[Path], name: str, file: Path) -> None:
    """Write the arrays `name` of all parts to one file, one after the other."""
    ends = np.cumsum([0, *(len(_load(part, name)) for part in parts)])
    whole = disks.new_array(file, _load(parts[0], name).dtype, (int(ends[-1]),))
    for part, (begin, end) in zip(parts, pairwise(ends), strict=True):
        whole[begin:end] = _load(part, name)
    whole.flush()


def _write_vocabulary(parts: list[Path], file: Path) -> None:
    """Write the sorted terms of all parts as JSON, {"term":number,…}: bm25s's vocabulary."""
    number = 0
    with file.open("wb") as json:
        json.write(b"{")
        for terms in map(_terms, parts):
            numbers = pa.py_buffer(np.arange(number, number := number + len(terms)))
            numbers = pa.Array.from_buffers(pa.int64(), len(terms), [None, numbers]).cast(pa.string())
            json.write(pc.binary_join_element_wise('"', terms, '":', numbers, ",", "").buffers()[2])
        json.write(f'"":{number}}}'.encode())


def _sorted_distinct(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """The distinct texts, sorted, and the place of each text among them."""
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
