"""Stage `evaluate_lm`: bits per byte and perplexity by language model, retriever and k (REPLUG,
section 6.1, Figure 5).

data/README.md says what the figures in data/metrics/language_modelling_<corpus>.json are.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from pipelines import catalogue, draws, intervals
from pipelines.arrays import take_rows
from pipelines.evaluation.control_figures import Control, compare_controls, read_controls
from pipelines.methods import Method
from pipelines.params.param_types import LMName, Section
from pipelines.params.params import Replug, Report
from pipelines.replug.ensemble import MIXTURES, log_weights
from pipelines.scoring.bits_per_byte import bits_per_byte_of_sums, percent_saved
from pipelines.scoring.logprob_files import ScoredTexts, read_scored_texts
from pipelines.storage import database
from pipelines.storage.atomic import atomic, write_json
from pipelines.tables.language_modelling import BITS_PER_BYTE
from pipelines.work import stage

LOGPROBS = Path("data/logprobs")
OUT = Path("data/language_modelling")
METRICS = Path("data/metrics")
# A word counts where it begins, so the rest of the context's last word is no word of the
# continuation. Line ends count as words too.
DESCRIBED = r"""SELECT id, source_document AS source_documents, source AS sources,
        len(regexp_extract_all(continuation, '\S+'))
        + len(regexp_extract_all(continuation, '\n'))
        - (regexp_matches(context, '\S$') AND regexp_matches(continuation, '^\S'))::INT AS words
    FROM queries SEMI JOIN (SELECT unnest($ids::VARCHAR[]) AS id) USING (id) ORDER BY id"""


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    seed: int
    lms: list[LMName]
    replug: Replug
    report: Report


class Ensemble(NamedTuple):
    """With which documents queries were predicted: the first k of a retriever.

    Without documents the retriever is "none" and k is 0.
    """

    retriever: str  # with @<share> for a share of the corpus
    k: int

    @property
    def name(self) -> str:
        """The ensemble in names of figures."""
        return f"{self.retriever}_k{self.k}" if self.k else self.retriever

    @property
    def whole_corpus(self) -> bool:
        """Whether all documents were searched, and no share of them."""
        return "@" not in self.retriever


@dataclass(frozen=True)
class ScoredQueries:
    """Test queries and how well their continuations were predicted; arrays (queries,).

    Nats are NaN where a query was not scored with an ensemble.
    """

    ids: np.ndarray
    nats: dict[Ensemble, np.ndarray]
    bytes: np.ndarray
    tokens: np.ndarray
    words: np.ndarray
    source_documents: np.ndarray
    sources: np.ndarray

    def take(self, rows: np.ndarray) -> Self:
        """Some of the queries, by a mask (queries,)."""
        nats = {ensemble: nats[rows] for ensemble, nats in self.nats.items()}
        return replace(take_rows(self, rows), nats=nats)


ALONE = Ensemble("none", 0)  # queries without documents


def evaluate_corpus(settings: Settings, corpus: str) -> stage.Metrics:
    """Measure every language model on a corpus; write the table and the metrics."""
    replug = settings.replug
    metrics: dict[str, dict] = {}
    with atomic(OUT / corpus) as folder:
        folder.mkdir()
        with database.row_group_writer(folder / "bpb.parquet", BITS_PER_BYTE.schema) as add:
            for lm in settings.lms:
                tables = LOGPROBS / corpus / lm
                queries = measure(tables, Path(f"data/corpus/{corpus}/queries.parquet"), replug)
                for rows in per_query(corpus, lm, queries):
                    add(rows)
                metrics[lm] = figures(queries, settings)
                controls = read_controls(tables, queries.ids)
                metrics[lm]["controls"] = _compare_controls(queries, controls, settings)

    write_json(METRICS / f"language_modelling_{corpus}.json", metrics)

    logged = {}
    for lm, figures_of_lm in metrics.items():
        for name, figure in figures_of_lm.items():
            if isinstance(figure, dict) and "value" in figure:
                logged[f"{lm}.{name}"] = figure["value"]

    return logged


def measure(tables: Path, queries: Path, replug: Replug) -> ScoredQueries:
    """The queries' nats without documents and under each retriever's ensembles of its first 1, 2
    ... k documents.

    `tables` is a folder with the tables of scoring.logprobs, `queries` the corpus's
    queries.parquet. One row group is in memory at a time.
    """
    ids, tokens, n_bytes, nats_of_blocks = [], [], [], []
    for by_retriever in read_scored_texts(tables, 1):
        alone = by_retriever.pop("none")
        nats_alone = -alone.log_probs_alone.sum(1)
        nats = {ALONE: nats_alone}
        for name, texts in by_retriever.items():
            rows = np.searchsorted(alone.ids, texts.ids)
            for ensemble in _ensembles(name, texts.similarities.shape[1], replug):
                nats_of_block = np.full(len(alone.ids), np.nan)
                nats_of_block[rows] = _ensemble_nats(texts, ensemble.k, replug)
                nats[ensemble] = nats_of_block
        ids.append(alone.ids)
        tokens.append(alone.lengths)
        n_bytes.append(alone.bytes.sum(1))
        nats_of_blocks.append(nats)

    all_ids = np.concatenate(ids)
    described = database.ask(DESCRIBED, {"ids": all_ids.tolist()}, queries=queries).fetchnumpy()
    assert list(described.pop("id")) == list(all_ids), "data/logprobs is of other queries"
    return ScoredQueries(
        ids=all_ids,
        nats=_joined(nats_of_blocks),
        bytes=np.concatenate(n_bytes),
        tokens=np.concatenate(tokens),
        **described,
    )


def _ensembles(retriever: str, documents: int, replug: Replug) -> list[Ensemble]:
    """The ensembles of a retriever with so many documents of each query that are measured."""
    if "@" in retriever:
        return [Ensemble(retriever, min(documents, replug.top_k))]
    return [Ensemble(retriever, k) for k in range(1, documents + 1)]


def _ensemble_nats(texts: ScoredTexts, k: int, replug: Replug) -> np.ndarray:
    """The nats of the texts under the ensemble of their first k documents, (texts,)."""
    log_probs = texts.log_probs[:, :k]
    similarities = texts.similarities[:, :k]
    log_lambda = log_weights(similarities, replug.temperature)
    mixed = MIXTURES[replug.mixture](log_probs, log_lambda)
    return -mixed.sum(1)


def _joined(nats_of_blocks: list[dict[Ensemble, np.ndarray]]) -> dict[Ensemble, np.ndarray]:
    """The nats of all blocks of queries; NaN where a block has none of an ensemble."""
    ensembles: dict[Ensemble, None] = {}
    for nats in nats_of_blocks:
        ensembles |= dict.fromkeys(nats)

    joined = {}
    for ensemble in ensembles:
        blocks = []
        for nats in nats_of_blocks:
            any_nats = next(iter(nats.values()))
            unknown = np.full(len(any_nats), np.nan)
            blocks.append(nats.get(ensemble, unknown))
        joined[ensemble] = np.concatenate(blocks)
    return joined


def per_query(corpus: str, lm: str, queries: ScoredQueries) -> Iterator[pa.Table]:
    """The rows of bpb.parquet of a corpus and a language model, ordered by retriever, k and
    query_id."""
    for ensemble in sorted(queries.nats):
        scored = queries.take(np.isfinite(queries.nats[ensemble]))
        n = len(scored.ids)
        columns = {
            "corpus": [corpus] * n,
            "lm": [lm] * n,
            "retriever": [ensemble.retriever] * n,
            "k": [ensemble.k] * n,
            "query_id": scored.ids,
            "source_document": scored.source_documents,
            "source": scored.sources,
            "nats": scored.nats[ensemble],
            "bytes": scored.bytes,
            "tokens": scored.tokens,
            "words": scored.words,
        }
        yield pa.table(columns, schema=BITS_PER_BYTE.schema)


def figures(queries: ScoredQueries, settings: Settings) -> dict:
    """The metrics of a corpus and a language model, as data/README.md names them.

    Figures of one bootstrap keep their order, because a sum's last digits depend on its column.
    """
    statistics = _statistics(queries, settings.replug)
    metrics: dict = _counts(queries)
    metrics |= over_documents(queries.source_documents, settings, statistics)

    top = {ensemble.retriever: ensemble for ensemble in _top(queries, settings.replug)}
    metrics["subsets"] = {}
    for source in sorted(set(queries.sources)):
        subset = queries.take(queries.sources == source)
        figures_of_subset = _bits_and_gains(subset, top, settings)
        metrics["subsets"][source] = _counts(subset) | figures_of_subset

    by_share = {}  # share of the corpus -> the ensemble of its documents
    for ensemble in queries.nats:
        if not ensemble.whole_corpus:
            share = float(ensemble.retriever.partition("@")[2])
            by_share[f"{share:g}"] = ensemble
    first = next(iter(by_share.values()), ALONE)
    drawn = queries.take(np.isfinite(queries.nats[first]))
    figures_of_shares = _bits_and_gains(drawn, {"0": ALONE} | by_share, settings)
    metrics["datastore"] = {"queries": len(drawn.ids)} | figures_of_shares
    return metrics


def _bits_and_gains(
    queries: ScoredQueries, ensembles: Mapping[str, Ensemble], settings: Settings
) -> dict[str, dict]:
    """Bits per byte by each of the ensembles, and how much less they are than without documents."""
    none = queries.nats[ALONE]
    statistics: list[tuple] = []
    for name, ensemble in ensembles.items():
        columns = [queries.nats[ensemble], queries.bytes]
        statistics.append((f"{name} bpb", bits_per_byte_of_sums, columns))
    for name, ensemble in ensembles.items():
        statistics.append((f"{name} gain", percent_saved, [queries.nats[ensemble], none]))

    measured = over_documents(queries.source_documents, settings, statistics)
    by_name = {}
    for name in ensembles:
        by_name[name] = {"bpb": measured[f"{name} bpb"], "gain": measured[f"{name} gain"]}
    return by_name


def _top(queries: ScoredQueries, replug: Replug) -> list[Ensemble]:
    """Each retriever's ensemble of `replug.top_k` documents, or of as many as it has."""
    most: dict[str, int] = {}
    for ensemble in queries.nats:
        if ensemble.whole_corpus:
            retriever = ensemble.retriever
            most[retriever] = max(ensemble.k, most.get(retriever, 0))
    top = []
    for retriever, n_documents in most.items():
        top.append(Ensemble(retriever, min(replug.top_k, n_documents)))
    return sorted(top)


def _statistics(queries: ScoredQueries, replug: Replug) -> list[tuple]:
    """The figures over all queries, as `over_documents` takes them."""
    all_nats = queries.nats
    top = _top(queries, replug)
    statistics: list[tuple] = []
    for ensemble, nats in all_nats.items():
        if not ensemble.whole_corpus:
            continue
        retriever, k = ensemble
        name = ensemble.name
        statistics.append((f"bpb_{name}", bits_per_byte_of_sums, [nats, queries.bytes]))
        statistics.append((f"perplexity_{name}", _perplexity, [nats, queries.tokens]))
        statistics.append((f"word_perplexity_{name}", _perplexity, [nats, queries.words]))
        baselines = {}
        if k:
            baselines[f"gain_{name}"] = all_nats[ALONE]
        if k and retriever != "random":
            baselines[f"gain_over_random_{name}"] = all_nats[Ensemble("random", k)]
        one_document = Ensemble(retriever, 1)
        if k > 1 and ensemble in top and one_document in all_nats:
            baselines[f"gain_over_one_{name}"] = all_nats[one_document]
        method = Method.of_name(retriever)
        if method.kind == "lsr":
            untuned = Method("dense", method.retriever).name
            baselines[f"{retriever}_gain_k{k}"] = all_nats[Ensemble(untuned, k)]
        for figure, baseline in baselines.items():
            statistics.append((figure, percent_saved, [nats, baseline]))

    return statistics


def _compare_controls(
    queries: ScoredQueries, controls: list[Control], settings: Settings
) -> list[dict]:
    """The rows of the controls, which are compared with ensembles of up to `replug.top_k`
    documents."""
    ensembles = {}
    for ensemble in _top(queries, settings.replug):
        nats = [queries.nats[ALONE]]
        for k in range(1, ensemble.k + 1):
            nats.append(queries.nats[Ensemble(ensemble.retriever, k)])
        ensembles[ensemble.retriever] = np.stack(nats)
    intervals_of = partial(over_documents, queries.source_documents, settings)
    return compare_controls(controls, ensembles, queries.bytes, intervals_of)


def _counts(queries: ScoredQueries) -> dict[str, int]:
    """How many queries there are, and of how many source documents."""
    source_documents = set(queries.source_documents)
    return {"queries": len(queries.ids), "source_documents": len(source_documents)}


def over_documents(
    source_documents: np.ndarray, settings: Settings, statistics: Iterable[tuple]
) -> dict[str, dict]:
    """The `statistics`, as `intervals.of_clusters` takes them, with intervals over source documents
    (queries,)."""
    generator = draws.generator(settings.seed, "language modelling")
    statistics = list(statistics)
    by_name = intervals.of_clusters(
        statistics, source_documents.astype(str), generator, settings.report.bootstrap
    )
    figures = {}
    for name, statistic, _ in statistics:
        figures[name] = by_name[name].within(*RANGES[statistic]).as_json()
    return figures


def _perplexity(sums: np.ndarray) -> np.ndarray:
    nats, counts = sums.T
    return np.exp(nats / counts)


RANGES = {  # statistic -> the least and the most that it can be, as nats are not negative
    bits_per_byte_of_sums: (0.0, math.inf),
    _perplexity: (1.0, math.inf),
    percent_saved: (-math.inf, 100.0),
}


def main() -> None:
    """Run the stage on the corpus that the command line names."""
    corpus = stage.arguments(__doc__, corpus=catalogue.names("documents")).corpus
    stage.run(
        f"evaluate_lm@{corpus}",
        Settings,
        lambda settings: evaluate_corpus(settings, corpus),
        out=str(OUT / corpus),
    )


if __name__ == "__main__":
    main()
