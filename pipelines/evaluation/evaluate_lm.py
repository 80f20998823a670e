"""Stage `evaluate_lm`: bits per byte and perplexity by language model, retriever and k (REPLUG §6.1, Figure 5).

data/README.md says what the figures in data/metrics/language_modelling_<corpus>.json are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import numpy as np
import pyarrow as pa

from pipelines import catalogue, draws, intervals, methods
from pipelines.params import params
from pipelines.replug import ensemble
from pipelines.scoring.bits_per_byte import bits_per_byte
from pipelines.scoring.logprobs import read_scored_texts
from pipelines.storage import database
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

LOGPROBS = Path("data/logprobs")
OUT = Path("data/language_modelling")
METRICS = Path("data/metrics")
SECTIONS = ("seed", "lms", "replug", "report")
TEMPERATURES = (1.0, 0.3, 0.1)
COLUMNS = pa.schema(
    dict.fromkeys(("corpus", "lm", "retriever"), pa.string())
    | {"k": pa.int32()}
    | dict.fromkeys(("query_id", "source_document", "source"), pa.string())
    | {"nats": pa.float64()}
    | dict.fromkeys(("bytes", "tokens", "words"), pa.int32())
)

Setting = tuple[str, int, float]  # retriever, k, temperature; without documents "none" and k = 0
Texts = dict[
    str, np.ndarray
]  # source_document, source and words (of the continuation) of each query, (queries,)


@dataclass(frozen=True)
class Bits:
    """Nats of each query's continuation by setting, NaN if a query was not scored in it; arrays (queries,)."""

    ids: np.ndarray
    nats: dict[Setting, np.ndarray]
    bytes: np.ndarray
    tokens: np.ndarray


def measure(tables: Path, replug: params.Replug) -> Bits:
    """The queries' nats without documents and under each retriever's ensembles of its first 1, 2 ... k documents.

    `tables` is a folder with the tables of scoring.logprobs. Every temperature of TEMPERATURES is measured at
    `replug.top_k` only. One row group is in memory at a time.
    """
    parts = []
    for by_retriever in read_scored_texts(tables, 1):
        alone = by_retriever.pop("none")
        nats = {("none", 0, replug.temperature): -alone.closed.sum(1)}
        for name, texts in by_retriever.items():
            most = texts.similarities.shape[1]
            top_k = min(most, replug.top_k)
            settings = {(top_k, replug.temperature)}
            if "@" not in name:
                settings |= {(k, replug.temperature) for k in range(1, most + 1)} | {
                    (top_k, t) for t in TEMPERATURES
                }
            for k, temperature in sorted(settings):
                weights = ensemble.log_weights(texts.similarities[:, :k], temperature)
                of_queries = nats[name, k, temperature] = np.full(len(alone.ids), np.nan)
                mixed = ensemble.MIXTURES[replug.mixture](texts.log_probs[:, :k], weights)
                of_queries[np.searchsorted(alone.ids, texts.ids)] = -mixed.sum(1)
        parts.append((alone.ids, nats, alone.bytes.sum(1), alone.lengths))
    ids, nats, n_bytes, tokens = zip(*parts, strict=True)
    unknown = [np.full(len(part), np.nan) for part in ids]
    whole = {
        setting: np.concatenate(
            [part.get(setting, nan) for part, nan in zip(nats, unknown, strict=True)]
        )
        for setting in dict.fromkeys(chain(*nats))
    }
    return Bits(np.concatenate(ids), whole, np.concatenate(n_bytes), np.concatenate(tokens))


class BitsStudy(Protocol):
    """A module of pipelines/studies that adds figures to those of a language model on a corpus."""

    def figures_of_bits(
        self, measured: Bits, tables: Path, params: SimpleNamespace, intervals_of: Callable
    ) -> dict[str, list[dict]]:
        """Name in the metrics -> rows; the language model's scores are in the folder `tables`."""


def evaluate_corpus(
    params: SimpleNamespace, corpus: str, studies: Sequence[BitsStudy] = ()
) -> stage.Metrics:
    """Measure every language model on a corpus; write the table and the metrics."""
    metrics = {}
    with atomic(OUT / corpus) as folder:
        folder.mkdir()
        with database.row_group_writer(folder / "bpb.parquet", COLUMNS) as add:
            for lm in params.lms:
                measured = measure(LOGPROBS / corpus / lm, params.replug)
                texts = describe(Path("data/corpus", corpus, "queries.parquet"), measured.ids)
                for rows in per_query(corpus, lm, measured, texts, params.replug.temperature):
                    add(rows)
                metrics[lm] = figures(measured, texts, params)
                intervals_of = partial(over_documents, texts["source_document"], params)
                for study in studies:
                    metrics[lm] |= study.figures_of_bits(
                        measured, LOGPROBS / corpus / lm, params, intervals_of
                    )
    write_json(METRICS / f"language_modelling_{corpus}.json", metrics)
    named = (
        (f"{lm}.{name}", figure) for lm, of_lm in metrics.items() for name, figure in of_lm.items()
    )
    return {
        name: figure["value"]
        for name, figure in named
        if isinstance(figure, dict) and "value" in figure
    }


def describe(queries: Path, ids: np.ndarray) -> Texts:
    """The texts of the queries `ids`, from queries.parquet.

    A word counts where it begins, so the rest of the context's last word is no word of the continuation.
    """
    query = r"""SELECT id, source_document, source,
          len(regexp_extract_all(continuation, '\S+')) + len(regexp_extract_all(continuation, '\n'))
          - (regexp_matches(context, '\S$') AND regexp_matches(continuation, '^\S'))::INT AS words
        FROM queries SEMI JOIN (SELECT unnest($ids::VARCHAR[]) AS id) USING (id) ORDER BY id"""
    texts = database.ask(query, {"ids": ids.tolist()}, queries=queries).fetchnumpy()
    assert list(texts.pop("id")) == list(ids), "data/logprobs is of other queries"
    return texts


def per_query(
    corpus: str, lm: str, measured: Bits, texts: Texts, temperature: float
) -> Iterator[pa.Table]:
    """The rows of bpb.parquet of a corpus and a language model, ordered by retriever, k and query_id."""
    of_queries = {
        "query_id": measured.ids,
        "bytes": measured.bytes,
        "tokens": measured.tokens,
    } | texts
    for retriever, k, t in sorted(measured.nats):
        if t == temperature:
            nats = measured.nats[retriever, k, t]
            asked = np.isfinite(nats)
            same = {"corpus": corpus, "lm": lm, "retriever": retriever, "k": k}
            columns = {name: [value] * int(asked.sum()) for name, value in same.items()}
            columns |= {
                name: values[asked] for name, values in (of_queries | {"nats": nats}).items()
            }
            yield pa.table(columns, schema=COLUMNS)


def figures(measured: Bits, texts: Texts, params: SimpleNamespace) -> dict:
    """The metrics of a corpus and a language model, as data/README.md names them."""
    nats = {
        (name, k): values
        for (name, k, t), values in measured.nats.items()
        if t == params.replug.temperature
    }
    whole = {setting: values for setting, values in nats.items() if "@" not in setting[0]}
    shares = {
        float(name.partition("@")[2]): values for (name, _), values in nats.items() if "@" in name
    }
    top = sorted(
        {
            (name, min(params.replug.top_k, max(k for other, k in whole if other == name)))
            for name, _ in whole
        }
    )
    none, everything, sources = nats["none", 0], np.ones(len(measured.ids), bool), texts["source"]

    def counts(rows: np.ndarray) -> dict[str, int]:
        return {
            "queries": int(rows.sum()),
            "source_documents": len(set(texts["source_document"][rows])),
        }

    def intervals_of(asked: dict[str, tuple], rows: np.ndarray) -> dict[str, dict]:
        """Intervals of functions of the sums of two columns (queries,), over some of the queries, (queries,) bool."""
        columns = ((name, function, [a[rows], b[rows]]) for name, (function, a, b) in asked.items())
        return over_documents(texts["source_document"][rows], params, columns)

    def bits_and_gains(of_settings: dict[str, np.ndarray], rows: np.ndarray) -> dict:
        asked = {
            f"{name} bpb": (_bits_per_byte, values, measured.bytes)
            for name, values in of_settings.items()
        }
        asked |= {f"{name} gain": (_gain, values, none) for name, values in of_settings.items()}
        found = intervals_of(asked, rows)
        return {
            name: {kind: found[f"{name} {kind}"] for kind in ("bpb", "gain")}
            for name in of_settings
        }

    asked: dict[str, tuple] = {}
    for (name, k), values in whole.items():
        label = f"{name}_k{k}" if k else name
        asked[f"bpb_{label}"] = _bits_per_byte, values, measured.bytes
        asked[f"perplexity_{label}"] = _perplexity, values, measured.tokens
        asked[f"word_perplexity_{label}"] = _perplexity, values, texts["words"]
        if k:
            asked[f"gain_{label}"] = _gain, values, none
        if k and name != "random":
            asked[f"gain_over_random_{label}"] = _gain, values, nats["random", k]
        if k > 1 and (name, k) in top and (name, 1) in whole:
            asked[f"gain_over_one_{label}"] = _gain, values, nats[name, 1]
        kind, retriever = methods.split(name)
        if kind == "lsr":
            asked[f"{name}_gain_k{k}"] = _gain, values, nats[methods.named("dense", retriever), k]
    for (name, k, t), values in measured.nats.items():
        if t in TEMPERATURES and k and (name, k) in top:
            asked[f"bpb_{name}_k{k}_t{t:g}"] = _bits_per_byte, values, measured.bytes
    found, of_top = (
        counts(everything) | intervals_of(asked, everything),
        {name: nats[name, k] for name, k in top},
    )
    of_subsets = {source: sources == source for source in sorted(set(sources))}
    found["subsets"] = {
        source: counts(rows) | bits_and_gains(of_top, rows) for source, rows in of_subsets.items()
    }
    drawn = np.isfinite(next(iter(shares.values()), none))
    curve = {"0": none} | {f"{share:g}": values for share, values in shares.items()}
    found["datastore"] = {"queries": int(drawn.sum())} | bits_and_gains(curve, drawn)
    return found


def over_documents(
    source_documents: np.ndarray, params: SimpleNamespace, asked: Iterable[tuple]
) -> dict[str, dict]:
    """What is `asked` for, as `intervals.of_clusters` takes it, with intervals over source documents (queries,)."""
    generator = draws.generator(params.seed, "language modelling")
    found = intervals.of_clusters(
        asked, source_documents.astype(str), generator, params.report.bootstrap
    )
    return {name: interval.as_json() for name, interval in found.items()}


def _bits_per_byte(sums: np.ndarray) -> np.ndarray:
    return bits_per_byte(sums[:, 0], sums[:, 1])


def _perplexity(sums: np.ndarray) -> np.ndarray:
    return np.exp(sums[:, 0] / sums[:, 1])


def _gain(sums: np.ndarray) -> np.ndarray:
    """How far the first column lies below the second, in %. The bytes are the same, so they cancel out."""
    return 100 * (1 - sums[:, 0] / sums[:, 1])


def main(studies: Sequence[BitsStudy]) -> None:
    """Run the stage on the corpus that the command line names."""
    corpus = stage.arguments(__doc__, corpus=catalogue.names("documents")).corpus
    stage.run(
        f"evaluate_lm@{corpus}",
        SECTIONS,
        lambda params: evaluate_corpus(params, corpus, studies),
        out=str(OUT / corpus),
    )
