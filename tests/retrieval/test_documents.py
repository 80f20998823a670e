"""Documents come back in the order and shape of the positions asked for."""

import numpy as np
import pytest
from test_index import write_docs

from pipelines.errors import LongtailError
from pipelines.retrieval import documents


@pytest.fixture
def docs(tmp_path):
    return write_docs(tmp_path / "docs.parquet", [f"text {i}" for i in range(100)])


def test_positions_of_any_shape_and_repeated_ones(docs):
    asked = np.array([[99, 0, 17], [17, 17, 64]])
    found = documents.read(docs, asked)
    assert found.texts.tolist() == [["text 99", "text 0", "text 17"], ["text 17", "text 17", "text 64"]]
    assert found.ids[1, 2] == "d:64"
    assert found.titles[0].tolist() == ["t99", "t0", "t17"]


def test_no_positions_give_no_documents(docs):
    assert documents.read(docs, np.empty((0, 3), np.int64)).texts.shape == (0, 3)


def test_a_position_beyond_the_end_is_an_error(docs):
    with pytest.raises(LongtailError, match=r"has 100 documents, but position 100"):
        documents.read(docs, np.array([1, 100]))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(LongtailError, match="no such file"):
        documents.count(tmp_path / "docs.parquet")
