"""The task for lm-evaluation-harness asks the run's questions with its prompts, and judges
answers as it does.
"""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import releases
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelines import draws
from pipelines.answering import prompts
from pipelines.language import language
from pipelines.lm.language_model import up_to
from pipelines.questions import matching
from pipelines.release import harness_task

pytestmark = pytest.mark.usefixtures("workplace")
RELATIONS = {"P106": "occupation", "P19": "place of birth", "P36": "capital", "P50": "author"}


def write_task(folder, language="en", **answer) -> dict:
    answer = {"n_shots": 0, "new_tokens": 15, "max_questions": 2000} | answer
    settings = {"seed": 3, "language": language, "answer": answer}
    harness_task.write_harness_task(folder, settings)
    task = (folder / "lm-eval/popqa.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(task.replace("!function ", ""))


@pytest.fixture(scope="module", params=["en", "ja"])
def functions(request, tmp_path_factory) -> ModuleType:
    """The release's lm-eval/functions.py as a program without Longtail runs it; its table has
    60 questions.
    """
    folder = tmp_path_factory.mktemp("release") / "1.0.0"
    folder.mkdir()
    rows = [
        releases.questions()[0]
        | {
            "question_id": f"Q{n}-{pid}-Q9",
            "relation": pid,
            "subj": f"s{n}",
            "obj": f"o{n}",
            "question": f"What {n}?",
        }
        | {"split": "train" if n % 3 == 0 else "test"}
        for n, pid in enumerate([*RELATIONS] * 15)
    ]
    columns = ("question_id", "relation", "split", "s_pop", "question", "obj", "possible_answers")
    table = pa.Table.from_pylist([{name: row[name] for name in columns} for row in rows])
    pq.write_table(table, folder / "popqa.parquet")
    write_task(folder, request.param)
    code = (folder / "lm-eval/functions.py").read_text(encoding="utf-8")
    assert "pipelines" not in code
    made = ModuleType("functions")
    made.__file__ = str(folder / "lm-eval/functions.py")
    made.spoken = language.read_language(request.param)
    exec(code, vars(made))
    return made


@pytest.mark.parametrize(("n_shots", "most"), [(0, 2000), (2, 10), (15, 7)])
def test_it_asks_the_runs_questions_with_its_prompts(functions, n_shots, most):
    import datasets

    datasets.disable_progress_bars()
    file = Path(functions.__file__).parents[1] / "popqa.parquet"
    columns = pq.read_table(file).sort_by("question_id").to_pydict()
    ids, texts = columns["question_id"], columns["question"]
    pool = prompts.Questions(
        ids, np.array(columns["relation"], dtype=object), texts, columns["possible_answers"]
    )
    tested = [i for i, split in enumerate(columns["split"]) if split == "test"]
    asked = [tested[i] for i in draws.sample(3, "answer", [ids[i] for i in tested], most)]
    shots = prompts.demonstrations(3, "popqa", pool, asked, n_shots)
    sent = {
        ids[i]: prompts.question_prompt(
            texts[i],
            None,
            [(texts[j], columns["obj"][j], None) for j in of_question],
            functions.spoken,
        ).context
        for i, of_question in zip(asked, shots, strict=True)
    }
    docs = functions.questions(n_shots=n_shots, seed=3, max_questions=most, version="1.0.0")["test"]
    assert {doc["question_id"]: doc["prompt"] for doc in docs} == sent
    assert len(sent) == min(most, 40)
    assert sum(text.count("\n\n") for text in sent.values()) == len(sent) * min(n_shots, 3)


@given(
    text=st.text("ab W\n.é東ドﾄ", max_size=12),
    answers=st.lists(st.text("ab Wé東ドト", max_size=3), max_size=3),
)
def test_it_judges_as_the_run_does(functions, text: str, answers: Sequence[str]):
    answer = up_to(text, "\n")
    judged = functions.judge({"possible_answers": answers}, [text])
    assert judged["substring"] == matching.substring(answer, answers)
    assert judged["word"] == matching.word(answer, answers, functions.spoken)


def test_the_task_has_the_runs_settings_and_calls_what_is_there(tmp_path, functions):
    (tmp_path / "2.0.0").mkdir()
    task = write_task(tmp_path / "2.0.0", n_shots=15, max_questions=7)
    assert task["metadata"] == {"version": "2.0.0", "n_shots": 15, "seed": 3, "max_questions": 7}
    assert task["generation_kwargs"] == {"until": [], "max_gen_toks": 15, "do_sample": False}
    for name in (task["custom_dataset"], task["process_results"]):
        assert callable(getattr(functions, name.removeprefix("functions.")))
