"""All 57 subjects of MMLU, NQ, TriviaQA and 24 files of EntityQuestions: read, prompted and scored with a tiny LM."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import tiny_models

from pipelines import catalogue, params, params_file
from pipelines.answering import answer
from pipelines.evaluation import evaluate_tasks, mmlu, task_items
from pipelines.evaluation.task_items import Task, read_open_qa
from pipelines.lm.local import LocalModel
from pipelines.questions import matching
from pipelines.questions.entityquestions import read_questions
from pipelines.sources.rejects import Rejects

pytestmark = pytest.mark.usefixtures("workplace")

CHOSEN = params.Tasks(max_questions=20_000, mmlu_query="question", mmlu_shots=5, qa_shots=16, new_tokens=4)
REPLUG = params.Replug(top_k=2, temperature=1.0, mixture="token_mixture", vote=False)
LONG, SHORT = 8_192, 2_048  # tokens that the models read at once


@pytest.fixture(scope="module")
def lms(tmp_path_factory: pytest.TempPathFactory) -> dict[int, LocalModel]:
    """Random models of two context lengths."""
    found = {}
    for positions in (LONG, SHORT):
        folder = tiny_models.language_model(tmp_path_factory.mktemp("lm") / str(positions), positions=positions)
        own = tiny_models.tokenizer()
        own.model_max_length = positions
        own.save_pretrained(folder)
        found[positions] = LocalModel(folder, name="random", dtype="fp32", batch_tokens=4096, device="cpu", threads=1)
    return found


@pytest.fixture(scope="module")
def read(real: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    """The tasks of the real files, with the papers' number of demonstrations; Natural Questions lends TriviaQA's."""
    raw = tmp_path_factory.mktemp("raw")
    (raw / "mmlu").symlink_to(real / "mmlu")
    for name, file in (("nq", "NQ-open.dev.jsonl"), ("triviaqa", "flashrag_triviaqa_test_1000.jsonl")):
        (raw / name).mkdir()
        (raw / name / file).symlink_to(real / "qa" / file)
        (raw / name / "train").mkdir()
        lent = {"nq": "flashrag_triviaqa_test_1000.jsonl", "triviaqa": "flashrag_nq_test_1000.jsonl"}[name]
        (raw / name / "train" / lent).symlink_to(real / "qa" / lent)
    names = ("mmlu", "nq", "triviaqa")
    return {name: catalogue.function(name, "benchmark")(raw / name, CHOSEN, 0, Rejects(0)) for name in names}


def search(queries):
    """Two documents each."""
    texts = [[f"On {query[:40]}", "Nothing of it."] for query in queries]
    return pa.table({"texts": texts, "similarities": [[0.9, 0.1]] * len(queries)})


def evaluate(of: Task, lm: LocalModel, method: str) -> list[dict]:
    found = search if method == "replug" else None
    setup = evaluate_tasks.Setup(method, lm, found, CHOSEN.new_tokens, REPLUG, f"{of.name}-{method}")
    return evaluate_tasks.evaluate(of, setup).to_pylist()


class Prompted:
    """Answers A, and keeps the prompts."""

    name, max_tokens, scores, begins = "prompted", 10**6, False, " "

    def __init__(self):
        self.prompts = []

    def token_id(self, text):
        return "ABCD".index(text.strip())

    def seen(self, prompts, max_tokens):
        return list(prompts)

    def next_token(self, prompts):
        self.prompts += [prompt.context for prompt in prompts]
        return np.tile(np.log([0.4, 0.3, 0.2, 0.1]), (len(prompts), 1))


def test_all_questions_of_mmlu_are_asked_with_five_shots_of_their_subject(read):
    of, lm = read["mmlu"], Prompted()
    assert {subject: len(items) for subject, items in of.shots.items()} == dict.fromkeys(mmlu.CATEGORIES, 5)
    setup = evaluate_tasks.Setup("closed_book", lm, None, CHOSEN.new_tokens, REPLUG, "k")
    table = evaluate_tasks.evaluate(of, setup)
    assert len(table) == len(lm.prompts) == 14_042
    right = pc.equal(pc.list_element(table["answers"], 0), "A")
    assert table["correct"].equals(right)
    for item, prompt in zip(of.items, lm.prompts, strict=True):
        assert prompt == "".join(f"{one.body} {one.answers[0]}\n\n" for one in of.shots[item.subject]) + item.body


@pytest.mark.parametrize("method", ["closed_book", "replug"])
def test_all_subjects_of_mmlu_are_answered(read, lms, method):
    of = read["mmlu"]
    first = {item.subject: item for item in reversed(of.items)}
    few = sorted(first.values(), key=lambda item: item.id)
    few = replace(of, items=few, shots={subject: [] for subject in first})
    rows = evaluate(few, lms[LONG], method)
    assert [row["subject"] for row in rows] == sorted(mmlu.CATEGORIES)
    assert {row["prediction"] for row in rows} <= set("ABCD")
    assert all(row["correct"] == (row["prediction"] == row["answers"][0]) for row in rows)
    assert 0 < sum(row["correct"] for row in rows) < 57


def test_subjects_beyond_the_context_are_left_out_whole_and_named(read, lms):
    lengths = {subject: sum(len(item.body) for item in items) for subject, items in read["mmlu"].shots.items()}
    short, long = min(lengths, key=lengths.get), max(lengths, key=lengths.get)
    names = (long, short)
    few = replace(read["mmlu"], items=[item for item in read["mmlu"].items if item.subject in names][::20])
    rows = evaluate(few, lms[SHORT], "closed_book")
    table, too_long = evaluate_tasks.drop_too_long(pa.Table.from_pylist(rows, evaluate_tasks.SCHEMA), few, lms[SHORT])
    assert too_long == {long: sum(item.subject == long for item in few.items)}
    assert set(table["subject"].to_pylist()) == {short}


def test_a_real_models_positions_hold_five_shots_of_mmlu_and_sixteen_of_nq(read, real_models):
    lm = LocalModel(
        real_models / "smollm2-135m", name="smollm2", dtype="bf16", batch_tokens=4096, device="cpu", threads=1
    )
    document = "A passage of a hundred words, or so. " * 14
    for task in (read["mmlu"], read["nq"]):
        items = sorted(task.items, key=lambda item: -len(item.body))[:20]
        shots = [[f"Knowledge: {document}\n{s.body} {s.answers[0]}\n\n" for s in task.shots[i.subject]] for i in items]
        prompts = task_items.prompts(items, shots, [[document]] * len(items))
        assert all(task_items.fits(prompts, lm, 15))


@pytest.mark.parametrize("method", ["closed_book", "replug"])
@pytest.mark.parametrize(("name", "asked"), [("nq", 3_610), ("triviaqa", 1_000)])
def test_open_questions_are_answered_with_sixteen_shots(read, lms, name, asked, method):
    of = read[name]
    shown = {item.query.casefold() for item in of.shots[""]}
    assert (len(of.items), len(of.shots[""])) == (asked, 16)
    assert not shown & {item.query.casefold() for item in of.items}
    rows = evaluate(replace(of, items=of.items[::200]), lms[LONG], method)
    assert len(rows) == len(of.items[::200])
    assert all(row["correct"] == matching.exact(row["prediction"], row["answers"]) for row in rows)
    assert all(
        matching.exact(f" {item.answers[-1].upper()} ", item.answers) for item in of.items
    )  # some are ")" or "*"


def test_the_hubs_layouts_hold_the_same_questions_under_the_same_ids(real, tmp_path):
    records = []
    for file in sorted((real / "mmlu/dev").glob("*.csv")):
        with file.open(newline="", encoding="utf-8") as lines:
            for question, *choices, letter in csv.reader(lines):
                subject = file.stem.removesuffix("_dev")
                answer = "ABCD".index(letter)
                records.append({"question": question, "subject": subject, "choices": choices, "answer": answer})
    (tmp_path / "dev").mkdir()
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "dev/dev-00000-of-00001.parquet")
    assert mmlu.read_split(tmp_path, "dev", Rejects(0)) == mmlu.read_split(real / "mmlu", "dev", Rejects(0))

    (tmp_path / "own").mkdir()
    (tmp_path / "own/NQ-open.dev.jsonl").symlink_to(real / "qa/NQ-open.dev.jsonl")
    lines = (real / "qa/NQ-open.dev.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "hub").mkdir()
    pq.write_table(pa.Table.from_pylist([json.loads(line) for line in lines]), tmp_path / "hub/NQ-open.dev.parquet")
    settings = CHOSEN.model_copy(update={"qa_shots": 0})
    questions, same = (read_open_qa(tmp_path / name, settings, 0, Rejects(0)).items for name in ("hub", "own"))
    assert len(questions) == 3610
    assert sorted(questions, key=str) == sorted(same, key=str)


def test_all_files_of_entityquestions_are_prompted_and_answered(real, lms, root, tmp_path):
    folder = tmp_path / "entityquestions"
    folder.mkdir()
    for file in [*(real / "entityquestions/test").glob("*.json"), *(real / "entityquestions").glob("*.json")]:
        (folder / file.name).symlink_to(file)
    table = read_questions(folder, Rejects(0))
    assert (len(table), len(pc.unique(table["relation"]))) == (22_075, 24)
    few = pa.concat_tables(
        [table.filter(pc.equal(table["relation"], name))[:2] for name in pc.unique(table["relation"])]
    )
    few = few.append_column("split", pa.array(["test"] * len(few)))
    chosen = params_file.load("answer", path=root / "params.yaml").answer
    chosen = chosen.model_copy(update={"n_shots": 15, "new_tokens": 4})
    setup = answer.Setup("entityquestions", "closed_book", lms[SHORT], None, chosen, REPLUG, 0, "k")
    rows = answer.answer(few, setup)[0].to_pylist()
    assert sorted(row["question_id"] for row in rows) == sorted(few["question_id"].to_pylist())
    assert min(row["prompt_tokens"] for row in rows) > 15 * 10
    right = dict(zip(few["question_id"].to_pylist(), few["possible_answers"].to_pylist(), strict=True))
    assert all(row["correct"] == matching.substring(row["prediction"], right[row["question_id"]]) for row in rows)
