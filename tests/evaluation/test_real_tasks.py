"""All 57 subjects of MMLU, NQ and TriviaQA, as their real files are read and prompted."""

import pytest

from pipelines import catalogue, params
from pipelines.evaluation import mmlu, task_items
from pipelines.lm.local import LocalModel
from pipelines.questions import matching
from pipelines.sources.rejects import Rejects

CHOSEN = params.Tasks(max_questions=20_000, mmlu_query="question", mmlu_shots=5, qa_shots=16, new_tokens=4)


@pytest.fixture(scope="module")
def read(real, tmp_path_factory):
    """The tasks of the real files, with the papers' number of demonstrations; Natural Questions lends TriviaQA's."""
    raw = tmp_path_factory.mktemp("raw")
    (raw / "mmlu").symlink_to(real / "mmlu")
    nq, triviaqa = "flashrag_nq_test_1000.jsonl", "flashrag_triviaqa_test_1000.jsonl"
    for name, file, lent in (("nq", "NQ-open.dev.jsonl", triviaqa), ("triviaqa", triviaqa, nq)):
        (raw / name / "train").mkdir(parents=True)
        (raw / name / file).symlink_to(real / "qa" / file)
        (raw / name / "train" / lent).symlink_to(real / "qa" / lent)
    names = ("mmlu", "nq", "triviaqa")
    return {name: catalogue.function(name, "benchmark")(raw / name, CHOSEN, 0, Rejects(0)) for name in names}


def test_all_questions_are_asked_with_the_papers_demonstrations(read):
    of = read["mmlu"]
    assert len(of.items) == 14_042
    assert {item.subject for item in of.items} == {*mmlu.CATEGORIES}
    assert {subject: len(items) for subject, items in of.shots.items()} == dict.fromkeys(mmlu.CATEGORIES, 5)
    for name, asked in (("nq", 3_610), ("triviaqa", 1_000)):
        of = read[name]
        assert (len(of.items), len(of.shots[""])) == (asked, 16)
        assert not {item.query.casefold() for item in of.shots[""]} & {item.query.casefold() for item in of.items}
        # some answers are ")" or "*"
        assert all(matching.exact(f" {item.answers[-1].upper()} ", item.answers) for item in of.items)


def test_a_real_models_positions_hold_five_shots_of_mmlu_and_sixteen_of_nq(read, real_models):
    folder, settings = real_models / "smollm2-135m", {"dtype": "bf16", "batch_tokens": 4096, "device": "cpu"}
    lm = LocalModel(folder, name="smollm2", threads=1, **settings)
    document = "A passage of a hundred words, or so. " * 14
    for task in (read["mmlu"], read["nq"]):
        items = sorted(task.items, key=lambda item: -len(item.body))[:20]
        shots = [[f"Knowledge: {document}\n{s.body} {s.answers[0]}\n\n" for s in task.shots[i.subject]] for i in items]
        assert all(task_items.fits(task_items.prompts(items, shots, [[document]] * len(items)), lm, 15))
