"""Questions to answer."""

import pyarrow as pa
import pytest


@pytest.fixture
def questions() -> pa.Table:
    n = 60
    return pa.table(
        {
            "question_id": [f"q{i:02d}" for i in range(n)],
            "relation": [f"P{i % 5}" for i in range(n)],
            "subj": [f"S{i}" for i in range(n)],
            "s_wiki_title": [f"S{i}" for i in range(n)],
            "question": [f"What is {i} ?" for i in range(n)],
            "possible_answers": [[f"gold{i}"] for i in range(n)],
            "split": ["train" if i % 3 == 0 else "test" for i in range(n)],
        }
    )
