"""The training of the tokenizer repeats and reads all of each text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import LongtailError
from sample.make.train_tokenizer import LONG_RUN, LONGEST, train_tokenizer

TEXTS = ["The cat sat on the mat.\n", "naïve café — 北京 🙂", "The dog sat on the log."] * 20


def test_training_repeats_to_the_byte(tmp_path):
    for name in ("once", "again"):
        train_tokenizer(iter(TEXTS), 300, tmp_path / name)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    with pytest.raises(LongtailError, match="vocabulary is 200, expected at least 259"):
        train_tokenizer(TEXTS, 200, tmp_path / "small")


@given(
    st.lists(st.sampled_from(["a word ", "é" * 900, "x" * 2000, "\n", "y" * 1001]), max_size=6).map(
        "".join
    )
)
def test_training_reads_all_of_a_text(text):
    parts = LONG_RUN.split(text)
    assert "".join(parts) == text
    assert max(len(run) for part in parts for run in [*part.split(), ""]) <= LONGEST
