"""The split of question sets: the retriever is tuned with the questions on some subjects, and
tested on the others.
"""

from collections.abc import Iterable

import duckdb
import pyarrow as pa

from pipelines import draws


def split_of(seed: int, uris: Iterable[str], train_share: float) -> list[str]:
    """The split of all questions on each subject URI: "train", to tune the retriever, or "test".

    A hash of (seed, URI) decides. All question sets have the same split, so no test subject is seen
    in tuning.
    """
    numbers = draws.uniforms(seed, "popqa.train", uris)
    return ["train" if number < train_share else "test" for number in numbers]


def create_split_of(db: duckdb.DuckDBPyConnection, seed: int, train_share: float) -> None:
    """Make `split_of` an SQL function of one URI; the split of NULL is NULL."""

    def split(uris: pa.ChunkedArray) -> pa.Array:
        return pa.array(split_of(seed, uris.to_pylist(), train_share), pa.string())

    db.create_function("split_of", split, ["VARCHAR"], "VARCHAR", type="arrow")
