"""Natural Questions without triples: questions, demonstrations, and what training files ask too."""

import shutil

import pytest
from asked_sets import build

from pipelines.questions import matching, mmlu

pytestmark = pytest.mark.usefixtures("workplace")


def test_demonstrations_are_the_training_files_questions_in_a_drawn_order(raw):
    questions, shown = build(raw, "nq")
    assert questions["question"].to_pylist()[:3] == ["who is 0", "who is 9", "who is 10"]
    assert set(questions["split"].to_pylist()) == {"test"}
    assert questions["s_pop"].null_count == questions["s_uri"].null_count == len(questions) == 20
    assert sorted(shown["question"].to_pylist()) == sorted(f"who was {i}" for i in range(20))
    assert shown["question"].to_pylist()[:5] != [f"who was {i}" for i in range(5)]
    assert not set(shown["question_id"].to_pylist()) & set(questions["question_id"].to_pylist())
    assert build(raw, "nq")[1].equals(shown)


def test_questions_of_the_training_set_are_told_apart(raw):
    """In whatever spelling. A question of two files counts once."""
    in_training = [f'{{"question": "Who... IS the {i}?", "answer": "x"}}\n' for i in range(5)]
    with (raw / "nq/train/train.jsonl").open("a") as out:
        out.write("".join(in_training))
    questions, _ = build(raw, "nq")
    category_of = dict(
        zip(questions["question"].to_pylist(), questions["category"].to_pylist(), strict=True)
    )
    categories = ["in training set"] * 5 + ["not in training set"] * 15
    assert category_of == {f"who is {i}": category for i, category in enumerate(categories)}
    shutil.copy(raw / "nq/test.jsonl", raw / "nq/dev.jsonl")
    assert len(build(raw, "nq")[0]) == 20


def test_without_training_files_nothing_is_shown_and_no_category_known(raw):
    shutil.rmtree(raw / "nq/train")
    questions, shown = build(raw, "nq")
    assert (len(questions), len(shown)) == (20, 0)
    assert questions["category"].null_count == 20


def test_sets_without_files_are_empty(raw):
    (raw / "mmlu/test").rename(raw / "elsewhere")
    for name in ("mmlu", "triviaqa"):
        assert [len(table) for table in build(raw, name)] == [0, 0]


def test_all_questions_of_the_real_files_are_asked(real, tmp_path):
    """Natural Questions lends TriviaQA's."""
    (tmp_path / "mmlu").symlink_to(real / "mmlu")
    nq, triviaqa = "flashrag_nq_test_1000.jsonl", "flashrag_triviaqa_test_1000.jsonl"
    for name, file, lent in (("nq", "NQ-open.dev.jsonl", triviaqa), ("triviaqa", triviaqa, nq)):
        (tmp_path / name / "train").mkdir(parents=True)
        (tmp_path / name / file).symlink_to(real / "qa" / file)
        (tmp_path / name / "train" / lent).symlink_to(real / "qa" / lent)
    questions, shown = build(tmp_path, "mmlu")
    assert len(questions) == 14_042
    assert set(questions["relation"].to_pylist()) == {*mmlu.CATEGORIES}
    subjects = shown["relation"].to_pylist()
    assert {subject: subjects.count(subject) for subject in subjects} == dict.fromkeys(
        mmlu.CATEGORIES, 5
    )
    for name, asked in (("nq", 3_610), ("triviaqa", 1_000)):
        questions, shown = build(tmp_path, name)
        assert (len(questions), len(shown)) == (asked, 1_000)
        # some answers are ")" or "*"
        assert all(
            matching.exact_answer(f" {answers[-1].upper()} ", answers)
            for answers in questions["possible_answers"].to_pylist()
        )
