"""BM25's index built out of core: terms counted by segments of documents, frequencies over all, then the scores.

Our own, since no library was found that does it: bm25s holds every token of every document as a Python object, so 36
million documents don't fit in memory, and tantivy has fixed k1 and b and rounds the documents' lengths.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from pipelines import params, pool, shards
from pipelines.retrieval import documents
from pipelines.retrieval.bm25 import SEGMENT
from pipelines.retrieval.meta import describe, fingerprint
from pipelines.retrieval.terms import Analyser

AT_ONCE = 1 << 24  # terms of segments merged in memory
WORKER = 0.6  # GB that counting a segment's terms takes, of passages of 100 words


def build(
    docs: Path, out: Path, *, k1: float, b: float, memory_gb: float, compute: params.Compute, name: str
) -> dict[str, float]:
    """Write the index of all of `docs` to the folder `out`; see `bm25.BM25` for its files.

    Segments are mapped over `compute`'s workers, as many as `memory_gb` has room for, and a killed run goes on under
    `name` where it stopped; all distinct terms are held too, 12 bytes each. Raises LongtailError for no documents.
    """
    count = documents.count(docs)
    key = shards.key_of(fingerprint(docs), Analyser.name, SEGMENT, k1, b)
    starts = range(0, count, SEGMENT)
    with pool.processes(compute, min(len(starts), int(memory_gb / WORKER))) as executor:
        counted = shards.map_shards(f"{name}.counts", key, partial(_count, docs), starts, executor)
        (frequencies,) = shards.map_shards(f"{name}.frequencies", key, _merge, [counted])
        score = partial(_score, frequencies, k1, b)
        scored = shards.map_shards(f"{name}.scores", key, score, counted, executor)
    terms, mean = len(_load(frequencies, "terms")), float(_load(frequencies, "mean")[0])
    with shards.atomic(out) as folder:
        folder.mkdir()
        postings = _assemble(folder, counted, scored)
        facts = {"k1": k1, "b": b, "segment": SEGMENT, "terms": terms, "postings": postings, "mean_length": mean}
        shards.write_json(folder / "meta.json", describe(docs, None, kind="bm25", analyser=Analyser.name, **facts))
    for part in ("counts", "frequencies", "scores"):
        shards.forget(f"{name}.{part}", key)
    return {"documents": float(count), "terms": float(terms), "postings": float(postings)}


def _count(docs: Path, start: int, path: Path) -> None:
    """Which documents of the segment at `start` have each term, and how often."""
    analyser = Analyser()
    parts = [analyser.hashes(texts) for texts in documents.texts(docs, start, start + SEGMENT)]
    hashes, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    terms, term = np.unique(hashes, return_inverse=True)
    pairs = term * len(lengths) + np.repeat(np.arange(len(lengths)), lengths)
    pairs, counts = np.unique(pairs, return_counts=True)
    term, document = np.divmod(pairs, len(lengths))
    starts = np.searchsorted(term, np.arange(len(terms) + 1))
    arrays = {"terms": terms, "starts": starts, "documents": document.astype(np.uint16)}
    _save(path, **arrays, counts=counts.astype(np.int32), lengths=lengths.astype(np.int32))


def _merge(counted: list[Path], path: Path) -> None:
    """The sorted terms of all segments with how many documents have each; the documents' number and mean length."""
    segments = [(_load(one, "terms"), _load(one, "starts")) for one in counted]
    parts = -(-sum(len(terms) for terms, _ in segments) // AT_ONCE) or 1
    bounds = [np.uint64(2**64 * part // parts) for part in range(1, parts)]  # of hashes, which are spread evenly
    cuts = [[0, *np.searchsorted(terms, bounds).tolist(), len(terms)] for terms, _ in segments]
    merged = []
    for part in range(parts):
        pieces = [
            (terms[cut[part] : cut[part + 1]], np.diff(starts[cut[part] : cut[part + 1] + 1]))
            for (terms, starts), cut in zip(segments, cuts, strict=True)
        ]
        names, numbers = (np.concatenate(column) for column in zip(*pieces, strict=True))
        distinct, place = np.unique(names, return_inverse=True)
        merged.append((distinct, np.bincount(place, numbers, len(distinct)).astype(np.uint32)))
    terms, frequencies = (np.concatenate(column) for column in zip(*merged, strict=True))
    lengths = [_load(one, "lengths") for one in counted]
    count, total = sum(map(len, lengths)), sum(int(one.sum(dtype=np.int64)) for one in lengths)
    mean = np.array([total / count or 1.0])  # without any term there is nothing to score
    _save(path, terms=terms, frequencies=frequencies, count=np.array([count]), mean=mean)


def _score(frequencies: Path, k1: float, b: float, counted: Path, path: Path) -> None:
    """What each term adds to a document's score, by segment: idf * tf / (tf + k1 (1 - b + b length / mean length))."""
    terms, starts, places, counts, lengths = (
        _load(counted, name) for name in ("terms", "starts", "documents", "counts", "lengths")
    )
    (count,), (mean,) = _load(frequencies, "count"), _load(frequencies, "mean")
    having = _load(frequencies, "frequencies")[np.searchsorted(_load(frequencies, "terms"), terms)].astype(float)
    idf = np.log1p((count - having + 0.5) / (having + 0.5))
    longer = k1 * (1 - b + b * lengths / mean)
    scores = np.repeat(idf, np.diff(starts)) * counts / (counts + longer[places])
    _save(path, scores=scores.astype(np.float32))


def _assemble(folder: Path, counted: list[Path], scored: list[Path]) -> int:
    """Write the segments behind each other, one in memory at a time; return the number of postings."""
    entries = np.cumsum([0] + [len(_load(one, "terms")) for one in counted])
    ends = np.cumsum([0] + [len(_load(one, "documents")) for one in counted])
    np.save(folder / "segments.npy", entries)
    sizes = {"terms": (np.uint64, entries), "documents": (np.uint16, ends), "scores": (np.float32, ends)}
    for name, (kind, bounds) in sizes.items():
        whole = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", kind, (int(bounds[-1]),))
        for i, one in enumerate(scored if name == "scores" else counted):
            whole[bounds[i] : bounds[i + 1]] = _load(one, name)
    starts = np.lib.format.open_memmap(folder / "starts.npy", "w+", np.int64, (int(entries[-1]) + 1,))
    starts[-1] = ends[-1]
    for i, one in enumerate(counted):
        starts[entries[i] : entries[i + 1]] = _load(one, "starts")[:-1] + ends[i]
    return int(ends[-1])


def _save(folder: Path, **arrays: np.ndarray) -> None:
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def _load(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / f"{name}.npy", mmap_mode="r")
