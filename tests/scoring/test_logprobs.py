"""The log-probability table in memory is looked up by (query, document); continuations may have any length."""

import numpy as np
import pyarrow as pa

from pipelines.scoring import logprobs


def test_gathered_continuations_of_unequal_length_are_filled_with_nothing():
    made = pa.table({"query": [1, 0, 0], "document": [7, 7, 4], "doc_id": ["y", "y", "x"],
                     "log_probs": [[-5.0], [-3.0, -4.0], [-1.0, -2.0]], "bytes": [[6], [3, 4], [3, 4]]},
                    schema=logprobs.SCORED_PAIRS)  # fmt: skip
    log_probs, n_bytes = logprobs.gather(made, np.array([1, 0]), np.array([[7], [7]]))
    assert log_probs.tolist() == [[[-5, 0]], [[-3, -4]]]
    assert n_bytes.tolist() == [[6, 0], [3, 4]]
    sums, tokens = logprobs.sums(made)
    assert (sums.tolist(), tokens.tolist()) == ([-5, -7, -3], [1, 2, 2])
