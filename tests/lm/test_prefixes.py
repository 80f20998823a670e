"""What sequences of tokens share is found, and never more than they share."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.lm import prefixes
from pipelines.lm.ragged import Ragged

A, B, C = (list(range(start, start + 100)) for start in (0, 1000, 255))


def shared(sequences, limits=None):
    rows = Ragged.of(sequences)
    return [part.tolist() for part in prefixes.shared(rows, rows.lengths - 1 if limits is None else np.array(limits))]


def test_sequences_are_grouped_by_what_they_begin_with_in_whole_blocks_and_no_more_than_is_allowed():
    lengths, groups = shared([[*A[:40], 7], [*B[:70], 7], [*A[:40], 8], [*B[:70], 9, 9], [5]])
    assert lengths == [32, 64, 32, 64, 0]
    assert groups[0] == groups[2] != groups[1] == groups[3]
    assert groups[4] == 0
    assert shared([A, A, B[:40], B[:40], C[:90]])[0] == [96, 96, 32, 32, 0]
    assert shared([A, A], [50, 60])[0] == [48, 48]
    assert shared([[*A[:16], *B], [*A[:16], *C]])[0] == [0, 0], "too little to share is not shared"


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 100), st.integers(0, 3)), max_size=12))
def test_a_group_begins_with_the_same_tokens(drawn):
    sequences = [tokens[:length] + [9] * extra for tokens, length, extra in drawn]
    lengths, groups = shared(sequences)
    for tokens, length, group in zip(sequences, lengths, groups, strict=True):
        assert length % prefixes.BLOCK == 0
        assert length < len(tokens) or length == 0
        alike = [other for other, its in zip(sequences, groups, strict=True) if its == group]
        assert all(tokens[:length] == other[:length] for other in alike)
