"""Questions are prompts that LSR learns from or is validated on, never on the same subject."""

import pyarrow.parquet as pq

from pipelines.lm.language_model import Prompt
from pipelines.scoring.queries import read_questions


def test_questions_for_validation_share_no_subject_with_those_learnt_from(project):
    popqa = project.folder / "data/questions/popqa/popqa.parquet"
    train, validation, pages = read_questions(popqa, 0, 0.4, 100, 100)
    subjects = {row["question_id"]: row for row in pq.read_table(popqa).to_pylist()}
    assert not {subjects[i]["s_uri"] for i in train.ids} & {subjects[i]["s_uri"] for i in validation.ids}
    assert {subjects[i]["split"] for i in [*train.ids, *validation.ids]} == {"train"}
    assert len(train) + len(validation) == 16
    assert len(validation)
    assert pages.tolist() == [subjects[i]["s_wiki_title"] for i in validation.ids]
    assert train.prompt(0, "A passage.") == Prompt(f"Q: {train.texts[0]} A:", "A passage.\n\n")
    assert train.continuations[0] == " " + subjects[train.ids[0]]["possible_answers"][0]
