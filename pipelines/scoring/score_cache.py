"""What a frozen language model said of pairs: none is scored twice in a training, nor in another if kept (REPLUG §4).

.longtail/lm_scores/<lm>-<key> has the log-probability table's format, a file for each time that pairs were scored. The
key names the model, what changes its scores, and the documents; `query` is a hash of the query's texts. A folder can be
deleted at any time. A score may differ in the sixth decimal from one made in another batch: the first counts, so what
another training kept can move the last digits of this one's weights, and `lsr.keep_scores` says whether it may.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import lm as lm_package
from pipelines import params, shards
from pipelines.lm.language_model import LanguageModel
from pipelines.retrieval.index_meta import fingerprint
from pipelines.scoring import logprob_table
from pipelines.scoring.queries import Queries

FOLDER = shards.SCRATCH / "lm_scores"
LOCAL = {"dtype", "batch_tokens"}  # of a model's params: what changes scores, by however little
SERVED = {"url", "tokenizer", "max_tokens"}


def key_of_lm(folder: Path, lm: params.LM, compute: params.Compute) -> str:
    """Of all that scores depend on but the pair: weights, settings, the machine's part, and the code that scores."""
    served = lm.http and lm.http.model_dump(include=SERVED)
    code = sorted(Path(lm_package.__file__).parent.glob("*.py"))
    own = lm.model_dump(include=LOCAL)
    return shards.key_of(fingerprint(folder), lm.source, lm.path, own, served, compute.device, compute.threads, *code)


class Scores:
    """Of `queries` with the documents of `docs`: sums for all, and for the queries from row `whole` on every token."""

    def __init__(self, stage: str, lm: LanguageModel, key: str, queries: Queries, docs: Path, whole: int) -> None:
        self._stage, self._lm, self._queries, self._docs, self._whole = stage, lm, queries, docs, whole
        self._folder, self._hashes = _folder(lm.name, key, docs), hashes(queries)
        self._order = np.argsort(self._hashes)
        self._keys = np.empty(0, np.int64)  # of the pairs, ascending
        self._sums, self._tokens = np.empty(0), np.empty(0, np.int64)  # by key
        self.judged = logprob_table.COLUMNS.empty_table()  # the rows from `whole` on
        self.made = 0  # pairs scored here, not found
        for file in sorted(self._folder.glob("*.parquet")):
            self._read(file)

    def missing(self, pairs: np.ndarray) -> np.ndarray:
        """Those of `pairs` (n, 2), of query and position or table.NONE, that were never scored."""
        return pairs[~np.isin(_keys(pairs), self._keys)]

    def score(self, pairs: np.ndarray) -> None:
        """Have the language model score those of `pairs` that are missing."""
        pairs = self.missing(pairs)
        if not len(pairs):
            return
        key = shards.key_of(self._folder.name, self._hashes[pairs[:, 0]].tobytes(), pairs.tobytes())
        parts = [pairs[start : start + logprob_table.SHARD] for start in range(0, len(pairs), logprob_table.SHARD)]
        files = logprob_table.score_parts(self._stage, key, self._lm, self._queries, self._docs, parts)
        kept = self._folder / f"{key}.parquet"
        with shards.atomic(kept) as path, pq.ParquetWriter(path, logprob_table.COLUMNS, compression="zstd") as writer:
            for file in files:
                scored = pq.read_table(file, schema=logprob_table.COLUMNS)
                hashes = pa.array(self._hashes[scored["query"].to_numpy()])
                writer.write_table(scored.set_column(0, logprob_table.COLUMNS.field("query"), hashes))
        shards.forget(self._stage, key)
        self._read(kept)
        self.made += len(pairs)

    def look_up(self, rows: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of log p and tokens of scored pairs: rows (n,), found (n, k) -> (n, k) each."""
        pairs = np.stack([np.repeat(rows, found.shape[1]), found.ravel()], axis=1)
        places = np.searchsorted(self._keys, _keys(pairs)).reshape(found.shape)
        return self._sums[places], self._tokens[places]

    def _read(self, file: Path) -> None:
        """Take up the file's pairs of these queries; others are of other runs."""
        keys, sums, tokens = [self._keys], [self._sums], [self._tokens]
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches() if len(self._hashes) else ():
                scored = pa.Table.from_batches([batch])
                hashes = scored["query"].to_numpy()
                places = np.searchsorted(self._hashes, hashes, sorter=self._order)
                rows = self._order[np.minimum(places, len(self._order) - 1)]
                scored = scored.set_column(0, logprob_table.COLUMNS.field("query"), pa.array(rows))
                new = (self._hashes[rows] == hashes) & ~np.isin(_keys(_pairs(scored)), self._keys)
                scored = scored.filter(pa.array(new))
                keys.append(_keys(_pairs(scored)))
                for values, more in zip((sums, tokens), logprob_table.sums(scored), strict=True):
                    values.append(more)
                judging = pa.array(scored["query"].to_numpy() >= self._whole)
                self.judged = pa.concat_tables([self.judged, scored.filter(judging)])
        both = np.concatenate(keys)
        order = np.argsort(both, kind="stable")
        self._keys = both[order]
        self._sums, self._tokens = np.concatenate(sums)[order], np.concatenate(tokens)[order]


def forget(lm: str, key: str, docs: Path) -> None:
    """Remove what is kept of a language model so named, once the training's result is written."""
    shutil.rmtree(_folder(lm, key, docs), ignore_errors=True)


def _folder(lm: str, key: str, docs: Path) -> Path:
    return FOLDER / f"{lm}-{shards.key_of(key, fingerprint(docs))}"


def hashes(queries: Queries) -> np.ndarray:
    """(n,) int64 of what the language model reads and is asked for."""
    texts = zip(queries.ids, queries.contexts, queries.continuations, strict=True)
    return np.array([_hash(*one, queries.separator) for one in texts], np.int64)


def _hash(*texts: str) -> int:
    digest = hashlib.blake2b("\x1f".join(texts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _pairs(scored: pa.Table) -> np.ndarray:
    return np.stack([scored["query"].to_numpy(), scored["document"].to_numpy()], axis=1)


def _keys(pairs: np.ndarray) -> np.ndarray:
    """One number for each pair, ordered as they are."""
    return (pairs[:, 0] << 36) + pairs[:, 1] + 1  # of 2^27 queries and 2^36 documents
