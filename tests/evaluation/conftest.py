"""Twenty questions answered closed-book and with dense retrieval."""

from pathlib import Path

import answer_tables
import numpy as np
import pytest

from pipelines.evaluation import answer_sets

N = 20
NUMBER = np.arange(N)


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    """20 questions, the more popular the higher their number; closed-book right from 10 on, dense
    right below 15."""
    relations = ["P1" if i % 2 else "P2" for i in range(N)]
    answer_tables.write_questions(
        tmp_path / "questions.parquet", [10 * (i + 1) for i in range(N)], relations
    )
    files = {method: tmp_path / f"{method}.parquet" for method in ("closed_book", "dense")}
    word = (NUMBER >= 10) & (NUMBER != 12)
    answer_tables.write_answers(
        files["closed_book"], NUMBER >= 10, correct_word=word, lm_calls=[1] * N
    )
    answer_tables.write_answers(files["dense"], NUMBER < 15)
    return files


@pytest.fixture
def answers(files) -> answer_sets.Answers:
    questions = files["dense"].with_name("questions.parquet")
    return answer_sets.read_answered(questions, files, seed=0, resamples=100)
