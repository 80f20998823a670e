"""The language model's scores of LSR's queries with documents (REPLUG §4.2).

They are kept, so that no pair is scored twice in a training.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.language import language
from pipelines.lm.language_model import LanguageModel, all_answered
from pipelines.lm.open_lm import LMWorkers, supervising_lm
from pipelines.lsr.lsr_settings import Settings
from pipelines.lsr.training_queries import CorpusQueries
from pipelines.questions import matching
from pipelines.scoring import logprobs
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import workers

ANSWERS_AT_ONCE = 256  # that the language model generates; a killed run loses no more of them


class Scores:
    """The language model's scores of a corpus's queries: sums of log p.

    For validation they have the log p of each token. `folder` has a Parquet file of `schema` for
    each time that pairs were scored. A score's last digits depend on its batch, so scores stay
    within their training.
    """

    schema = logprobs.SCORED_PAIRS

    def __init__(self, folder: Path, lm: LanguageModel | LMWorkers, corpus: CorpusQueries) -> None:
        self._folder = folder
        self._lm = lm
        self._corpus = corpus
        self._keys = np.empty(0, np.int64)  # the scored pairs' keys, ascending
        self._sums = np.empty(0)  # in the keys' order, like the tokens
        self._tokens = np.empty(0, np.int64)
        self.validation = self.schema.empty_table()  # the pairs of validation queries
        for file in sorted(folder.glob("*.parquet")):
            self._load(file)

    def __len__(self) -> int:
        return len(self._keys)

    def score(self, pairs: np.ndarray) -> None:
        """Have the language model score the pairs that have no score yet.

        `pairs` are (n, 2), of a query and a position or NONE.
        """
        keys = logprobs.pair_keys(pairs[:, 0], pairs[:, 1])
        pairs = pairs[~np.isin(keys, self._keys)]
        if not len(pairs):
            return

        work = self._corpus.stage
        key = content_key((str(self._folder), pairs.tobytes()), code="")
        files = self._ask(work, key, pairs)
        scored_file = self._folder / f"{key}.parquet"
        with atomic(scored_file) as path, parquet.writer(path, self.schema) as writer:
            for file in files:
                writer.write_table(parquet.read_parquet(file, schema=self.schema))
        WorkStore().forget(work, key)
        self._load(scored_file)

    def look_up(self, rows: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of log p and numbers of tokens of scored pairs, (n, k) each.

        The pairs are of rows (n,) and positions (n, k).
        """
        keys = logprobs.pair_keys(rows[:, None], positions)
        assert np.isin(keys, self._keys).all(), "a pair was not scored"
        places = np.searchsorted(self._keys, keys)
        return self._sums[places], self._tokens[places]

    def _ask(self, work: str, key: str, pairs: np.ndarray) -> list[Path]:
        """Files of `schema` for the pairs, in their order, which stay under (work, key)."""
        parts = np.split(pairs, range(logprobs.SHARD, len(pairs), logprobs.SHARD))
        corpus = self._corpus
        return logprobs.score_parts(work, key, self._lm, corpus.queries, corpus.docs, parts)

    def _rewards(self, scored: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """The sum and the number of tokens of each scored pair, (rows,) each."""
        return logprobs.sums(scored)

    def _load(self, file: Path) -> None:
        for batch in parquet.batches(file):
            scored = pa.Table.from_batches([batch])
            sums, tokens = self._rewards(scored)
            keys = np.append(self._keys, logprobs.keys_of(scored))
            order = np.argsort(keys, kind="stable")
            self._keys = keys[order]
            self._sums = np.append(self._sums, sums)[order]
            self._tokens = np.append(self._tokens, tokens)[order]

            is_validation = scored["query"].to_numpy() >= self._corpus.train
            validation = scored.filter(pa.array(is_validation))
            self.validation = pa.concat_tables([self.validation, validation])


class RightAnswers(Scores):
    """Whether the language model's own answer is right: 1 or 0, as of one token.

    It is asked as the stage `answer` asks, and judged by whole words: short aliases ("pol" in
    "Poland") get no credit.
    """

    schema = pa.schema({"query": pa.int64(), "document": pa.int64(), "right": pa.bool_()})

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        lm: LanguageModel | LMWorkers,
        corpus: CorpusQueries,
    ) -> None:
        _, lm_settings = supervising_lm(settings)
        self._new_tokens = settings.answer.new_tokens
        self._spoken = language.read_language(settings.language)
        self._shard_size = workers.shard_size(ANSWERS_AT_ONCE, 1, lm_settings.http)
        super().__init__(folder, lm, corpus)

    def _ask(self, work: str, key: str, pairs: np.ndarray) -> list[Path]:
        parts = np.split(pairs, range(self._shard_size, len(pairs), self._shard_size))
        steps = workers.Steps(
            read=self._read_prompts,
            work=partial(_answers, self._new_tokens),
            write=self._write_judged,
            length=logprobs.ScoringInput.length,
        )
        sizes = [len(part) for part in parts]
        return workers.map_texts(self._lm, work, key, parts, steps, sizes=sizes, unit="answer")

    def _read_prompts(self, part: np.ndarray) -> logprobs.ScoringInput:
        prompts, doc_ids = logprobs.prompts(self._corpus.queries, self._corpus.docs, part)
        return logprobs.ScoringInput(prompts, doc_ids, [])

    def _write_judged(self, part: np.ndarray, answers: list[str], path: Path) -> None:
        assert self._corpus.answers is not None, "texts have no right answers"
        is_right = []
        rows, positions = part.T
        for answer, acceptable in zip(answers, self._corpus.answers[rows], strict=True):
            is_right.append(matching.word(answer, acceptable, self._spoken))
        table = pa.table([rows, positions, is_right], schema=self.schema)
        parquet.write_parquet(table, path)

    def _rewards(self, scored: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        is_right = scored["right"].to_numpy(zero_copy_only=False).astype(np.float64)
        one_token = np.ones(len(is_right), np.int64)
        return is_right, one_token


def _answers(new_tokens: int, lm: LanguageModel, scoring_input: logprobs.ScoringInput) -> list[str]:
    generations = all_answered(lm.generate(scoring_input.prompts, new_tokens))
    return [generation.text for generation in generations]
