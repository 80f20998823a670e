"""What retrieval reads and what the language model continues with, of texts: never another
split's.
"""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pipelines.lm.language_model import Prompt
from pipelines.scoring import logprobs
from pipelines.scoring.logprobs import read_language_modelling


def test_retrieval_reads_the_context_alone_of_a_splits_texts(project):
    rows = pq.read_table("data/corpus/pile/queries.parquet").to_pylist()
    for split in ("train", "validation", "test"):
        queries, source_documents = read_language_modelling(Path("data/corpus/pile"), split, 0, 100)
        read = [row for row in rows if row["split"] == split]
        assert (
            queries.texts.tolist() == queries.contexts.tolist() == [row["context"] for row in read]
        )
        assert queries.ids.tolist() == [row["id"] for row in read]
        assert queries.continuations.tolist() == [row["continuation"] for row in read]
        assert source_documents.tolist() == [row["source_document"] for row in read]
    docs = Path("data/corpus/pile/docs.parquet")
    prompts, _ = logprobs.prompts(queries, docs, np.array([[0, 3], [0, logprobs.NONE]]))
    text = pq.read_table(docs)["text"][3].as_py()
    assert prompts == [Prompt(queries.contexts[0], f"{text}\n"), Prompt(queries.contexts[0])]
