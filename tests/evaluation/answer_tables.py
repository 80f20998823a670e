"""Small question sets and answers to them, as the stage `answer` writes them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.answering.answer import SCHEMA
from pipelines.evaluation import accuracy


def write_questions(path: Path, popularity: list[int | None], relations: list[str]) -> None:
    """Questions q000, q001, ... with these popularities and relations, one for each subject, in reverse order."""
    n = len(popularity)
    columns = {
        "question_id": [f"q{i:03}" for i in range(n)],
        "relation": relations,
        "subj": [f"s{i}" for i in range(n)],
        "s_uri": [f"http://www.wikidata.org/entity/Q{i}" for i in range(n)],
        "question": [f"Q{i}?" for i in range(n)],
        "possible_answers": [[f"a{i}"] for i in range(n)],
        "s_pop": pa.array(popularity, pa.int64()),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns).take(np.arange(n)[::-1]), path)


def write_answers(path: Path, right: np.ndarray, **columns) -> None:
    """Answers to q000, q001, ..., right where `right` says; `columns` of the schema, null where not named."""
    n = len(right)
    table = {field.name: pa.nulls(n, field.type) for field in SCHEMA}
    table |= {"question_id": [f"q{i:03}" for i in range(n)], "method": [path.stem] * n}
    table |= {"prediction": [f"p{i}" for i in range(n)], "correct": right, "correct_word": right}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table | columns).cast(SCHEMA), path)


def read(folder: Path, popularity: list[int | None], relations: list[str], **right: np.ndarray) -> accuracy.Answers:
    """Answers by each method, right where its array says, to questions with these popularities and relations."""
    write_questions(folder / "questions.parquet", popularity, relations)
    files = {method: folder / f"{method}.parquet" for method in right}
    for method, file in files.items():
        write_answers(file, right[method])
    return accuracy.read(folder / "questions.parquet", files)
