"""Documents come back in the order and shape of the positions asked for; source documents have
theirs.
"""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.retrieval import documents


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """100 documents, one of source s00, two of s01 and so on; row groups of 16."""
    path = tmp_path_factory.mktemp("docs") / "docs.parquet"
    sources = [f"s{n:02d}" for n in range(20) for _ in range(n + 1)][:100]
    columns = {
        "id": [f"d:{i}" for i in range(100)],
        "title": [None, *(f"t{i}" for i in range(1, 100))],
    }
    columns |= {"text": [f"text {i}" for i in range(100)], "source_document": sources}
    pq.write_table(pa.table(columns), path, row_group_size=16)
    return path


def test_positions_of_any_shape_repeated_or_of_no_document(docs):
    result = documents.read_documents(docs, np.array([[99, 0, 17], [17, -1, 64]]))
    assert result.texts.tolist() == [["text 99", "text 0", "text 17"], ["text 17", "", "text 64"]]
    assert result.ids.tolist() == [["d:99", "d:0", "d:17"], ["d:17", "", "d:64"]]
    assert result.titles.tolist() == [["t99", "", "t17"], ["t17", "", "t64"]]
    # in another order by id
    assert documents.read_documents(docs, np.array([2, 10])).ids.tolist() == ["d:2", "d:10"]
    assert documents.read_documents(docs, np.array([[-1], [-1]])).texts.tolist() == [[""], [""]]
    nothing = documents.read_documents(docs, np.empty((0, 3), np.int64))
    assert nothing.texts.shape == nothing.filled("{text}").shape == (0, 3)
    with pytest.raises(LongtailError, match=r"has 100 documents, but position 100"):
        documents.read_documents(docs, np.array([1, 100]))


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 100), (0, 1), (15, 17), (16, 32), (40, 90), (99, 200), (7, 7)]
)
def test_texts_of_a_range_in_batches(docs, start, stop):
    batches = list(documents.filled(docs, start, stop, "{text}", batch=10))
    assert [text for batch in batches for text in batch] == [
        f"text {i}" for i in range(start, min(stop, 100))
    ]
    assert all(0 < len(batch) <= 10 for batch in batches)


@pytest.mark.parametrize(
    ("template", "titled", "untitled"),
    [
        ("passage: {title} {text}", "passage: Oslo The city", "passage: The city"),
        ("{title} [SEP] {text}", "Oslo [SEP] The city", "The city"),
        ("<{title}: {text}>", "<Oslo: The city>", "<The city>"),
        ("passage: {text}", "passage: The city", "passage: The city"),
    ],
)
def test_a_document_without_a_title_leaves_no_separator_behind(template, titled, untitled):
    expected = [titled, untitled, untitled]
    assert documents.fill(template, ["Oslo", "", None], ["The city"] * 3) == expected
    assert documents.fill(template, ["", "Oslo"], ["", ""]) == ["", ""], "no document"
    assert documents.fill("{title} {text}", ["{text}"], ["{title} {0} {"]) == [
        "{text} {title} {0} {"
    ], "braces stay"


def test_only_the_row_groups_of_a_range_are_read(docs, tmp_path):
    broken = Path(shutil.copy(docs, tmp_path))
    others = [
        pq.read_metadata(docs).row_group(group).column(column)
        for group in (0, 1, 4, 5)
        for column in (1, 2)
    ]
    with broken.open("r+b") as file:
        for column in others:
            file.seek(column.dictionary_page_offset or column.data_page_offset)
            file.write(bytes(column.total_compressed_size))
    read = [text for batch in documents.filled(broken, 32, 64, "{text}") for text in batch]
    assert read == [f"text {i}" for i in range(32, 64)]
    assert list(documents.filled(broken, 40, 41, "{text}")) == [["text 40"]]
    assert documents.read_documents(broken, np.arange(40, 50)).texts.tolist() == [
        f"text {i}" for i in range(40, 50)
    ]
    for reader in (
        lambda: list(documents.filled(broken, 31, 64, "{text}")),
        lambda: documents.read_documents(broken, [31, 40]),
    ):
        with pytest.raises(LongtailError, match=r"docs\.parquet: damaged"):
            reader()
    broken.write_bytes(docs.read_bytes()[:-1])
    with pytest.raises(
        LongtailError, match=r"docs\.parquet: damaged \(Parquet magic bytes not found"
    ):
        documents.count_documents(broken)
    with pytest.raises(LongtailError, match="no such file"):
        documents.count_documents(tmp_path / "none")


def test_the_ranges_of_source_documents(docs):
    asked = ["s02", None, "s00", "nowhere", "", "s02", "s13"]
    result = documents.ranges_of_sources(docs, asked)
    assert result.tolist() == [[3, 6], [0, 0], [0, 1], [0, 0], [0, 0], [3, 6], [91, 100]]
