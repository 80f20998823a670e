"""Controls of the ensemble: its documents in one prompt, and as much more of the text itself
instead of a document.

The first says what REPLUG's ensemble is worth against concatenation (section 3.2), as far as the
model's positions allow. The second says what a document is worth beside plain context. They are
scored beside the candidates' pairs, into controls.parquet (evaluation/control_figures.py compares
them).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.retrieval import documents
from pipelines.scoring.logprobs import Candidates, Queries
from pipelines.storage import database, parquet
from pipelines.storage.work_store import content_key
from pipelines.tables.language_modelling import CONTROLS
from pipelines.work import code, workers

if TYPE_CHECKING:
    from pipelines.lm.open_lm import LMWorkers

CONCATENATED = "concatenated"
LONGER_CONTEXT = "longer_context"
RETRIEVERS = ("dense", "lsr")  # the retrievers whose documents are concatenated
BEFORE = """SELECT before FROM queries
    SEMI JOIN (SELECT unnest(?::VARCHAR[]) AS id) USING (id) ORDER BY id"""


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


class Scored(NamedTuple):
    """The parts of the table of controls, and where they stay until they are forgotten."""

    files: list[Path]
    work: str
    key: str


def score_controls(
    lm: LanguageModel | LMWorkers,
    corpus: Path,
    queries: Queries,
    retrieved: Sequence[Candidates],
    *,
    top_k: int,
    at_once: int,
    pairs_work: str,
    pairs_key: str,
) -> Scored:
    """Score the controls: a Parquet file of CONTROLS for each `at_once` queries, in their order.

    `corpus` is the folder of docs.parquet and queries.parquet. `pairs_work` and `pairs_key` are
    those of the scores of the candidates' pairs.
    """
    candidates_of_retrievers = compared(retrieved)
    docs = corpus / "docs.parquet"
    ids = queries.ids.tolist()  # sorted, as BEFORE's rows are
    described = database.ask(BEFORE, [ids], queries=corpus / "queries.parquet")
    before = described.fetchnumpy()["before"]

    def read(rows: np.ndarray) -> Part:
        texts = {}
        for candidates in candidates_of_retrievers:
            best = documents.read_documents(docs, candidates.positions[rows, :top_k])
            texts[candidates.retriever] = best.filled(queries.document)
        return Part(queries.take(rows), before[rows], texts)

    def write(_rows: np.ndarray, table: pa.Table, path: Path) -> None:
        parquet.write_parquet(table, path)

    work = f"{pairs_work}-controls"
    positions = [candidates.positions[:, :top_k] for candidates in candidates_of_retrievers]
    positions_as_bytes = b"".join(array.tobytes() for array in positions)
    digest_of_positions = hashlib.blake2b(positions_as_bytes).digest()
    key = content_key((pairs_key, digest_of_positions), code.fingerprint(__name__))
    rows = np.arange(len(queries))
    parts = np.split(rows, rows[at_once::at_once])
    steps = workers.Steps(read, _scored, write, Part.length)
    sizes = [len(part) for part in parts]
    files = workers.map_texts(lm, work, key, parts, steps, sizes=sizes, unit="query")
    return Scored(files, work, key)


@dataclass(frozen=True)
class Prompts:
    """A control's prompts, one for each query."""

    control: str
    retriever: str  # "" where there are no documents
    documents: np.ndarray  # how many each prompt has, (queries,) int32
    prompts: list[Prompt]


def _scored(lm: LanguageModel, part: Part) -> pa.Table:
    """The rows of CONTROLS of some queries.

    A longer context that is too long loses its far end, the beginning.
    """
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
        tables.append(pa.table(columns, schema=CONTROLS.schema))

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
