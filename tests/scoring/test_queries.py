"""What retrieval reads and what the language model continues with: never the answer, never another split's texts.

Questions are prompts that LSR learns from or is validated on, never on the same subject.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.answering.prompts import question_prompt
from pipelines.lm.language_model import Prompt
from pipelines.scoring import logprobs
from pipelines.scoring.queries import read_language_modelling, read_questions


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_retrieval_reads_the_context_alone_of_a_splits_texts(split, project):
    rows = {row["id"]: row for row in pq.read_table("data/corpus/pile/queries.parquet").to_pylist()}
    queries, source_documents, sources = read_language_modelling(Path("data/corpus/pile"), split, 0, 100)
    assert queries.ids.tolist() == [name for name, row in rows.items() if row["split"] == split]
    read = [rows[name] for name in queries.ids]
    assert queries.texts.tolist() == queries.contexts.tolist() == [row["context"] for row in read]
    assert queries.continuations.tolist() == [row["continuation"] for row in read]
    assert source_documents.tolist() == [row["source_document"] for row in read]
    assert sources.tolist() == [row["source"] for row in read]
    docs = Path("data/corpus/pile/docs.parquet")
    prompts, _ = logprobs.prompts(queries, docs, np.array([[0, 3], [0, logprobs.NONE]]))
    text = pq.read_table(docs)["text"][3].as_py()
    assert prompts == [Prompt(queries.contexts[0], f"{text}\n"), Prompt(queries.contexts[0])]


def test_retrieval_reads_the_question_alone(project):
    popqa = project.folder / "data/questions/popqa/popqa.parquet"
    asked = {row["question_id"]: row["question"] for row in pq.read_table(popqa).to_pylist()}
    for queries in read_questions(popqa, 0, 0.4, 100, 100, "{text}")[:2]:
        assert queries.texts.tolist() == [asked[name] for name in queries.ids]


def test_no_two_questions_on_a_subject_are_on_both_sides(project):
    popqa = project.folder / "data/questions/popqa/popqa.parquet"
    rows = pq.read_table(popqa)
    subjects = [f"u{i // 4}" for i in range(len(rows))]
    pq.write_table(rows.set_column(rows.column_names.index("s_uri"), "s_uri", pa.array(subjects)), popqa)
    of = dict(zip(rows["question_id"].to_pylist(), subjects, strict=True))
    train, validation, _ = read_questions(popqa, 0, 0.4, 100, 100, "{text}")
    assert len(validation)
    assert not {of[name] for name in train.ids} & {of[name] for name in validation.ids}


def test_questions_for_validation_share_no_subject_with_those_learnt_from(project):
    popqa = project.folder / "data/questions/popqa/popqa.parquet"
    train, validation, pages = read_questions(popqa, 0, 0.4, 100, 100, "{title}: {text}")
    subjects = {row["question_id"]: row for row in pq.read_table(popqa).to_pylist()}
    assert not {subjects[i]["s_uri"] for i in train.ids} & {subjects[i]["s_uri"] for i in validation.ids}
    assert {subjects[i]["split"] for i in [*train.ids, *validation.ids]} == {"train"}
    assert len(train) + len(validation) == 16
    assert len(validation)
    assert pages.tolist() == [subjects[i]["s_wiki_title"] for i in validation.ids]
    assert train.document == "{title}: {text}\n\n"
    assert train.prompt(0, "A passage.\n\n") == Prompt(f"Q: {train.texts[0]} A:", "A passage.\n\n")
    read, ids = logprobs.prompts(train, project.folder / "data/corpus/wikipedia/docs.parquet", np.array([[0, 3]]))
    document = pq.read_table(project.folder / "data/corpus/wikipedia/docs.parquet").to_pylist()[3]
    passage = f"{document['title']}: {document['text']}"
    assert ids.tolist() == [document["id"]]
    assert read == [question_prompt(train.texts[0], passage, [])], "as when the model answers"
    assert train.prompt(0, None) == Prompt(f"Q: {train.texts[0]} A:")
    assert train.continuations[0] == " " + subjects[train.ids[0]]["possible_answers"][0]
