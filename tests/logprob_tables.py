"""A small log-probability table of random numbers, as the stage `score_lm` writes one."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.scoring import logprob_files
from pipelines.tables.language_modelling import CONTROLS

QUERIES = 10  # their ids are q00 ...
DRAWN = 4  # of which are on the datastore curve
K = 3
TEXTS = [
    ("The city", " of Velm is"),
    ("It ends mid", "dle of a word \n"),
    (" = Velm = \n", " \n <unk> , or\tnot\n"),
]
WORDS = [3, 4, 6]  # of the continuations, with line ends


def write(folder: Path, lm: str = "tiny", seed: int = 0) -> None:
    """logprobs.parquet, retrieved.parquet and controls.parquet, which has no rows; documents say more than none does, dense ones the
    most.

    Of q01 two documents were found by dense retrieval, of q02 none.
    """
    draw = np.random.default_rng(seed)
    scored, found = [], []
    for number in range(QUERIES):
        query, tokens = f"q{number:02}", 2 + number % 4
        n_bytes = draw.integers(1, 6, tokens).tolist()
        names = {"bm25": 0.8, "dense": 0.6, "lsr": 0.5, "random": 1.0}
        names |= {"dense@0.5": 0.9, "dense@1": 0.6} if number < DRAWN else {}
        said = {"": 1.0}
        for name, level in names.items():
            n = {"q01": 2, "q02": 0}.get(query, K) if name == "dense" else K
            similarities = np.sort(draw.random(n))[::-1].tolist() if name != "random" else [0.0] * n
            ids = [f"{name}{query}{rank}" for rank in range(n)]
            said |= dict.fromkeys(ids, level)
            padded = [*zip(ids, similarities, strict=True), *[("", -np.inf)] * (K - n)]
            found += [(query, name, rank, *one) for rank, one in enumerate(padded, start=1)]
        scored += [
            (lm, query, i, (-level * draw.uniform(1, 3, tokens)).tolist(), n_bytes)
            for i, level in said.items()
        ]
    folder.mkdir(parents=True)
    pq.write_table(CONTROLS.schema.empty_table(), folder / "controls.parquet")
    for name, rows, schema in (
        ("logprobs", scored, logprob_files.LOGPROBS.schema),
        ("retrieved", found, logprob_files.RETRIEVED.schema),
    ):
        columns = dict(
            zip(schema.names, zip(*sorted(rows, key=lambda row: row[:3]), strict=True), strict=True)
        )
        table = pa.table(columns, schema=schema)
        with pq.ParquetWriter(folder / f"{name}.parquet", schema) as writer:
            for some in np.split(
                np.arange(len(table)), np.searchsorted(columns["query_id"], ["q03", "q06"])
            ):
                writer.write_table(table.take(pa.array(some)))


def write_queries(path: Path) -> None:
    """The queries and one more, of two sources; two in a row are of one source document."""
    n = QUERIES + 1
    contexts, continuations = zip(*(TEXTS[i % 3] for i in range(n)), strict=True)
    columns = {
        "id": [f"q{i:02}" for i in range(n)],
        "source": ["CC", "Hub"] * (QUERIES // 2) + ["CC"],
        "source_document": [f"s{i // 2}" for i in range(n)],
        "split": ["test"] * n,
        "context": contexts,
        "continuation": continuations,
    }
    pq.write_table(pa.table(columns), path)
