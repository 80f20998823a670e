"""Stage `score_lm`: score a corpus's test queries with a language model (REPLUG §3).

They are scored alone, with each candidate document (candidates.py), and with the ensemble's
controls (controls.py). The stage writes data/logprobs/<corpus>/<lm>/ (see logprob_files.py).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from pipelines import catalogue
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.params.param_types import LMName
from pipelines.scoring import logprobs
from pipelines.scoring.candidates import CandidateSettings, find_all, union
from pipelines.scoring.controls import score_controls
from pipelines.scoring.logprob_files import write_logprobs
from pipelines.scoring.logprobs import read_language_modelling
from pipelines.storage import parquet
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import code, stage

OUT = Path("data/logprobs")
QUERIES = 64  # queries in memory at once; a killed run loses at most their scores


class Settings(CandidateSettings):
    """The sections of params.yaml that this stage reads."""

    lm: dict[LMName, params.LM]
    replug: params.Replug


def score_corpus(settings: Settings, corpus: str, name: str) -> stage.Metrics:
    """Score the union of all retrievers' candidates, and the controls; write the tables.

    Raises LongtailError if there are no test queries.
    """
    from pipelines.lm.open_lm import MODELS, lm_at_work

    folder = Path("data/corpus", corpus)
    docs = folder / "docs.parquet"
    lm_settings = settings.lm[name]
    work = f"score_lm@{corpus}-{name}"
    with lm_at_work(MODELS / name, lm_settings, settings.compute, scoring=True) as lm:
        most = settings.logprobs.max_queries
        queries, source_documents = read_language_modelling(folder, "test", settings.seed, most)
        if not len(queries):
            raise LongtailError(
                f"{folder}/queries.parquet: no queries in the split 'test'; raise "
                f"corpus.{corpus}.query_share"
            )

        retrieved = find_all(corpus, queries, source_documents, settings)
        pairs = union(len(queries), retrieved)
        parts = _parts(pairs, len(queries))
        digest_of_pairs = hashlib.blake2b(pairs.tobytes()).digest()
        compute = settings.compute
        numerics = (compute.device, compute.threads)
        result_depends_on = (lm_settings, numerics, QUERIES, digest_of_pairs)
        fingerprint = code.fingerprint("pipelines.scoring.score_lm")
        key = content_key(result_depends_on, fingerprint, MODELS / name, folder)
        files = logprobs.score_parts(work, key, lm, queries, docs, parts)

        controls = score_controls(
            lm,
            folder,
            queries,
            retrieved,
            top_k=settings.replug.top_k,
            at_once=QUERIES,
            pairs_work=work,
            pairs_key=key,
        )
        out = OUT / corpus / name
        write_logprobs(
            out,
            name,
            queries.ids,
            retrieved,
            files=files,
            size=QUERIES,
            controls=controls.files,
        )

        store = WorkStore()
        store.forget(work, key)
        store.forget(controls.work, controls.key)
        n_controls = parquet.metadata(out / "controls.parquet").num_rows
        metrics = {"queries": len(queries), "pairs": len(pairs), "controls": n_controls}
        return metrics | lm.usage


def _parts(pairs: np.ndarray, n_queries: int) -> list[np.ndarray]:
    """The pairs (n, 2), sorted by query, of QUERIES queries each."""
    first_queries = np.arange(QUERIES, n_queries, QUERIES)
    first_rows = np.searchsorted(pairs[:, 0], first_queries)
    return np.split(pairs, first_rows)


def main() -> None:
    """Run the stage on the corpus and the language model that the command line names."""
    arguments = stage.arguments(
        __doc__, corpus=catalogue.names("documents"), lm="one of params.yaml's lms"
    )
    corpus = arguments.corpus
    name = arguments.lm
    stage.run(
        f"score_lm@{corpus}-{name}",
        Settings,
        lambda settings: score_corpus(settings, corpus, name),
        out=str(OUT / corpus / name),
    )


if __name__ == "__main__":
    main()
