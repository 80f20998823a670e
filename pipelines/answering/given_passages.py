"""Answer from passages that another system retrieved, in place of a search (REPLUG, section 3).

The stage `imported_passages` joins the other system's files with the question sets. All methods
answer only the questions that have such passages, so that their answers compare.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.methods import Method
from pipelines.params.param_types import Section
from pipelines.params.params import Replug
from pipelines.replug import ensemble
from pipelines.retrieval.documents import Documents
from pipelines.storage import parquet
from pipelines.tables.answers import GIVEN_PASSAGES

QUESTIONS_SHOWN = 5  # in a message
FOLDER = Path("passages/retrieval")  # below data/


class AskedSettings(Section):
    """The sections of params.yaml that say which questions are asked."""

    ways: list[str]
    replug: Replug


def passage_files(method: str, data: Path) -> list[Path]:
    """The files with a method's passages, one for each question set that has some."""
    name = Method("given", Method.of_name(method).retriever).name
    return sorted((data / FOLDER).glob(f"*/{name}.parquet"))


@dataclass(frozen=True)
class GivenPassages:
    """A retriever whose queries are questions' ids, and whose documents another system found."""

    rows: dict[str, range]  # question's id -> rows of its passages in `table`, the best first
    table: pa.Table  # GIVEN_PASSAGES
    folder: Path

    def search(self, ids: list[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and scores of the best passages, (ids, k) each; -1 and -inf in empty places.

        Where one of a question's k passages has no score, all of its scores are 0. Raises
        LongtailError for an unknown id.
        """
        positions = np.full((len(ids), k), -1)
        scores = np.full((len(ids), k), -np.inf, np.float32)
        table_scores = self.table["score"].to_numpy()
        for place, question_id in enumerate(ids):
            if question_id not in self.rows:
                raise LongtailError(
                    f"{self.folder}: no passages for the question {question_id}; "
                    "ask it in another way"
                )
            rows = self.rows[question_id][:k]
            row_scores = table_scores[rows.start : rows.stop]
            if np.isnan(row_scores).any():
                row_scores = 0.0
            positions[place, : len(rows)] = rows
            scores[place, : len(rows)] = row_scores
        return positions, scores

    def read(self, positions: np.ndarray) -> Documents:
        """The passages in some rows, of the shape of `positions`; "" where these are -1."""
        places = positions.ravel()
        is_empty = places < 0
        rows = self.table.take(np.maximum(places, 0))
        columns = []
        for name in ("doc_id", "title", "text"):
            texts = np.array(rows[name].to_pylist(), object)
            texts[is_empty] = ""
            columns.append(texts.reshape(positions.shape))
        ids, titles, texts = columns
        return Documents(ids, titles, texts)


def open_passages(method: str, data: Path) -> GivenPassages:
    """A method's passages for all question sets. Raises LongtailError if there are none."""
    files = passage_files(method, data)
    if not files:
        raise LongtailError(f"{data / FOLDER}: no passages for {method}; `longtail run` joins them")

    tables = [parquet.read_parquet(file, schema=GIVEN_PASSAGES.schema) for file in files]
    table = pa.concat_tables(tables)
    starts = np.flatnonzero(table["rank"].to_numpy() == 1)
    ends = np.append(starts[1:], table.num_rows)
    ids = table["question_id"].take(starts).to_pylist()
    rows = {}
    for question_id, start, end in zip(ids, starts.tolist(), ends.tolist(), strict=True):
        rows[question_id] = range(start, end)
    return GivenPassages(rows, table, data / FOLDER)


def read_asked(dataset: str, settings: AskedSettings, data: Path) -> tuple[pa.Table, list[str]]:
    """The questions of a set that have imported passages for all ways that answer from such.

    Lines say which questions have none, and what the weights of an ensemble become.
    """
    table = parquet.read_parquet(data / f"questions/{dataset}/{dataset}.parquet")
    lines: list[str] = []
    for method in methods.of_kinds(settings.ways, *methods.GIVEN):
        imported = open_passages(method, data)
        ids = pa.array(imported.rows, pa.string())
        has_passages = pc.is_in(table["question_id"], ids)
        missing = table.filter(pc.invert(has_passages))["question"].to_pylist()
        count = f"{len(missing):,} of {table.num_rows:,} questions have no passages for {method}"
        table = table.filter(has_passages)
        if not table.num_rows:
            raise LongtailError(
                f"{imported.folder}: no question of {dataset} has passages for all ways; {count}"
            )
        if missing:
            names = ", ".join(missing[:QUESTIONS_SHOWN])
            lines.append(f"{count} and are not asked: {names}")
        if Method.of_name(method).is_ensemble:
            lines.append(_weights(method, imported, table, settings))
    return table, list(dict.fromkeys(lines))


def _weights(
    method: str, imported: GivenPassages, questions: pa.Table, settings: AskedSettings
) -> str:
    """What the heaviest passage weighs in an ensemble, on average over the questions."""
    k = settings.replug.top_k
    temperature = settings.replug.temperature
    ids = questions["question_id"].to_pylist()
    _, scores = imported.search(ids, k)
    weights = np.exp(ensemble.log_weights(scores, temperature))
    heaviest = weights.max(axis=1).mean()
    return (
        f"{method}: at replug.temperature {temperature:g} the heaviest of {k} weighs {heaviest:.2f}"
    )
