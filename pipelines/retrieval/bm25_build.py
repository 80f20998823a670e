"""Builds an index for BM25 (REPLUG §6) out of core, in bm25s's layout.

Postings are counted by document segments, then merged and scored by term ranges. bm25s's own
builder holds every token as a Python object, so 36 million documents don't fit in memory.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import methodcaller
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.language.language import ENGLISH, Language
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.retrieval.analyser import Analyser, arrow_strings
from pipelines.retrieval.bm25 import DOCUMENT, VOCABULARY
from pipelines.storage import disks
from pipelines.storage.atomic import atomic, write_json
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import code, executors

SEGMENT_DOCUMENTS = 1 << 16  # counted together: a position within a segment fits in 16 bits
MERGED_POSTINGS = 1 << 23  # postings merged together; at most twice as many, or those of one term
K1 = 1.5  # how soon more occurrences of a term stop counting
B = 0.75  # how much a document's length counts
WORKER_GB = 0.6  # that a segment or a merge of passages of 100 words takes


@dataclass(frozen=True)
class Weighting:
    """What a term's score in a document depends on besides the two."""

    count: int  # documents
    mean_length: float  # terms of a document


def build(
    docs: Path,
    out: Path,
    memory_gb: float,
    compute: params.Compute,
    name: str,
    language: Language = ENGLISH,
) -> dict[str, float]:
    """Write the index of all of `docs`, titles and texts, to the folder `out`.

    As many of `compute`'s workers as fit in `memory_gb` do the work. A killed run continues:
    its shards are kept under `name`, and take twice the index's disk space. Raises LongtailError if
    there are no documents.
    """
    count = documents.count_documents(docs)
    analyser = Analyser(language).name
    store = WorkStore()
    result_depends_on = (analyser, language.terms, SEGMENT_DOCUMENTS, MERGED_POSTINGS, K1, B)
    key = content_key(result_depends_on, code.fingerprint(__name__), docs)

    starts = range(0, count, SEGMENT_DOCUMENTS)
    workers = min(len(starts), int(memory_gb / WORKER_GB))
    with executors.processes(compute, workers) as executor:
        count_segment = partial(_count_segment, docs, language)
        segments = store.parts(f"{name}.counts", key, starts, count_segment, executor)

        terms_in_all = 0
        for segment in segments:
            terms_in_all += int(_load(segment, "lengths").sum(dtype=np.int64))
        mean_length = terms_in_all / count or 1.0  # 1 if no document has any term

        weighting = Weighting(count=count, mean_length=mean_length)
        merge = partial(_merge, segments, weighting)
        bounds = list(pairwise(_term_bounds(segments)))
        merged = store.parts(f"{name}.scores", key, bounds, merge, executor)

    frequencies = np.concatenate([np.load(part / "frequencies.npy") for part in merged])
    n_terms = len(frequencies)
    n_postings = int(frequencies.sum())
    facts: dict[str, Any] = {
        "kind": "bm25",
        "analyser": analyser,
        "document": DOCUMENT,
        "k1": K1,
        "b": B,
        "mean_length": mean_length,
        "terms": n_terms,
        "postings": n_postings,
    }
    with atomic(out) as folder:
        _save_index(folder, merged, frequencies, weighting)
        write_json(folder / "meta.json", documents.describe(docs, None, **facts))

    store.forget(f"{name}.counts")
    store.forget(f"{name}.scores")
    return {"documents": float(count), "terms": float(n_terms), "postings": float(n_postings)}


def _save_index(
    folder: Path, parts: list[Path], frequencies: np.ndarray, weighting: Weighting
) -> None:
    """Write bm25s's files; postings and vocabulary are large, so they do not pass through bm25s."""
    index = bm25s.BM25(k1=K1, b=B)
    # The last column is of bm25s's term "", which no document has.
    columns = np.cumsum(np.concatenate([[0], frequencies, [0]]))
    index.scores = {
        "data": frequencies[:0],
        "indices": frequencies[:0],
        "indptr": columns,
        "num_docs": weighting.count,
    }
    index.vocab_dict = {}
    index.nonoccurrence_array = None
    index.save(folder)
    for name in ("data", "indices"):
        _concatenate(parts, name, folder / f"{name}.csc.index.npy")
    _write_vocabulary(parts, folder / VOCABULARY)


def _count_segment(docs: Path, language: Language, start: int, path: Path) -> None:
    """Write the postings of the segment at `start`.

    These are its sorted terms, the documents that have each, and how often they do.
    """
    analyser = Analyser(language)
    batches = []
    sizes_of_batches = []
    for texts in documents.filled(docs, start, start + SEGMENT_DOCUMENTS, DOCUMENT):
        words_of_texts = analyser.words(texts)
        batches.append(words_of_texts.values)
        sizes_of_batches.append(np.diff(np.from_dlpack(words_of_texts.offsets)))
    words = pa.chunked_array(batches).dictionary_encode().combine_chunks()
    sizes = np.concatenate(sizes_of_batches)  # words of each document

    stems = analyser.stems(words.dictionary.to_pylist())
    terms, numbers = _sorted_distinct(arrow_strings([*stems, ""]))  # "" comes first, and is no term
    terms = terms[1:]
    term_of_word = numbers[np.from_dlpack(words.indices)] - 1
    is_term = term_of_word >= 0

    count = len(sizes)
    document_of_term = np.repeat(np.arange(count), sizes)[is_term]
    lengths = np.bincount(document_of_term, minlength=count)
    pairs = term_of_word[is_term] * count + document_of_term
    distinct_pairs, counts = np.unique(pairs, return_counts=True)
    term, document = np.divmod(distinct_pairs, count)
    starts = np.searchsorted(term, np.arange(len(terms) + 1))
    _save(
        path,
        terms,
        documents=document.astype(np.uint16),
        counts=counts.astype(np.int32),
        starts=starts,
        lengths=lengths.astype(np.int32),
    )


def _term_bounds(segments: list[Path]) -> list[str | None]:
    """Terms such that about MERGED_POSTINGS postings lie from each up to, without, the next.

    The last is None, for the end.
    """
    step = max(MERGED_POSTINGS // len(segments), 1)
    samples = []
    for segment in segments:
        terms = _terms(segment)
        starts = _load(segment, "starts")
        sampled_postings = np.arange(step, starts[-1], step)
        places = np.searchsorted(starts, sampled_postings, "right") - 1
        samples += [terms[place].as_py() for place in places.tolist()]
    every_nth = sorted(samples)[len(segments) - 1 :: len(segments)]
    return ["", *sorted(set(every_nth)), None]


def _merge(
    segments: list[Path], weighting: Weighting, bounds: tuple[str, str | None], path: Path
) -> None:
    """Write the postings of the terms from the first of `bounds` up to the second.

    A posting is a document and the term's score in it, idf * tf / (tf + k1 (1 - b + b * length /
    mean length)), which is bm25s's method "lucene".
    """
    terms_of_segments = []
    starts_of_segments = []
    for segment in segments:
        terms = _terms(segment)
        first = _place_of(terms, bounds[0])
        stop = _place_of(terms, bounds[1])
        terms_of_segments.append(terms[first:stop])
        # Copied, as a view of an array would keep its file open.
        starts_of_segments.append(_load(segment, "starts")[first : stop + 1].copy())
    distinct, numbers = _sorted_distinct(pa.chunked_array(terms_of_segments))
    ends = np.cumsum([len(terms) for terms in terms_of_segments])
    columns_of_segments = np.split(numbers, ends[:-1])

    frequencies = np.zeros(len(distinct), np.int64)  # documents that have each term
    for columns, starts in zip(columns_of_segments, starts_of_segments, strict=True):
        frequencies[columns] += np.diff(starts)
    idf = np.log1p((weighting.count - frequencies + 0.5) / (frequencies + 0.5))

    indices = np.empty(frequencies.sum(), np.int32)
    data = np.empty(frequencies.sum(), np.float32)
    free = np.cumsum(frequencies) - frequencies  # the place of each column's next posting
    parts = zip(segments, columns_of_segments, starts_of_segments, strict=True)
    for number, (segment, columns, starts) in enumerate(parts):
        begin = starts[0]
        end = starts[-1]
        document = _load(segment, "documents")[begin:end]
        tf = _load(segment, "counts")[begin:end]
        length = _load(segment, "lengths")[document]

        sizes = np.diff(starts)
        shifts = np.repeat(free[columns] - starts[:-1], sizes)
        places = shifts + np.arange(begin, end)
        indices[places] = document + np.int32(number * SEGMENT_DOCUMENTS)

        saturation = K1 * (1 - B + B * length / weighting.mean_length)
        idf_of_postings = np.repeat(idf[columns], sizes)
        data[places] = idf_of_postings * tf / (tf + saturation)
        free[columns] += sizes
    _save(path, distinct, frequencies=frequencies, indices=indices, data=data)


def _place_of(terms: pa.Array, bound: str | None) -> int:
    """The place of the first of the sorted `terms` that is not below `bound`; None is the end."""
    if bound is None:
        return len(terms)
    return bisect_left(terms, bound, key=methodcaller("as_py"))


def _concatenate(parts: Sequence[Path], name: str, file: Path) -> None:
    """Write the arrays `name` of all parts to one file, one after the other."""
    sizes = [len(_load(part, name)) for part in parts]
    dtype = _load(parts[0], name).dtype
    joined = disks.new_array(file, dtype, (sum(sizes),))
    begin = 0
    for part, size in zip(parts, sizes, strict=True):
        joined[begin : begin + size] = _load(part, name)
        begin += size
    joined.flush()


def _write_vocabulary(parts: Sequence[Path], file: Path) -> None:
    """Write the sorted terms of all parts as JSON, {"term":number,…}: bm25s's vocabulary."""
    first = 0
    with file.open("wb") as json:
        json.write(b"{")
        for part in parts:
            terms = _terms(part)
            buffer = pa.py_buffer(np.arange(first, first + len(terms)))
            numbers = pa.Array.from_buffers(pa.int64(), len(terms), [None, buffer])
            digits = numbers.cast(pa.string())
            entries = pc.binary_join_element_wise('"', terms, '":', digits, ",", "")
            json.write(entries.buffers()[2])
            first += len(terms)
        json.write(f'"":{first}}}'.encode())


def _sorted_distinct(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """The distinct texts, sorted, and the place of each text among them."""
    encoded = pa.chunked_array(texts).dictionary_encode().combine_chunks()
    order = pc.sort_indices(encoded.dictionary)
    place_of_entry = np.argsort(np.from_dlpack(order))
    places = place_of_entry[np.from_dlpack(encoded.indices)]
    return encoded.dictionary.take(order), places


def _save(folder: Path, terms: pa.Array, **arrays: np.ndarray) -> None:
    folder.mkdir()
    batch = pa.record_batch([terms], ["terms"])
    with pa.ipc.new_file(folder / "terms.arrow", batch.schema) as file:
        file.write_batch(batch)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def _terms(folder: Path) -> pa.Array:
    file = pa.memory_map(str(folder / "terms.arrow"))
    return pa.ipc.open_file(file).get_batch(0).column(0)


def _load(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / f"{name}.npy", mmap_mode="r")
