"""A table of three scored texts with two retrievers, one of which found a document less for one
of them.
"""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CONTINUATIONS = {"q0": " Velm is in Norland.", "q1": " Oslo, they say", "q2": " the the "}


def write(folder: Path) -> tuple[SimpleNamespace, list[dict]]:
    """Corpus, log-probabilities and what was retrieved below `folder`; the params of a stage,
    and the scored rows.
    """
    rng = np.random.default_rng(0)
    scored, retrieved = [], []
    for query, text in CONTINUATIONS.items():
        pieces = [len(part.encode()) for part in text.replace(" ", "\0 ").split("\0") if part]
        for doc in ("", "d0", "d1", "d2"):
            log_probs = -rng.gamma(1.0, 2.0, len(pieces)).astype(np.float32)
            scored.append(
                {
                    "lm": "tiny",
                    "query_id": query,
                    "doc_id": doc,
                    "log_probs": log_probs,
                    "bytes": pieces,
                }
            )
        for name in ("dense", "lsr", "dense@0.1"):
            for rank, doc in enumerate(("d0", "d2") if name == "lsr" else ("d1", "d0"), start=1):
                gone = (query, name, rank) == ("q1", "lsr", 2)
                own = {
                    "doc_id": "" if gone else doc,
                    "similarity": -math.inf if gone else 0.9 / rank,
                }
                retrieved.append({"query_id": query, "retriever": name, "rank": rank} | own)
    queries = [
        {
            "id": q,
            "context": "Of <b>Norland</b> we say:",
            "continuation": text,
            "source_document": q,
            "source": "Pile",
        }
        for q, text in CONTINUATIONS.items()
    ]
    docs = [
        {"id": f"d{i}", "title": "", "text": f"The {'velm ' * i}</script> Oslo the"}
        for i in range(3)
    ]
    docs[0]["text"] += " in"
    for name, tables in {
        "data/logprobs/pile/tiny": {"logprobs": scored, "retrieved": retrieved},
        "data/corpus/pile": {"queries": queries, "docs": docs},
    }.items():
        (folder / name).mkdir(parents=True)
        for file, rows in tables.items():
            pq.write_table(pa.Table.from_pylist(rows), folder / name / f"{file}.parquet")
    params = SimpleNamespace(
        seed=0,
        lms=["tiny"],
        compute=SimpleNamespace(threads=1),
        ingest=SimpleNamespace(memory_gb=1.0),
        c4=SimpleNamespace(sample_mb=1),
        replug=SimpleNamespace(top_k=2, temperature=1.0, mixture="token_mixture"),
        report=SimpleNamespace(bootstrap=50),
    )
    return params, scored
