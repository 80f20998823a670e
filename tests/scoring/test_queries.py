"""Questions are prompts that LSR learns from or is validated on, never on the same subject."""

import numpy as np
import pyarrow.parquet as pq

from pipelines.answering.prompts import question_prompt
from pipelines.lm.language_model import Prompt
from pipelines.scoring import logprobs
from pipelines.scoring.queries import read_questions


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
