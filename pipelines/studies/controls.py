"""Controls of the ensemble: its documents in one prompt, and as much more of the text itself instead of a document.

The first says what REPLUG's ensemble is worth against concatenation (§3.2), as far as the model's positions allow. The
second says what a document is worth beside plain context. They are scored beside the candidates' pairs, into
controls.parquet. Scoring takes long, so nothing is imported here that it does not use: a change there would score all
texts again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.retrieval import documents
from pipelines.scoring.logprobs import Candidates, Queries, sums
from pipelines.storage import database, parquet
from pipelines.storage.work_store import key_of
from pipelines.work import workers

if TYPE_CHECKING:
    from pipelines.evaluation.evaluate_lm import Bits
    from pipelines.evaluation.stage_metrics import StageMetrics
    from pipelines.lm.open_lm import LMWorkers

CONCATENATED, LONGER_CONTEXT = "concatenated", "longer_context"
RETRIEVERS = ("dense", "lsr")  # the retrievers whose documents are concatenated
AGAINST = ("bits_per_byte", "saved", "saved_over_same", "saved_over_ensemble")
TABLES = {
    "lm_controls": (
        "corpus lm control retriever k:int documents:float added_bytes:float bits_per_byte:interval "
        "saved:interval saved_over_same:interval saved_over_ensemble:interval"
    )
}
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("query_id", "control", "retriever")),
        *(
            (name, pa.int32()) for name in ("documents", "added_bytes")
        ),  # read whole, or as the only one; put in front
        ("log_probs", pa.list_(pa.float32())),  # per token of the continuation
    ]
)


def compared(retrieved: Sequence[Candidates]) -> list[Candidates]:
    """The candidates that are concatenated: those of RETRIEVERS, or the first retriever's if a run has neither."""
    return [candidates for candidates in retrieved if candidates.retriever in RETRIEVERS] or list(
        retrieved[:1]
    )


def score_more(
    stage: str,
    key: str,
    lm: LanguageModel | LMWorkers,
    queries: Queries,
    corpus: Path,
    retrieved: Sequence[Candidates],
    params: SimpleNamespace,
    size: int,
) -> dict[str, tuple[list[Path], str, str]]:
    """Score the controls of `size` queries at a time: a Parquet file of SCHEMA for each part, in the queries' order.

    The result is the table's name -> its files, and under which stage and key they stay, as in logprobs.score_parts;
    nothing where params ask for no controls.
    """
    if not params.logprobs.controls:
        return {}
    asked, k, docs = compared(retrieved), params.replug.top_k, corpus / "docs.parquet"
    query = "SELECT before FROM queries SEMI JOIN (SELECT unnest(?::VARCHAR[]) AS id) USING (id) ORDER BY id"
    found = database.ask(
        query, [queries.ids.tolist()], queries=corpus / "queries.parquet"
    )  # these ids are sorted
    before = found.fetchnumpy()["before"]
    ranked = hashlib.blake2b(
        b"".join(candidates.positions[:, :k].tobytes() for candidates in asked)
    ).digest()
    kept = f"{stage}-controls", key_of(key, ranked)

    def read(rows: np.ndarray) -> Part:
        texts = {
            c.retriever: documents.read_documents(docs, c.positions[rows, :k]).filled(
                queries.document
            )
            for c in asked
        }
        return Part(queries.take(rows), before[rows], texts)

    every = np.arange(len(queries))
    parts = np.split(every, every[size::size])
    steps = workers.Steps(
        read, _scored, lambda _, table, path: parquet.write_parquet(table, path), Part.length
    )
    sizes = [len(part) for part in parts]
    return {
        "controls": (workers.map_texts(lm, *kept, parts, steps, sizes=sizes, unit="query"), *kept)
    }


class Part(NamedTuple):
    queries: Queries
    before: (
        np.ndarray
    )  # the text in front of each query's context, up to a document's length, (queries,) str
    texts: dict[str, np.ndarray]  # retriever -> the documents of each query, (queries, k) str

    def length(self) -> int:
        asked = [self.queries.contexts, self.queries.continuations] * (1 + len(self.texts))
        read = [self.before, *asked, *(texts.ravel() for texts in self.texts.values())]
        return sum(len(text) for texts in read for text in texts)


def _scored(lm: LanguageModel, part: Part) -> pa.Table:
    """The rows of SCHEMA of some queries. A longer context that is too long loses its far end, the beginning."""
    queries, n, tables = part.queries, len(part.queries), []
    longer = [
        Prompt(before + context)
        for before, context in zip(part.before, queries.contexts, strict=True)
    ]
    asked = [(LONGER_CONTEXT, "", np.zeros(n, np.int32), longer)]
    asked += [
        (CONCATENATED, name, *concatenated(lm, queries, texts))
        for name, texts in part.texts.items()
    ]
    continuations = list(queries.continuations) * len(asked)
    scores = lm.score(
        [prompt for *_, prompts in asked for prompt in prompts], continuations
    ).log_probs
    for number, (control, retriever, counts, prompts) in enumerate(asked):
        sizes = [len((prompt.document + prompt.context).encode()) for prompt in prompts]
        added = [
            size - len(context.encode())
            for size, context in zip(sizes, queries.contexts, strict=True)
        ]
        log_probs = scores[number * n : (number + 1) * n]
        columns = [queries.ids, [control] * n, [retriever] * n, counts, added, log_probs]
        tables.append(pa.table(columns, schema=SCHEMA))
    return pa.concat_tables(tables)


def concatenated(
    lm: LanguageModel, queries: Queries, texts: np.ndarray
) -> tuple[np.ndarray, list[Prompt]]:
    """How many documents each prompt has, (n,), and the prompts: the documents, the best nearest the context.

    `texts` (n, k) are the documents, best first, "" in empty places, which come last. Where they don't fit into what
    the model reads, the worst are left out one by one. A single document that is too long is cut as in an ensemble.
    """
    counts = (texts != "").sum(1).astype(np.int32)

    def prompt(i: int) -> Prompt:
        return queries.prompt(i, "".join(texts[i, : counts[i]][::-1]))

    prompts = [prompt(i) for i in range(len(queries))]
    several = np.flatnonzero(counts > 1)
    while len(several):
        fits = lm.fits([prompts[i] for i in several], list(queries.continuations[several]))
        too_long = several[~fits]
        counts[too_long] -= 1
        for i in too_long:
            prompts[i] = prompt(i)
        several = too_long[counts[too_long] > 1]
    return counts, prompts


class Control(NamedTuple):
    """What was scored of a control; arrays (queries,)."""

    control: str
    retriever: str
    nats: np.ndarray
    documents: np.ndarray
    added_bytes: np.ndarray


def figures_of_bits(
    measured: Bits, tables: Path, params: SimpleNamespace, intervals_of: Callable
) -> dict[str, list[dict]]:
    """The rows "controls" of a language model's metrics on a corpus, whose scores are in the folder `tables`."""
    return {
        "controls": compare_controls(
            measured, read_controls(tables, measured.ids), params, intervals_of
        )
    }


def read_controls(tables: Path, ids: np.ndarray) -> list[Control]:
    """The controls that were scored of the queries `ids`; none where the params asked for none."""
    if not (tables / "controls.parquet").is_file():
        return []
    scored, controls = parquet.read_parquet(tables / "controls.parquet"), []
    scored = scored.sort_by([(name, "ascending") for name in ("control", "retriever", "query_id")])
    nats, documents, added = (
        -sums(scored)[0],
        *(scored[name].to_numpy() for name in ("documents", "added_bytes")),
    )
    for start in range(0, len(scored), len(ids)):
        part = slice(start, start + len(ids))
        assert scored["query_id"][part].to_pylist() == list(ids), (
            "controls.parquet is of other queries"
        )
        of = (scored[name][start].as_py() for name in ("control", "retriever"))
        controls.append(Control(*of, nats[part], documents[part], added[part]))
    return controls


def compare_controls(
    measured: Bits, controls: Sequence[Control], params: SimpleNamespace, intervals_of: Callable
) -> list[dict]:
    """Bits per byte of each control, and the % saved against no documents, the same documents and the whole ensemble.

    The same documents are, for `concatenated`, an ensemble of as many as each prompt has room for; for
    `longer_context`, which has none, the retriever's best one. `documents` is the mean over the queries that have any,
    `added_bytes` the mean over all. `intervals_of` takes (name, function of sums, columns (queries,) to sum).
    """
    rows, temperature = [], params.replug.temperature
    retrievers = [control.retriever for control in controls if control.control == CONCATENATED]
    for control in controls:
        for retriever in [control.retriever] if control.control == CONCATENATED else retrievers:
            nats = {
                k: of
                for (name, k, t), of in measured.nats.items()
                if (name, t) == (retriever, temperature)
            }
            k, nats[0] = min(params.replug.top_k, max(nats)), measured.nats["none", 0, temperature]
            sizes = (
                control.documents
                if control.control == CONCATENATED
                else np.ones(len(nats[0]), np.int64)
            )
            same = np.stack([nats[size] for size in range(k + 1)])[sizes, np.arange(len(sizes))]
            asked = [
                (
                    AGAINST[0],
                    lambda sums: sums[:, 0] / (math.log(2) * sums[:, 1]),
                    [control.nats, measured.bytes],
                )
            ]
            for name, ensemble in zip(AGAINST[1:], (nats[0], same, nats[k]), strict=True):
                asked.append(
                    (
                        name,
                        lambda sums: 100 * (1 - sums[:, 0] / sums[:, 1]),
                        [control.nats, ensemble],
                    )
                )
            has = control.documents[control.documents > 0]
            row = {"control": control.control, "retriever": retriever, "k": k}
            row |= {"documents": float(has.mean()) if len(has) else 0.0}
            row |= {"added_bytes": float(control.added_bytes.mean())}
            rows.append(row | intervals_of(asked))
    return rows


def rows_of_figures(of: StageMetrics) -> dict[str, list[dict]]:
    """The table lm_controls."""
    return {"lm_controls": of.by_lm("controls")}
