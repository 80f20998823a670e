"""Stage `score_lm`: score a corpus's test queries with a language model (REPLUG §3).

They are scored alone and with each candidate document (candidates.py). The stage writes
data/logprobs/<corpus>/<lm>/ (see logprob_files.py); studies may add files of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pipelines import catalogue
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.params.param_types import LMName
from pipelines.scoring import logprobs
from pipelines.scoring.candidates import CandidateSettings, find_all, union
from pipelines.scoring.logprob_files import write_logprobs
from pipelines.scoring.logprobs import Candidates, Queries, read_language_modelling
from pipelines.storage import parquet
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import code, stage

if TYPE_CHECKING:
    from pipelines.lm.language_model import LanguageModel
    from pipelines.lm.open_lm import LMWorkers

OUT = Path("data/logprobs")
QUERIES = 64  # queries in memory at once; a killed run loses at most their scores


class Settings(CandidateSettings):
    """The sections of params.yaml that this stage reads."""

    lm: dict[LMName, params.LM]
    replug: params.Replug  # studies read it


class ScoreStudy(Protocol):
    """A module of pipelines/studies that scores more beside the candidates' pairs."""

    def score_more(
        self,
        stage: str,
        key: str,
        lm: LanguageModel | LMWorkers,
        queries: Queries,
        corpus: Path,
        retrieved: Sequence[Candidates],
        settings: Settings,
        size: int,
    ) -> dict[str, tuple[list[Path], str, str]]:
        """Score `size` queries at a time: the table's name -> its files, and their work and key."""


def score_corpus(
    settings: Settings, corpus: str, name: str, studies: Sequence[ScoreStudy] = ()
) -> stage.Metrics:
    """Score the union of all retrievers' candidates, and what studies add; write the tables.

    Raises LongtailError if there are no test queries.
    """
    from pipelines.lm.open_lm import MODELS, lm_at_work

    folder = Path("data/corpus", corpus)
    docs = folder / "docs.parquet"
    lm_settings = settings.lm[name]
    with lm_at_work(MODELS / name, lm_settings, settings.compute, scoring=True) as lm:
        most = settings.logprobs.max_queries
        queries, sources, _ = read_language_modelling(folder, "test", settings.seed, most)
        if not len(queries):
            problem = f"no queries in the split 'test'; raise corpus.{corpus}.query_share"
            raise LongtailError(f"{folder}/queries.parquet: {problem}")

        retrieved = find_all(corpus, queries, sources, settings)
        pairs = union(len(queries), retrieved)
        parts = _parts(pairs, len(queries))
        result_depends_on = (lm_settings, QUERIES, hashlib.blake2b(pairs.tobytes()).digest())
        fingerprint = code.fingerprint("pipelines.scoring.score_lm")
        key = content_key(result_depends_on, fingerprint, MODELS / name, folder)
        work = f"score_lm@{corpus}-{name}"
        files = logprobs.score_parts(work, key, lm, queries, docs, parts)

        # name -> its files, and under which work and key they stay
        tables: dict[str, tuple[list[Path], str, str]] = {}
        for study in studies:
            tables |= study.score_more(work, key, lm, queries, folder, retrieved, settings, QUERIES)
        out = OUT / corpus / name
        write_logprobs(
            out,
            name,
            queries.ids,
            retrieved,
            files=files,
            size=QUERIES,
            others={table: files_of_table for table, (files_of_table, _, _) in tables.items()},
        )

        store = WorkStore()
        store.forget(work, key)
        metrics: dict[str, float] = {"queries": len(queries), "pairs": len(pairs)}
        for table, (_, work_of_table, key_of_table) in tables.items():
            store.forget(work_of_table, key_of_table)
            metrics[table] = parquet.metadata(out / f"{table}.parquet").num_rows
        return metrics | dict(lm.usage)


def _parts(pairs: np.ndarray, n_queries: int) -> list[np.ndarray]:
    """The pairs (n, 2), sorted by query, of QUERIES queries each."""
    first_queries = np.arange(QUERIES, n_queries, QUERIES)
    return np.split(pairs, np.searchsorted(pairs[:, 0], first_queries))


def main(studies: Sequence[ScoreStudy]) -> None:
    """Run the stage on the corpus and the language model that the command line names."""
    arguments = stage.arguments(
        __doc__, corpus=catalogue.names("documents"), lm="one of params.yaml's lms"
    )
    corpus = arguments.corpus
    name = arguments.lm

    def work(settings: Settings) -> stage.Metrics:
        return score_corpus(settings, corpus, name, studies)

    stage.run(f"score_lm@{corpus}-{name}", Settings, work, out=str(OUT / corpus / name))
