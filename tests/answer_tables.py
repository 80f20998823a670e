"""Small question sets and answers to them, as the stage `answer` writes them."""

from pathlib import Path

import adaptive_pairs
import numpy as np

from pipelines.evaluation import answer_sets


def write_questions(path: Path, popularity: list[int | None], relations: list[str]) -> None:
    """Questions q000, q001, ...

    with these popularities and relations, one for each subject, in reverse order.
    """
    numbers = range(len(popularity))[::-1]
    columns = {
        "relation": relations[::-1],
        "s_uri": [f"http://www.wikidata.org/entity/Q{i}" for i in numbers],
    }
    columns |= {"question": [f"Q{i}?" for i in numbers], "subj": [f"s{i}" for i in numbers]}
    columns |= {"possible_answers": [[f"a{i}"] for i in numbers]}
    adaptive_pairs.write_questions(path, [f"q{i:03}" for i in numbers], popularity[::-1], **columns)


def write_answers(path: Path, right: np.ndarray, **columns) -> None:
    """Answers to q000, q001, ..., right where `right` says; `columns` of the schema, null where
    not named.
    """
    n = len(right)
    known = {
        "method": [path.stem] * n,
        "prediction": [f"p{i}" for i in range(n)],
        "correct_word": right,
    }
    adaptive_pairs.write_answers(path, [f"q{i:03}" for i in range(n)], right, **known | columns)


def read(
    folder: Path, popularity: list[int | None], relations: list[str], **right: np.ndarray
) -> answer_sets.Answers:
    """Answers by each method, right where its array says, to questions with these popularities
    and relations.
    """
    write_questions(folder / "questions.parquet", popularity, relations)
    files = {method: folder / f"{method}.parquet" for method in right}
    for method, file in files.items():
        write_answers(file, right[method])
    questions = folder / "questions.parquet"
    return answer_sets.read_answered(questions, files, seed=0, resamples=100)
