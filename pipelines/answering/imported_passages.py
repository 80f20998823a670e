"""Passages from elsewhere: files that have each question's passages, in place of a search (REPLUG, section 3).

Their records are joined with the question sets as predictions are: by id, or by the question's text. All ways answer
the questions that have passages, so that their answers compare.
"""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import methods
from pipelines.answering.passages import inputs
from pipelines.errors import LongtailError
from pipelines.questions.join_predictions import join_predictions
from pipelines.questions.question_tables import read_question_table
from pipelines.replug import ensemble
from pipelines.retrieval.documents import Documents
from pipelines.sources.cell_values import as_text, clean_id
from pipelines.sources.prediction_files import Predictions
from pipelines.sources.prediction_layouts import IDS, TELLING
from pipelines.sources.question_files import Passage, read_questions_with_passages
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import text_id
from pipelines.storage import parquet

SHOWN = 5  # questions in a message


@dataclass(frozen=True)
class Given:
    """A retriever whose queries are questions' ids, and whose documents a file gives."""

    places: dict[str, list[int]]  # question's id -> positions of its passages, best first
    passages: list[Passage]
    folder: Path
    lines: list[str]  # how the files were joined with the question sets

    def search(self, ids: list[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores, (ids, k) each; -1 and -inf in empty places.

        Where one of a question's k passages has no score, all of its scores are 0. LongtailError for an unknown id.
        """
        positions, scores = np.full((len(ids), k), -1), np.full((len(ids), k), -np.inf, np.float32)
        for row, id_ in enumerate(ids):
            if id_ not in self.places:
                raise LongtailError(
                    f"{self.folder}: no passages for the question {id_}; ask it in another way"
                )
            places = self.places[id_][:k]
            known = [self.passages[place].score for place in places]
            positions[row, : len(places)] = places
            scores[row, : len(places)] = [0.0 if None in known else score for score in known]
        return positions, scores

    def read(self, positions: np.ndarray) -> Documents:
        """The passages at positions; "" where these are -1."""
        passages = [*self.passages, Passage("", "", "", None)]  # the last is at -1
        found = [passages[place] for place in positions.ravel().tolist()]
        columns = (
            [getattr(passage, name) for passage in found] for name in ("id", "title", "text")
        )
        return Documents(*(np.array(column, object).reshape(positions.shape) for column in columns))


def read_given(method: str, chosen: SimpleNamespace, data: Path) -> Given:
    """What the files of a method in data/raw/retrieval give for the questions of all sets that are answered.

    Raises LongtailError where they give nothing for any question, and as `join_predictions` does.
    """
    (folder,) = inputs(method, chosen, data)
    rejects = Rejects(1.0)
    records = (
        list(read_questions_with_passages(folder, rejects, answered=False))
        if folder.is_dir()
        else []
    )
    left_out = f"{rejects.bad.total():,} of {rejects.read:,} records are left out"
    bad = [f"{left_out}: {file}, row {row}: {why}" for file, row, why, _ in rejects.rows[:1]]
    places: dict[str, list[int]] = {}
    passages, lines = [], []
    for name in chosen.parts.answered if records else ():
        table = read_question_table(
            data / f"questions/{name}/{name}.parquet", needed=("id", "question", "answers")
        )
        given = _as_predictions(folder, records)
        match = join_predictions(given, table.asked)
        lines += [f"{folder}: {line}" for line in (*bad, *match.described(given))]
        for row, place in match.pairs:
            of_question, id_ = records[row].passages, table.ids[place]
            places[id_] = [*range(len(passages), len(passages) + len(of_question))]
            passages += [
                p if p.id else p._replace(id=f"{id_}:{rank}")
                for rank, p in enumerate(of_question, start=1)
            ]
    if not places:
        raise LongtailError(
            f"{folder}: {len(records):,} questions with passages, and none is of {', '.join(chosen.parts.answered)}; "
            f"name a file that has some under fetch.files.{folder.relative_to(data / 'raw')}"
        )
    return Given(places, passages, folder, lines)


def read_asked(dataset: str, chosen: SimpleNamespace, data: Path) -> tuple[pa.Table, list[str]]:
    """A question set without the questions that a way of params.yaml has no given passages for.

    Lines say how the passages were joined, which questions have none, and what an ensemble's weights become.
    """
    table, lines = parquet.read_parquet(data / f"questions/{dataset}/{dataset}.parquet"), []
    for method in methods.of_kinds(chosen.ways, *methods.GIVEN):
        given = read_given(method, chosen, data)
        has = pc.is_in(table["question_id"], pa.array(given.places, pa.string()))
        without = table.filter(pc.invert(has))["question"].to_pylist()
        missing = f"{len(without):,} of {table.num_rows:,} questions have no passages for {method}"
        lines += given.lines + [
            f"{missing} and are not asked: {', '.join(without[:SHOWN])}"
        ] * bool(without)
        table = table.filter(has)
        if not table.num_rows:
            raise LongtailError(
                f"{given.folder}: no question of {dataset} has passages for all ways; {missing}"
            )
        if methods.split(method)[0] in methods.ENSEMBLES:
            k, temperature = chosen.replug.top_k, chosen.replug.temperature
            _, scores = given.search(table["question_id"].to_pylist(), k)
            heaviest = np.exp(ensemble.log_weights(scores, temperature)).max(axis=1).mean()
            lines.append(
                f"{method}: at replug.temperature {temperature:g} the heaviest of {k} weighs {heaviest:.2f}"
            )
    return table, list(dict.fromkeys(lines))


def _as_predictions(folder: Path, records: list) -> Predictions:
    """The records in the form in which files are joined with questions; their passages stand for what was said."""
    rows = [(record.record.get("metadata") or {}) | record.record for record in records]
    ids = {
        name: [clean_id(row.get(name)) for row in rows]
        for name in IDS
        if any(name in row for row in rows)
    }
    of_records = {
        "texts": [
            text_id("\n".join(passage.text for passage in record.passages)) for record in records
        ],
        "questions": [as_text(record.text) for record in records],
        "answers": [tuple(map(as_text, record.answers)) for record in records],
        "cells": {
            name: [row.get(name) for row in rows]
            for name in TELLING
            if any(name in row for row in rows)
        },
    } | dict.fromkeys(("correct", "calls", "doubt"))
    names = {"question": "question", "answers": "answers"}
    return Predictions(
        folder, "passages", len(rows), names, **of_records, ids=ids, is_cut=False, described=[]
    )
