"""Keep the language model's scores, so that a resumed training, and with `lsr.keep_scores` later ones, reuse them.

Results may then differ in the last digits, because a score depends on the batch it was first computed in.

.longtail/lm_scores/<lm>-<key> has a Parquet file of logprobs.SCORED_PAIRS for each time that pairs were scored; `query`
is a hash of the query's texts, the key names all that scores depend on. A folder can be deleted at any time.
"""

from __future__ import annotations

import shutil
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.lm.language_model import LanguageModel
from pipelines.params import params
from pipelines.scoring import logprobs
from pipelines.scoring.queries import Queries
from pipelines.storage import parquet, shards
from pipelines.work import code

FOLDER = shards.SCRATCH / "lm_scores"
LOCAL = {"dtype", "batch_tokens"}  # params of a model that change its scores
SERVED = {"url", "tokenizer", "max_tokens"}  # params of a server that change its scores


def key_of_lm(folder: Path, lm: params.LM, compute: params.Compute) -> str:
    """A hash of all that scores depend on, except the pairs: weights, params, device, threads and code."""
    local, served = lm.model_dump(include=LOCAL), lm.http and lm.http.model_dump(include=SERVED)
    modules = ("open_lm", "http_model") if lm.source == "http" else ("open_lm",)
    codes = [code.fingerprint(f"pipelines.lm.{module}") for module in modules]
    return shards.key_of(folder, lm.source, lm.path, local, served, compute.device, compute.threads, codes)


class Scores:
    """Scores of `queries` with documents of `docs`: sums of log p, and from row `whole` on the log p of each token."""

    def __init__(self, stage: str, lm: LanguageModel, key: str, queries: Queries, docs: Path, whole: int) -> None:
        self._stage, self._lm, self._queries, self._docs, self._whole = stage, lm, queries, docs, whole
        self._folder, self._hashes = _folder(lm.name, key, docs), hashes(queries)
        self._order = np.argsort(self._hashes)
        self._keys = np.empty(0, np.int64)  # of the scored pairs, ascending
        self._sums, self._tokens = np.empty(0), np.empty(0, np.int64)  # by key
        self.whole = logprobs.SCORED_PAIRS.empty_table()  # the pairs of queries from row `whole` on
        self.computed = 0  # pairs scored by this object, not found in files
        for file in sorted(self._folder.glob("*.parquet")):
            self._load(file)

    def missing(self, pairs: np.ndarray) -> np.ndarray:
        """Those of `pairs` (n, 2), of query and position or logprobs.NONE, that have no score yet."""
        return pairs[~np.isin(logprobs.pair_keys(*pairs.T), self._keys)]

    def score(self, pairs: np.ndarray) -> None:
        """Have the language model score those of `pairs` that are missing."""
        pairs = self.missing(pairs)
        if not len(pairs):
            return
        key = shards.key_of(self._folder.name, self._hashes[pairs[:, 0]].tobytes(), pairs.tobytes())
        parts = [pairs[start : start + logprobs.SHARD] for start in range(0, len(pairs), logprobs.SHARD)]
        files = logprobs.score_parts(self._stage, key, self._lm, self._queries, self._docs, parts)
        kept = self._folder / f"{key}.parquet"
        with shards.atomic(kept) as path, parquet.writer(path, logprobs.SCORED_PAIRS) as writer:
            for file in files:
                scored = parquet.read_parquet(file, schema=logprobs.SCORED_PAIRS)
                writer.write_table(_with_queries(scored, self._hashes[scored["query"].to_numpy()]))
        shards.forget_shards(self._stage, key)
        self._load(kept)
        self.computed += len(pairs)

    def look_up(self, rows: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of log p and numbers of tokens of scored pairs: rows (n,), positions (n, k) -> (n, k) each."""
        places = np.searchsorted(self._keys, logprobs.pair_keys(rows[:, None], positions))
        return self._sums[places], self._tokens[places]

    def _load(self, file: Path) -> None:
        """Add a file's scores of these queries; other queries' scores are left out."""
        keys, sums, tokens = [self._keys], [self._sums], [self._tokens]
        for batch in parquet.batches(file) if len(self._hashes) else ():
            scored = pa.Table.from_batches([batch])
            hashed = scored["query"].to_numpy()
            places = np.searchsorted(self._hashes, hashed, sorter=self._order)
            rows = self._order[np.minimum(places, len(self._order) - 1)]
            scored = _with_queries(scored, rows)
            new = (self._hashes[rows] == hashed) & ~np.isin(logprobs.keys_of(scored), self._keys)
            scored = scored.filter(pa.array(new))
            columns = logprobs.keys_of(scored), *logprobs.sums(scored)
            for values, more in zip((keys, sums, tokens), columns, strict=True):
                values.append(more)
            whole = pa.array(scored["query"].to_numpy() >= self._whole)
            self.whole = pa.concat_tables([self.whole, scored.filter(whole)])
        joined = np.concatenate(keys)
        order = np.argsort(joined, kind="stable")
        self._keys = joined[order]
        self._sums, self._tokens = np.concatenate(sums)[order], np.concatenate(tokens)[order]


def hashes(queries: Queries) -> np.ndarray:
    """A hash of each query's id, context, continuation and template of documents, (n,) int64."""
    texts = zip(queries.ids, queries.contexts, queries.continuations, strict=True)
    joined = ("\x1f".join((*of_query, queries.document)).encode() for of_query in texts)
    digests = b"".join(blake2b(text, digest_size=8).digest() for text in joined)
    return np.frombuffer(digests, ">i8").astype(np.int64)


def forget_scores(lm: str, key: str, docs: Path) -> None:
    """Remove the scores of a language model, by its name, with a corpus's documents."""
    shutil.rmtree(_folder(lm, key, docs), ignore_errors=True)


def _folder(lm: str, key: str, docs: Path) -> Path:
    return FOLDER / f"{lm}-{shards.key_of(key, docs)}"


def _with_queries(scored: pa.Table, values: np.ndarray) -> pa.Table:
    """The table with these values in the column `query`."""
    return scored.set_column(0, logprobs.SCORED_PAIRS.field("query"), pa.array(values))
