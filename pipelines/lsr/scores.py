"""The language model's scores in a training: a pair of query and document is scored once, even if a run is killed.

A score's last digits depend on the batch that it is computed in, so scores stay within their training.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.lm.language_model import LanguageModel
from pipelines.lsr.training_queries import CorpusQueries
from pipelines.scoring import logprobs
from pipelines.storage import parquet, shards


class Scores:
    """Scores of a corpus's queries: sums of log p, and of validation queries the log p of each token.

    `folder` has a Parquet file of logprobs.SCORED_PAIRS for each time that pairs were scored.
    """

    def __init__(self, folder: Path, lm: LanguageModel, corpus: CorpusQueries) -> None:
        self._folder, self._lm, self._corpus = folder, lm, corpus
        self._keys = np.empty(0, np.int64)  # of the scored pairs, ascending
        self._sums, self._tokens = np.empty(0), np.empty(0, np.int64)  # by key
        self.whole = logprobs.SCORED_PAIRS.empty_table()  # the pairs of validation queries
        for file in sorted(folder.glob("*.parquet")):
            self._load(file)

    def __len__(self) -> int:
        return len(self._keys)

    def score(self, pairs: np.ndarray) -> None:
        """Have the language model score those of `pairs` (n, 2), of query and position or NONE, that have no score."""
        pairs = pairs[~np.isin(logprobs.pair_keys(*pairs.T), self._keys)]
        if not len(pairs):
            return
        corpus, key = self._corpus, shards.key_of(str(self._folder), pairs.tobytes())
        parts = np.split(pairs, range(logprobs.SHARD, len(pairs), logprobs.SHARD))
        files = logprobs.score_parts(corpus.stage, key, self._lm, corpus.queries, corpus.docs, parts)
        kept = self._folder / f"{key}.parquet"
        with shards.atomic(kept) as path, parquet.writer(path, logprobs.SCORED_PAIRS) as writer:
            for file in files:
                writer.write_table(parquet.read_parquet(file, schema=logprobs.SCORED_PAIRS))
        shards.forget_shards(corpus.stage, key)
        self._load(kept)

    def look_up(self, rows: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of log p and numbers of tokens of scored pairs: rows (n,), positions (n, k) -> (n, k) each."""
        places = np.searchsorted(self._keys, logprobs.pair_keys(rows[:, None], positions))
        return self._sums[places], self._tokens[places]

    def _load(self, file: Path) -> None:
        for batch in parquet.batches(file):
            scored = pa.Table.from_batches([batch])
            keys, (sums, tokens) = np.append(self._keys, logprobs.keys_of(scored)), logprobs.sums(scored)
            order = np.argsort(keys, kind="stable")
            self._keys = keys[order]
            self._sums, self._tokens = np.append(self._sums, sums)[order], np.append(self._tokens, tokens)[order]
            whole = pa.array(scored["query"].to_numpy() >= self._corpus.train)
            self.whole = pa.concat_tables([self.whole, scored.filter(whole)])
