"""C4 and term frequency: names count where they stand exactly as written, as whole words."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources import c4
from pipelines.sources.rejects import Rejects


def shard(path: Path, *lines: dict | str) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def test_names_count_as_whole_words_exactly_as_written():
    texts = ["New York, York and Yorkshire; new york. NewYork", "York's New York"]
    names = ["New York", "York", "york", "Yorkshire", "New"]
    assert c4.term_frequencies(names, texts).tolist() == [2, 4, 1, 1, 2]


def test_names_with_marks_count_beside_words():
    texts = ["'71 is not a71 or '712; C++ and AC++ and C++s, Motörhead Motörheads"]
    names = ["'71", "C++", "Motörhead", "C"]
    assert c4.term_frequencies(names, texts).tolist() == [1, 2, 1, 2]


def test_names_in_scripts_without_spaces_count_by_characters():
    texts = ["李白 李白詩 白李, 東ドイツとドイツ語 ドイツェ, เมืองไทย"]
    names = ["李白", "白", "ドイツ", "ドイ", "ไทย"]
    assert c4.term_frequencies(names, texts).tolist() == [2, 3, 2, 0, 1]


def test_names_at_the_ends_of_texts_count_and_none_spans_two():
    assert c4.term_frequencies(["Ada", "Ada Ada"], ["Ada", "Ada", "is Ada"]).tolist() == [3, 0]


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_no_name_is_found_across_texts(monkeypatch, size):
    monkeypatch.setattr(c4, "BATCH", size)  # texts searched together
    assert c4.term_frequencies([" Ada", "-Ada"], ["is ", "Ada", "x-", "Ada", "an Ada"]).tolist() == [1, 0]


def test_control_characters_end_a_word_and_are_no_obstacle():
    assert c4.term_frequencies(["Ada", "a da"], ["Ada\x1fAda\0Ada\nAda a\x1fda \x1fa da\x1f"]).tolist() == [4, 2]


def test_no_names_and_no_texts_count_nothing():
    assert c4.term_frequencies([], ["Ada"]).tolist() == []
    assert c4.term_frequencies(["Ada"], []).tolist() == [0]


@given(
    st.lists(st.text("ab 𝒳é", min_size=1, max_size=3), max_size=6, unique=True),
    st.lists(st.text("ab 𝒳é-\n"), max_size=5),
)
def test_counts_are_those_of_a_search_name_by_name(names, texts):
    """Overlapping occurrences, bounded where two word characters would meet."""

    def count(name: str) -> int:
        left = r"(?<!\w)" if name[0].isalnum() else ""
        right = r"(?!\w)" if name[-1].isalnum() else ""
        return sum(len(re.findall(f"{left}(?={re.escape(name)}{right})", text)) for text in texts)

    assert c4.term_frequencies(names, texts).tolist() == [count(name) for name in names]


def test_counts_do_not_depend_on_how_texts_are_batched(monkeypatch):
    texts = [f"Ada {i} met Bob {i % 7} and Ada's Bob" for i in range(50)]
    names = ["Ada", "Bob", "Bob 3", "met"]
    whole = c4.term_frequencies(names, texts)
    monkeypatch.setattr(c4, "BATCH", 40)
    np.testing.assert_array_equal(c4.term_frequencies(names, texts), whole)


def test_the_sample_ends_with_the_text_that_reaches_its_size(tmp_path):
    paths = [shard(tmp_path / f"{i}.json.gz", {"text": "é" * 200_000}, {"text": "b" * 400_000}) for i in range(3)]
    assert [len(text) for text in c4.read_sample(paths, 1, Rejects(0.0))] == [200_000, 400_000, 200_000]


def test_bad_lines_are_kept_with_their_reason(tmp_path):
    path = shard(
        tmp_path / "c.json.gz", {"text": "a"}, "{", {"txt": "b"}, '{"text":"\\ud800"}', {"text": "c", "url": "u"}
    )
    rejects = Rejects(1.0)
    assert list(c4.read_sample([path], 1, rejects)) == ["a", "c"]
    assert [(row, reason) for _, row, reason, _ in rejects.rows] == [
        (2, "bad_json"),
        (3, "unexpected_layout"),
        (4, "bad_json"),
    ]


def test_real_shards_parse(real):
    rejects = Rejects(0.0)
    texts = list(c4.read_sample(sorted((real / "c4").glob("*.json.gz")), 800, rejects))
    assert (len(texts), rejects.read) == (30, 30)
    assert c4.term_frequencies(["New York", "the"], texts).tolist() == [2, 418]
