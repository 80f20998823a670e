"""Stage `evaluate_lm`: bits per byte and perplexity by language model, retriever and k (REPLUG,
section 6.1, Figure 5).

data/README.md says what the figures in data/metrics/language_modelling_<corpus>.json are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from pipelines import catalogue, draws, intervals
from pipelines.intervals import Statistic
from pipelines.methods import Method
from pipelines.params.param_types import LMName, Section
from pipelines.params.params import Replug, Report
from pipelines.replug import ensemble
from pipelines.scoring.bits_per_byte import bits_per_byte
from pipelines.scoring.logprob_files import ScoredTexts, read_scored_texts
from pipelines.storage import database
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

LOGPROBS = Path("data/logprobs")
OUT = Path("data/language_modelling")
METRICS = Path("data/metrics")
TEMPERATURES = (1.0, 0.3, 0.1)
COLUMNS = pa.schema(
    {
        "corpus": pa.string(),
        "lm": pa.string(),
        "retriever": pa.string(),
        "k": pa.int32(),
        "query_id": pa.string(),
        "source_document": pa.string(),
        "source": pa.string(),
        "nats": pa.float64(),
        "bytes": pa.int32(),
        "tokens": pa.int32(),
        "words": pa.int32(),
    }
)
# A word counts where it begins, so the rest of the context's last word is no word of the
# continuation. Line ends count as words too.
DESCRIBED = r"""SELECT id, source_document, source,
        len(regexp_extract_all(continuation, '\S+'))
        + len(regexp_extract_all(continuation, '\n'))
        - (regexp_matches(context, '\S$') AND regexp_matches(continuation, '^\S'))::INT AS words
    FROM queries SEMI JOIN (SELECT unnest($ids::VARCHAR[]) AS id) USING (id) ORDER BY id"""

# source_document, source and words (of the continuation) of each query, (queries,)
Texts = dict[str, np.ndarray]


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    seed: int
    lms: list[LMName]
    replug: Replug
    report: Report


class Setting(NamedTuple):
    """How queries were predicted; without documents the retriever is "none" and k is 0."""

    retriever: str  # with @<share> for a share of the corpus
    k: int
    temperature: float

    @property
    def name(self) -> str:
        """The setting in names of figures, without its temperature."""
        return f"{self.retriever}_k{self.k}" if self.k else self.retriever

    @property
    def whole_corpus(self) -> bool:
        """Whether all documents were searched, and no share of them."""
        return "@" not in self.retriever


@dataclass(frozen=True)
class Bits:
    """Nats of each query's continuation by setting; arrays (queries,).

    Nats are NaN where a query was not scored in a setting.
    """

    ids: np.ndarray
    nats: dict[Setting, np.ndarray]
    bytes: np.ndarray
    tokens: np.ndarray


class Ratio(NamedTuple):
    """A figure that is a function of the sums of two columns over queries."""

    function: Statistic
    first: np.ndarray  # (queries,)
    second: np.ndarray  # (queries,)


class BitsStudy(Protocol):
    """A module of pipelines/studies that adds figures to those of a language model on a corpus."""

    def figures_of_bits(
        self, bits: Bits, tables: Path, replug: Replug, intervals_of: Callable
    ) -> dict[str, list[dict]]:
        """Name in the metrics -> rows; the language model's scores are in the folder `tables`.

        `intervals_of` takes what `over_documents` takes as `statistics`.
        """


def evaluate_corpus(
    settings: Settings, corpus: str, studies: Sequence[BitsStudy] = ()
) -> stage.Metrics:
    """Measure every language model on a corpus; write the table and the metrics."""
    metrics: dict[str, dict] = {}
    with atomic(OUT / corpus) as folder:
        folder.mkdir()
        with database.row_group_writer(folder / "bpb.parquet", COLUMNS) as add:
            for lm in settings.lms:
                tables = LOGPROBS / corpus / lm
                bits = measure(tables, settings.replug)
                texts = describe(Path(f"data/corpus/{corpus}/queries.parquet"), bits.ids)
                for rows in per_query(corpus, lm, bits, texts, settings.replug.temperature):
                    add(rows)
                metrics[lm] = figures(bits, texts, settings)
                intervals_of = partial(over_documents, texts["source_document"], settings)
                for study in studies:
                    metrics[lm] |= study.figures_of_bits(
                        bits, tables, settings.replug, intervals_of
                    )

    write_json(METRICS / f"language_modelling_{corpus}.json", metrics)

    logged = {}
    for lm, figures_of_lm in metrics.items():
        for name, figure in figures_of_lm.items():
            if isinstance(figure, dict) and "value" in figure:
                logged[f"{lm}.{name}"] = figure["value"]

    return logged


def measure(tables: Path, replug: Replug) -> Bits:
    """The queries' nats without documents and under each retriever's ensembles of its first 1, 2
    ... k documents.

    `tables` is a folder with the tables of scoring.logprobs. Every temperature of TEMPERATURES is
    measured at `replug.top_k` only. One row group is in memory at a time.
    """
    ids, tokens, n_bytes, nats_of_blocks = [], [], [], []
    for by_retriever in read_scored_texts(tables, 1):
        alone = by_retriever.pop("none")
        nats = {Setting("none", 0, replug.temperature): -alone.closed.sum(1)}
        for name, texts in by_retriever.items():
            rows = np.searchsorted(alone.ids, texts.ids)
            for setting in _settings_of(name, texts.similarities.shape[1], replug):
                nats[setting] = np.full(len(alone.ids), np.nan)
                nats[setting][rows] = _ensemble_nats(texts, setting, replug.mixture)
        ids.append(alone.ids)
        tokens.append(alone.lengths)
        n_bytes.append(alone.bytes.sum(1))
        nats_of_blocks.append(nats)

    all_nats = {}
    for setting in _all_settings(nats_of_blocks):
        blocks = []
        for block_ids, nats in zip(ids, nats_of_blocks, strict=True):
            blocks.append(nats.get(setting, np.full(len(block_ids), np.nan)))
        all_nats[setting] = np.concatenate(blocks)

    return Bits(
        ids=np.concatenate(ids),
        nats=all_nats,
        bytes=np.concatenate(n_bytes),
        tokens=np.concatenate(tokens),
    )


def _settings_of(retriever: str, documents: int, replug: Replug) -> list[Setting]:
    """The settings in which a retriever with so many documents of each query is measured."""
    top_k = min(documents, replug.top_k)
    settings = {Setting(retriever, top_k, replug.temperature)}
    if "@" not in retriever:
        settings |= {Setting(retriever, k, replug.temperature) for k in range(1, documents + 1)}
        settings |= {Setting(retriever, top_k, temperature) for temperature in TEMPERATURES}
    return sorted(settings)


def _ensemble_nats(texts: ScoredTexts, setting: Setting, mixture: str) -> np.ndarray:
    """The nats of the texts under the ensemble of their first k documents, (texts,)."""
    similarities = texts.similarities[:, : setting.k]
    weights = ensemble.log_weights(similarities, setting.temperature)
    mixed = ensemble.MIXTURES[mixture](texts.log_probs[:, : setting.k], weights)
    return -mixed.sum(1)


def _all_settings(nats_of_blocks: list[dict[Setting, np.ndarray]]) -> list[Setting]:
    """The settings of any block, each once, in the order in which they come."""
    settings: dict[Setting, None] = {}
    for nats in nats_of_blocks:
        settings |= dict.fromkeys(nats)
    return list(settings)


def describe(queries: Path, ids: np.ndarray) -> Texts:
    """The texts of the queries `ids`, from queries.parquet."""
    texts = database.ask(DESCRIBED, {"ids": ids.tolist()}, queries=queries).fetchnumpy()
    assert list(texts.pop("id")) == list(ids), "data/logprobs is of other queries"
    return texts


def per_query(
    corpus: str, lm: str, bits: Bits, texts: Texts, temperature: float
) -> Iterator[pa.Table]:
    """The rows of bpb.parquet of a corpus and a language model, ordered by retriever, k and
    query_id."""
    for setting in sorted(bits.nats):
        if setting.temperature != temperature:
            continue
        nats = bits.nats[setting]
        scored = np.isfinite(nats)
        same = {"corpus": corpus, "lm": lm, "retriever": setting.retriever, "k": setting.k}
        of_queries = {
            "query_id": bits.ids,
            "nats": nats,
            "bytes": bits.bytes,
            "tokens": bits.tokens,
        }

        columns = {}
        for name, value in same.items():
            columns[name] = [value] * int(scored.sum())
        for name, values in (of_queries | texts).items():
            columns[name] = values[scored]
        yield pa.table(columns, schema=COLUMNS)


def figures(bits: Bits, texts: Texts, settings: Settings) -> dict:
    """The metrics of a corpus and a language model, as data/README.md names them.

    Figures of one bootstrap keep their order, because a sum's last digits depend on its column.
    """
    sources = texts["source"]
    everything = np.ones(len(bits.ids), bool)
    none = bits.nats[Setting("none", 0, settings.replug.temperature)]
    nats_at_top = {setting.retriever: bits.nats[setting] for setting in _top(bits, settings.replug)}

    def of_rows(ratios: Mapping[str, Ratio], rows: np.ndarray) -> dict[str, dict]:
        """Intervals of ratios over some of the queries, (queries,) bool."""
        statistics = []
        for name, ratio in ratios.items():
            statistics.append((name, ratio.function, [ratio.first[rows], ratio.second[rows]]))
        return over_documents(texts["source_document"][rows], settings, statistics)

    def bits_and_gains(nats: Mapping[str, np.ndarray], rows: np.ndarray) -> dict:
        ratios = {}
        for name, values in nats.items():
            ratios[f"{name} bpb"] = Ratio(_bits_per_byte, values, bits.bytes)
        for name, values in nats.items():
            ratios[f"{name} gain"] = Ratio(_gain, values, none)
        measured = of_rows(ratios, rows)
        figures_by_name = {}
        for name in nats:
            figures_by_name[name] = {
                "bpb": measured[f"{name} bpb"],
                "gain": measured[f"{name} gain"],
            }
        return figures_by_name

    metrics: dict = _counts(texts, everything)
    metrics |= of_rows(_ratios(bits, texts, settings.replug), everything)
    metrics["subsets"] = {}
    for source in sorted(set(sources)):
        rows = sources == source
        metrics["subsets"][source] = _counts(texts, rows) | bits_and_gains(nats_at_top, rows)

    shares = {}
    for setting, nats in bits.nats.items():
        if not setting.whole_corpus:
            share = float(setting.retriever.partition("@")[2])
            shares[f"{share:g}"] = nats

    drawn = np.isfinite(next(iter(shares.values()), none))
    curve = {"0": none} | shares
    metrics["datastore"] = {"queries": int(drawn.sum())} | bits_and_gains(curve, drawn)
    return metrics


def _top(bits: Bits, replug: Replug) -> list[Setting]:
    """Each retriever's setting with `replug.top_k` documents, or with as many as it has."""
    most: dict[str, int] = {}
    for setting in bits.nats:
        if setting.whole_corpus:
            most[setting.retriever] = max(setting.k, most.get(setting.retriever, 0))
    return sorted(
        Setting(name, min(replug.top_k, k), replug.temperature) for name, k in most.items()
    )


def _ratios(bits: Bits, texts: Texts, replug: Replug) -> dict[str, Ratio]:
    """The figures over all queries, in their order."""
    temperature = replug.temperature
    none = bits.nats[Setting("none", 0, temperature)]
    top = _top(bits, replug)
    ratios = {}
    for setting, nats in bits.nats.items():
        if not setting.whole_corpus or setting.temperature != temperature:
            continue
        retriever, k, _ = setting
        name = setting.name
        ratios[f"bpb_{name}"] = Ratio(_bits_per_byte, nats, bits.bytes)
        ratios[f"perplexity_{name}"] = Ratio(_perplexity, nats, bits.tokens)
        ratios[f"word_perplexity_{name}"] = Ratio(_perplexity, nats, texts["words"])
        if k:
            ratios[f"gain_{name}"] = Ratio(_gain, nats, none)
        if k and retriever != "random":
            random = bits.nats[Setting("random", k, temperature)]
            ratios[f"gain_over_random_{name}"] = Ratio(_gain, nats, random)
        one_document = Setting(retriever, 1, temperature)
        if k > 1 and setting in top and one_document in bits.nats:
            ratios[f"gain_over_one_{name}"] = Ratio(_gain, nats, bits.nats[one_document])
        method = Method.of_name(retriever)
        if method.kind == "lsr":
            untuned = Setting(Method("dense", method.retriever).name, k, temperature)
            ratios[f"{retriever}_gain_k{k}"] = Ratio(_gain, nats, bits.nats[untuned])

    for setting, nats in bits.nats.items():
        at_top = setting._replace(temperature=temperature) in top
        if setting.k and at_top and setting.temperature in TEMPERATURES:
            name = f"bpb_{setting.name}_t{setting.temperature:g}"
            ratios[name] = Ratio(_bits_per_byte, nats, bits.bytes)

    return ratios


def _counts(texts: Texts, rows: np.ndarray) -> dict[str, int]:
    """How many queries there are, and of how many source documents."""
    source_documents = set(texts["source_document"][rows])
    return {"queries": int(rows.sum()), "source_documents": len(source_documents)}


def over_documents(
    source_documents: np.ndarray, settings: Settings, statistics: Iterable[tuple]
) -> dict[str, dict]:
    """The `statistics`, as `intervals.of_clusters` takes them, with intervals over source documents
    (queries,)."""
    generator = draws.generator(settings.seed, "language modelling")
    by_name = intervals.of_clusters(
        statistics, source_documents.astype(str), generator, settings.report.bootstrap
    )
    return {name: interval.as_json() for name, interval in by_name.items()}


def _bits_per_byte(sums: np.ndarray) -> np.ndarray:
    return bits_per_byte(sums[:, 0], sums[:, 1])


def _perplexity(sums: np.ndarray) -> np.ndarray:
    return np.exp(sums[:, 0] / sums[:, 1])


def _gain(sums: np.ndarray) -> np.ndarray:
    """How far the first column lies below the second, in %. The bytes are the same, so they cancel
    out."""
    return 100 * (1 - sums[:, 0] / sums[:, 1])


def main(studies: Sequence[BitsStudy]) -> None:
    """Run the stage on the corpus that the command line names."""
    corpus = stage.arguments(__doc__, corpus=catalogue.names("documents")).corpus
    stage.run(
        f"evaluate_lm@{corpus}",
        Settings,
        lambda settings: evaluate_corpus(settings, corpus, studies),
        out=str(OUT / corpus),
    )
