"""Controls of the ensemble: its documents in one prompt, and as much more of the text itself
instead of a document.

The first says what REPLUG's ensemble is worth against concatenation (section 3.2), as far as the
model's positions allow. The second says what a document is worth beside plain context. They are
scored beside the candidates' pairs, into controls.parquet. Scoring takes long, so nothing is
imported here that it does not use: a change there would score all texts again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.retrieval import documents
from pipelines.scoring.bits_per_byte import bits_per_byte_of_sums, percent_saved
from pipelines.scoring.logprobs import Candidates, Queries, Scored, sums
from pipelines.storage import database, parquet
from pipelines.storage.work_store import content_key
from pipelines.work import code, workers

if TYPE_CHECKING:
    from pipelines.evaluation.evaluate_lm import ScoredQueries
    from pipelines.evaluation.stage_metrics import StageMetrics
    from pipelines.params.params import Replug
    from pipelines.scoring.score_lm import Scoring

CONCATENATED = "concatenated"
LONGER_CONTEXT = "longer_context"
RETRIEVERS = ("dense", "lsr")  # the retrievers whose documents are concatenated
BEFORE = """SELECT before FROM queries
    SEMI JOIN (SELECT unnest(?::VARCHAR[]) AS id) USING (id) ORDER BY id"""
TABLES = {
    "lm_controls": (
        "corpus lm control retriever k:int documents:float added_bytes:float "
        "bits_per_byte:interval saved:interval saved_over_same:interval "
        "saved_over_ensemble:interval"
    )
}
SCHEMA = pa.schema(
    {
        "query_id": pa.string(),
        "control": pa.string(),
        "retriever": pa.string(),
        "documents": pa.int32(),  # read whole, or as the only one
        "added_bytes": pa.int32(),  # in front of the query's context
        "log_probs": pa.list_(pa.float32()),  # of each token of the continuation
    }
)


@dataclass(frozen=True)
class Part:
    """Queries that are scored together."""

    queries: Queries
    # the text in front of each query's context, up to a document's length, (queries,) str
    before: np.ndarray
    texts: dict[str, np.ndarray]  # retriever -> the documents of each query, (queries, k) str

    def length(self) -> int:
        """Characters that a model reads to score the part."""
        n_controls = 1 + len(self.texts)
        query_texts = [*self.queries.contexts, *self.queries.continuations]
        characters = n_controls * sum(map(len, query_texts))
        characters += sum(map(len, self.before))
        for texts in self.texts.values():
            characters += sum(map(len, texts.ravel()))
        return characters


def compared(retrieved: Sequence[Candidates]) -> list[Candidates]:
    """The candidates that are concatenated: those of RETRIEVERS, or the first retriever's if a run
    has neither."""
    candidates = [candidates for candidates in retrieved if candidates.retriever in RETRIEVERS]
    return candidates or list(retrieved[:1])


def score_more(scoring: Scoring) -> dict[str, Scored]:
    """Score the controls: a Parquet file of SCHEMA for each block of queries, in their order.

    Nothing is scored where the settings ask for no controls.
    """
    if not scoring.settings.logprobs.controls:
        return {}
    queries = scoring.queries
    k = scoring.settings.replug.top_k
    candidates_of_retrievers = compared(scoring.retrieved)
    docs = scoring.corpus / "docs.parquet"
    ids = queries.ids.tolist()  # sorted, as BEFORE's rows are
    described = database.ask(BEFORE, [ids], queries=scoring.corpus / "queries.parquet")
    before = described.fetchnumpy()["before"]

    def read(rows: np.ndarray) -> Part:
        texts = {}
        for candidates in candidates_of_retrievers:
            best = documents.read_documents(docs, candidates.positions[rows, :k])
            texts[candidates.retriever] = best.filled(queries.document)
        return Part(queries.take(rows), before[rows], texts)

    def write(_rows: np.ndarray, table: pa.Table, path: Path) -> None:
        parquet.write_parquet(table, path)

    work = f"{scoring.work}-controls"
    positions = [candidates.positions[:, :k].tobytes() for candidates in candidates_of_retrievers]
    digest_of_positions = hashlib.blake2b(b"".join(positions)).digest()
    key = content_key((scoring.key, digest_of_positions), code.fingerprint(__name__))
    rows = np.arange(len(queries))
    parts = np.split(rows, rows[scoring.block :: scoring.block])
    steps = workers.Steps(read, _scored, write, Part.length)
    sizes = [len(part) for part in parts]
    files = workers.map_texts(scoring.lm, work, key, parts, steps, sizes=sizes, unit="query")
    return {"controls": Scored(files, work, key)}


@dataclass(frozen=True)
class Prompts:
    """A control's prompts, one for each query."""

    control: str
    retriever: str  # "" where there are no documents
    documents: np.ndarray  # how many each prompt has, (queries,) int32
    prompts: list[Prompt]


def _scored(lm: LanguageModel, part: Part) -> pa.Table:
    """The rows of SCHEMA of some queries. A longer context that is too long loses its far end, the
    beginning."""
    queries = part.queries
    n = len(queries)
    longer = []
    for before, context in zip(part.before, queries.contexts, strict=True):
        longer.append(Prompt(before + context))
    controls = [Prompts(LONGER_CONTEXT, "", np.zeros(n, np.int32), longer)]
    for retriever, texts in part.texts.items():
        counts, prompts = concatenated(lm, queries, texts)
        controls.append(Prompts(CONCATENATED, retriever, counts, prompts))

    all_prompts = []
    for control in controls:
        all_prompts += control.prompts
    continuations = list(queries.continuations) * len(controls)
    log_probs = lm.score(all_prompts, continuations).log_probs

    tables = []
    for number, control in enumerate(controls):
        added_bytes = []
        for prompt, context in zip(control.prompts, queries.contexts, strict=True):
            size = len((prompt.document + prompt.context).encode())
            added_bytes.append(size - len(context.encode()))
        start = number * n
        columns = {
            "query_id": queries.ids,
            "control": [control.control] * n,
            "retriever": [control.retriever] * n,
            "documents": control.documents,
            "added_bytes": added_bytes,
            "log_probs": log_probs[start : start + n],
        }
        tables.append(pa.table(columns, schema=SCHEMA))

    return pa.concat_tables(tables)


def concatenated(
    lm: LanguageModel, queries: Queries, texts: np.ndarray
) -> tuple[np.ndarray, list[Prompt]]:
    """How many documents each prompt has, (n,), and the prompts: the documents, the best nearest
    the context.

    `texts` (n, k) are the documents, best first, "" in empty places, which come last. Where they do
    not fit into what the model reads, the worst are left out one by one. A single document that is
    too long is cut as in an ensemble.
    """
    counts = (texts != "").sum(1).astype(np.int32)

    def prompt(i: int) -> Prompt:
        worst_first = texts[i, : counts[i]][::-1]
        return queries.prompt(i, "".join(worst_first))

    prompts = [prompt(i) for i in range(len(queries))]
    several = np.flatnonzero(counts > 1)
    while len(several):
        prompts_of_several = [prompts[i] for i in several]
        continuations = list(queries.continuations[several])
        fits = lm.fits(prompts_of_several, continuations)
        too_long = several[~fits]
        counts[too_long] -= 1
        for i in too_long:
            prompts[i] = prompt(i)
        several = too_long[counts[too_long] > 1]

    return counts, prompts


@dataclass(frozen=True)
class Control:
    """What was scored of a control; arrays (queries,)."""

    control: str
    retriever: str
    nats: np.ndarray
    documents: np.ndarray
    added_bytes: np.ndarray


def figures_of_bits(
    queries: ScoredQueries, tables: Path, replug: Replug, intervals_of: Callable
) -> dict[str, list[dict]]:
    """The rows "controls" of a language model's metrics on a corpus, whose scores are in the folder
    `tables`."""
    controls = read_controls(tables, queries.ids)
    return {"controls": compare_controls(queries, controls, replug, intervals_of)}


def read_controls(tables: Path, ids: np.ndarray) -> list[Control]:
    """The controls that were scored of the queries `ids`; none where the params asked for none."""
    if not (tables / "controls.parquet").is_file():
        return []
    scored = parquet.read_parquet(tables / "controls.parquet")
    scored = scored.sort_by([(name, "ascending") for name in ("control", "retriever", "query_id")])
    nats = -sums(scored)[0]
    documents_read = scored["documents"].to_numpy()
    added_bytes = scored["added_bytes"].to_numpy()

    controls = []
    for start in range(0, len(scored), len(ids)):
        rows = slice(start, start + len(ids))
        ids_of_control = scored["query_id"][rows].to_pylist()
        assert ids_of_control == list(ids), "controls.parquet is of other queries"
        control = Control(
            control=scored["control"][start].as_py(),
            retriever=scored["retriever"][start].as_py(),
            nats=nats[rows],
            documents=documents_read[rows],
            added_bytes=added_bytes[rows],
        )
        controls.append(control)

    return controls


def compare_controls(
    queries: ScoredQueries, controls: Sequence[Control], replug: Replug, intervals_of: Callable
) -> list[dict]:
    """Bits per byte of each control, and the % saved against no documents, the same documents and
    the whole ensemble.

    A longer context, which has no documents, is compared with each retriever's ensemble.
    `documents` is the mean over the queries that have any, `added_bytes` the mean over all.
    `intervals_of` takes (name, function of sums, columns (queries,) to sum).
    """
    retrievers = [control.retriever for control in controls if control.control == CONCATENATED]
    rows = []
    for control in controls:
        is_concatenated = control.control == CONCATENATED
        with_documents = control.documents[control.documents > 0]
        mean_documents = float(with_documents.mean()) if len(with_documents) else 0.0
        compared_with = [control.retriever] if is_concatenated else retrievers
        for retriever in compared_with:
            ensembles = _ensembles(queries, retriever, replug)
            # an ensemble of as many documents as the prompt has room for, or of the best one
            sizes = np.ones(len(queries.ids), np.int64)
            if is_concatenated:
                sizes = control.documents
            same_documents = _nats_at_sizes(ensembles, sizes)
            row = {"control": control.control, "retriever": retriever}
            row["k"] = len(ensembles) - 1
            row["documents"] = mean_documents
            row["added_bytes"] = float(control.added_bytes.mean())
            statistics = [
                ("bits_per_byte", bits_per_byte_of_sums, [control.nats, queries.bytes]),
                ("saved", percent_saved, [control.nats, ensembles[0]]),
                ("saved_over_same", percent_saved, [control.nats, same_documents]),
                ("saved_over_ensemble", percent_saved, [control.nats, ensembles[-1]]),
            ]
            rows.append(row | intervals_of(statistics))

    return rows


def _nats_at_sizes(ensembles: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Each query's nats with the ensemble of its own size: (k + 1, queries), (queries,) ->
    (queries,).
    """
    return ensembles[sizes, np.arange(len(sizes))]


def _ensembles(queries: ScoredQueries, retriever: str, replug: Replug) -> np.ndarray:
    """The nats of ensembles of 0, 1 ... k documents of a retriever, (k + 1, queries)."""
    by_size = {0: queries.nats["none", 0, replug.temperature]}
    for (name, k, temperature), nats in queries.nats.items():
        if (name, temperature) == (retriever, replug.temperature):
            by_size[k] = nats
    most = min(replug.top_k, max(by_size))
    return np.stack([by_size[k] for k in range(most + 1)])


def rows_of_metrics(metrics: StageMetrics) -> dict[str, list[dict]]:
    """The table lm_controls."""
    return {"lm_controls": metrics.by_lm("controls")}
