"""What retrieval reads and what the language model continues with: never the answer, never another split's texts.

Questions are prompts that LSR learns from or is validated on, never on the same subject.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.answering.prompts import question_prompt
from pipelines.lm.language_model import Prompt
from pipelines.scoring import logprobs
from pipelines.scoring.queries import read_language_modelling, read_questions


def test_retrieval_reads_the_context_alone_of_a_splits_texts(project):
    rows = pq.read_table("data/corpus/pile/queries.parquet").to_pylist()
    for split in ("train", "validation", "test"):
        queries, source_documents, sources = read_language_modelling(Path("data/corpus/pile"), split, 0, 100)
        read = [row for row in rows if row["split"] == split]
        assert queries.texts.tolist() == queries.contexts.tolist() == [row["context"] for row in read]
        for name, column in (("id", queries.ids), ("continuation", queries.continuations), ("source", sources)):
            assert column.tolist() == [row[name] for row in read]
        assert source_documents.tolist() == [row["source_document"] for row in read]
    docs = Path("data/corpus/pile/docs.parquet")
    prompts, _ = logprobs.prompts(queries, docs, np.array([[0, 3], [0, logprobs.NONE]]))
    text = pq.read_table(docs)["text"][3].as_py()
    assert prompts == [Prompt(queries.contexts[0], f"{text}\n"), Prompt(queries.contexts[0])]


def test_retrieval_reads_the_question_alone_and_no_subject_is_on_both_sides(project):
    popqa = project.folder / "data/questions/popqa/popqa.parquet"
    rows = pq.read_table(popqa)
    subjects = pa.array([f"u{i // 4}" for i in range(len(rows))])
    pq.write_table(rows.set_column(rows.column_names.index("s_uri"), "s_uri", subjects), popqa)
    asked = {row["question_id"]: row for row in pq.read_table(popqa).to_pylist()}
    train, validation, pages = read_questions(popqa, 0, 0.4, 100, 100, "{title}: {text}")
    assert len(train) + len(validation) == 16
    assert len(validation)
    assert not {asked[i]["s_uri"] for i in train.ids} & {asked[i]["s_uri"] for i in validation.ids}
    assert {asked[i]["split"] for i in [*train.ids, *validation.ids]} == {"train"}
    for queries in (train, validation):
        assert queries.texts.tolist() == [asked[i]["question"] for i in queries.ids]
    assert pages.tolist() == [asked[i]["s_wiki_title"] for i in validation.ids]
    assert train.continuations[0] == " " + asked[train.ids[0]]["possible_answers"][0]
    docs = project.folder / "data/corpus/wikipedia/docs.parquet"
    document = pq.read_table(docs).to_pylist()[3]
    read, ids = logprobs.prompts(train, docs, np.array([[0, 3]]))
    assert ids.tolist() == [document["id"]]
    passage = f"{document['title']}: {document['text']}"
    assert read == [question_prompt(train.texts[0], passage, [])], "as when the model answers"
