"""BM25, the sparse retriever (REPLUG §6): its terms of documents and queries, searching an index, and building one.

An index is built out of core: postings are counted by document segments, then merged and scored by term ranges.
bm25s's own builder holds every token as a Python object, so 36 million documents don't fit in memory.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from mmap import ACCESS_READ, mmap
from operator import methodcaller
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer

from pipelines.errors import LongtailError
from pipelines.language import words
from pipelines.language.language import ENGLISH, Language, codes, read_language
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.storage import disks
from pipelines.storage.atomic import atomic, write_json
from pipelines.storage.work_store import forget_shards, key_of, map_shards
from pipelines.work import executors

VOCABULARY = "vocab.index.json"  # bm25s's name of the file
DOCUMENT = (
    "{title} {text}"  # what is indexed of a document, as in Pyserini's index of DPR's Wikipedia
)
REMEMBERED = 1 << 20  # terms of queries whose numbers are cached
GROUP = (
    64  # documents compared as one group, by their best score, before single documents are compared
)
BATCH = 4096  # texts split into words at once
NOT_WORD = r"[^\p{L}\p{N}_]+"  # what Python's \w does not match
SEGMENT = 1 << 16  # documents counted together: a position within a segment fits in 16 bits
POSTINGS = 1 << 23  # merged together; at most twice as many, unless a single term has more
WORKER = 0.6  # GB that a segment or a merge of passages of 100 words takes


class Analyser:
    """Splits texts into terms: lower-cased words of a language without its stop words, stemmed."""

    def __init__(self, language: Language = ENGLISH) -> None:
        terms = language.terms
        self._stop_words, self._pairs = frozenset(terms.stop_words.split()), terms.pairs
        # 0: no cache, which takes longer than it saves
        self._stem = Stemmer.Stemmer(terms.stemmer, 0).stemWords if terms.stemmer else list
        units = "words and pairs of characters" if terms.pairs else "words"
        stems = f"Snowball {terms.stemmer}" if terms.stemmer else "no stemmer"
        self.name = f"NFKC, lower case, {units}, {terms.stop_words_by} stop words, {stems}"

    def terms(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """The terms of each text, in order."""
        for start in range(0, len(texts), BATCH):
            for found in self.words(texts[start : start + BATCH]).to_pylist():
                yield list(filter(None, self.stems(found)))

    def words(self, texts: Sequence[str]) -> pa.ListArray:
        """The words of each text, in order; some may be "", which is no word."""
        lower = [
            (text if text.isascii() else unicodedata.normalize("NFKC", text)).lower()
            for text in texts
        ]
        if self._pairs:
            lower = [text if text.isascii() else words.RUNS.sub(_pairs, text) for text in lower]
        return pc.split_pattern_regex(arrow_strings(lower), NOT_WORD)

    def stems(self, found: Sequence[str]) -> list[str]:
        """Each word's stem, "" for a stop word."""
        stop_words = self._stop_words
        return [
            "" if word in stop_words else stem
            for word, stem in zip(found, self._stem(found), strict=True)
        ]


def _pairs(run: re.Match) -> str:
    """Each two neighbouring characters of a run without spaces, in place of its words; a single one stays."""
    text = run[0]
    return f" {' '.join(text[i : i + 2] for i in range(max(len(text) - 1, 1)))} "


class BM25:
    """An opened index, whose postings and vocabulary stay on disk, memory-mapped; implements Retriever."""

    def __init__(self, folder: Path, docs: Path) -> None:
        """Raises LongtailError if the index is missing or broken, or was made from other documents or terms."""
        name = documents.check_index(folder, docs=docs, kind="bm25", document=DOCUMENT).get(
            "analyser"
        )
        analysers = map(Analyser, map(read_language, codes()))
        self._docs, self._analyser = (
            docs,
            next((one for one in analysers if one.name == name), None),
        )
        if self._analyser is None:
            raise LongtailError(
                f"{folder}: was made with another analyser ({name}); run the stage `index` again"
            )
        try:
            self._index = bm25s.BM25.load(folder, mmap=True, load_vocab=False)
            with (folder / VOCABULARY).open("rb") as file:
                vocabulary = mmap(file.fileno(), 0, access=ACCESS_READ)
        except (OSError, ValueError, EOFError) as error:
            raise LongtailError(
                f"{folder}: not a whole index ({error}); run the stage `index` again"
            ) from None
        self.count, scores = self._index.scores["num_docs"], self._index.scores
        self._term_number = lru_cache(REMEMBERED)(partial(_term_number, vocabulary))
        for array in (
            "data",
            "indices",
            "indptr",
        ):  # slicing a plain view is faster than slicing np.memmap
            scores[array] = scores[array].view(np.ndarray)

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> documents.Found:
        """See Retriever.search. A document without any of the query's terms scores 0."""
        k = min(k, self.count)
        positions, scores = (
            np.full((len(texts), k), -1, np.int64),
            np.full((len(texts), k), -np.inf, np.float32),
        )
        hidden = documents.ranges_of_sources(self._docs, without or [None] * len(texts))
        for i, terms in enumerate(self._analyser.terms(texts)):
            numbers = map(self._term_number, terms)
            all_scores = self._index.get_scores_from_ids(
                [number for number in numbers if number is not None]
            )
            all_scores[slice(*hidden[i])] = -np.inf
            best = top_k(all_scores, k)
            positions[i, : len(best)], scores[i, : len(best)] = best, all_scores[best]
        return positions, scores


def top_k(scores: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest finite `scores` (documents,), the largest first, ties by position, unlike bm25s."""
    columns, least = len(scores) // GROUP, -np.inf
    if k <= columns:  # the k-th best of the groups' maxima is a lower bound of the k-th best score
        maxima = scores[: columns * GROUP].reshape(GROUP, columns).max(0)
        least = np.partition(maxima, columns - k)[columns - k]
    positions = np.flatnonzero((scores >= least) & (scores > -np.inf))
    values = scores[positions]
    if len(positions) > k:
        last = np.partition(values, len(values) - k)[len(values) - k]
        higher = positions[values > last]
        positions = np.concatenate([higher, positions[values == last][: k - len(higher)]])
    return positions[np.lexsort((positions, -scores[positions]))]


def arrow_strings(texts: Sequence[str]) -> pa.Array:
    """The same array as pa.array(texts), without importing pandas; characters that are no UTF-8 become "?"."""
    encoded = [text.encode(errors="replace") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))
    )


def _term_number(vocabulary: mmap, term: str) -> int | None:
    """A term's number in a file like {"a":0,"b":1,"":2}; None if the term isn't there.

    All terms but the last are sorted, so a binary search over the file finds one. Loading it would take half a minute.
    """

    def entry(offset: int) -> tuple[bytes, int]:
        """The term of the entry that the byte at `offset` belongs to, and where the term ends."""
        begin = max(vocabulary.rfind(b',"', 0, offset), 0) + 2
        end = vocabulary.find(b'":', begin)
        return vocabulary[begin:end], end

    wanted = term.encode()
    offsets = range(max(vocabulary.rfind(b',"'), 0))
    found, end = entry(bisect_left(offsets, wanted, key=lambda offset: entry(offset)[0]))
    return int(vocabulary[end + 2 : vocabulary.find(b",", end)]) if found == wanted else None


def build(
    docs: Path,
    out: Path,
    settings: params.Index,
    compute: params.Compute,
    name: str,
    language: Language = ENGLISH,
) -> dict[str, float]:
    """Write the index of all of `docs`, titles and texts, to the folder `out`, in bm25s's layout.

    As many of `compute`'s workers as fit in `index.memory_gb` do the work. A killed run continues; its shards are kept
    under `name`, and take twice the index's disk space. Raises LongtailError if there are no documents.
    """
    k1, b = settings.bm25_k1, settings.bm25_b
    count, analyser = documents.count_documents(docs), Analyser(language).name
    key = key_of(docs, analyser, language.terms, DOCUMENT, SEGMENT, POSTINGS, k1, b)
    starts = range(0, count, SEGMENT)
    with executors.processes(
        compute, min(len(starts), int(settings.memory_gb / WORKER))
    ) as executor:
        segments = map_shards(
            f"{name}.counts", key, partial(_count, docs, language), starts, executor
        )
        n_terms = sum(int(_load(segment, "lengths").sum(dtype=np.int64)) for segment in segments)
        mean_length = n_terms / count or 1.0  # 1 if no document has any term
        merge = partial(_merge, segments, count, mean_length, settings)
        merged = map_shards(
            f"{name}.scores", key, merge, list(pairwise(_term_bounds(segments))), executor
        )
    frequencies = np.concatenate([np.load(part / "frequencies.npy") for part in merged])
    index = bm25s.BM25(
        k1=k1, b=b
    )  # without vocabulary and postings: both are large, and written separately
    columns = np.cumsum(
        np.concatenate([[0], frequencies, [0]])
    )  # the last is bm25s's term "", which no document has
    index.scores = {
        "data": frequencies[:0],
        "indices": frequencies[:0],
        "indptr": columns,
        "num_docs": count,
    }
    index.vocab_dict, index.nonoccurrence_array = {}, None
    with atomic(out) as folder:
        index.save(folder)
        for array in ("data", "indices"):
            _concatenate(merged, array, folder / f"{array}.csc.index.npy")
        _write_vocabulary(merged, folder / VOCABULARY)
        facts = {"kind": "bm25", "analyser": analyser, "document": DOCUMENT, "k1": k1, "b": b}
        facts |= {
            "mean_length": mean_length,
            "terms": len(frequencies),
            "postings": int(frequencies.sum()),
        }
        write_json(folder / "meta.json", documents.describe(docs, None, **facts))
    for part in ("counts", "scores"):
        forget_shards(f"{name}.{part}", key)
    return {
        "documents": float(count),
        "terms": float(facts["terms"]),
        "postings": float(facts["postings"]),
    }


def _count(docs: Path, language: Language, start: int, path: Path) -> None:
    """Write the postings of the segment at `start`: its sorted terms, the documents that have each, and how often."""
    analyser, batches, sizes = Analyser(language), [], []
    for texts in documents.filled(docs, start, start + SEGMENT, DOCUMENT):
        found = analyser.words(texts)
        batches.append(found.values)
        sizes.append(np.diff(np.from_dlpack(found.offsets)))
    found = pa.chunked_array(batches).dictionary_encode().combine_chunks()
    stems = analyser.stems(found.dictionary.to_pylist())
    terms, numbers = _sorted_distinct(arrow_strings([*stems, ""]))  # "" comes first, and is no term
    number_of_word = numbers[np.from_dlpack(found.indices)] - 1
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
    segments: list[Path],
    count: int,
    mean_length: float,
    bm25: params.Index,
    bounds: tuple[str, str | None],
    path: Path,
) -> None:
    """Write the postings of the terms from the first of `bounds` up to the second: documents, and the term's scores.

    A score is idf * tf / (tf + k1 (1 - b + b * length / mean length)), bm25s's method="lucene".
    """
    k1, b = bm25.bm25_k1, bm25.bm25_b
    terms, starts = (
        [],
        [],
    )  # of each segment; copied, as a view of an array would keep its file open
    for segment in segments:
        segment_terms = _terms(segment)
        first, last = (
            len(segment_terms)
            if bound is None
            else bisect_left(segment_terms, bound, key=methodcaller("as_py"))
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
        document, tf = (
            _load(segment, name)[begins[0] : begins[-1]] for name in ("documents", "counts")
        )
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
            numbers = pa.Array.from_buffers(pa.int64(), len(terms), [None, numbers]).cast(
                pa.string()
            )
            json.write(pc.binary_join_element_wise('"', terms, '":', numbers, ",", "").buffers()[2])
        json.write(f'"":{number}}}'.encode())


def _sorted_distinct(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """The distinct texts, sorted, and the place of each text among them."""
    encoded = pa.chunked_array(texts).dictionary_encode().combine_chunks()
    order = pc.sort_indices(encoded.dictionary)
    return encoded.dictionary.take(order), np.argsort(np.from_dlpack(order))[
        np.from_dlpack(encoded.indices)
    ]


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
