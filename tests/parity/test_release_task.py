"""lm-evaluation-harness runs a release's task with real weights, and finds the answers and the
accuracy of Longtail.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import releases

from pipelines.answering import answer
from pipelines.params import params
from pipelines.questions.popqa import build_popqa
from pipelines.release import harness_task

pytestmark = pytest.mark.usefixtures("workplace")
QUESTIONS = 20


@pytest.mark.parametrize("n_shots", [0, 3])
def test_the_harness_runs_a_releases_task_and_finds_our_accuracy(
    n_shots, tmp_path, real, real_models, smollm
):
    if not find_spec("lm_eval"):
        pytest.skip("no lm_eval; pip install -e '.[parity]'")
    data = releases.write_data(tmp_path / "data")
    (data / "adaptive/popularity/thresholds.parquet").unlink()
    popqa = params.PopQA(
        source="published", sampling="all", per_relation=100, refresh=False, train_share=0.0
    )
    settings = SimpleNamespace(seed=0, language="en", popqa=popqa, ingest=releases.INGEST)
    settings.popularity = SimpleNamespace(month="2021-10")
    settings.compute = SimpleNamespace(threads=1)
    build_popqa(
        settings, data / "questions/popqa", tmp_path / "none.parquet", real / "popqa/popQA.tsv"
    )
    asked = {"n_shots": n_shots, "new_tokens": 15, "max_questions": QUESTIONS}
    made_by = releases.MADE_BY | {"params": releases.MADE_BY["params"] | {"answer": asked}}
    folder = releases.release(data, tmp_path / "out", made_by=made_by)

    model, theirs = real_models / "smollm2-135m", tmp_path / "theirs"
    words = f"-m lm_eval run --tasks {harness_task.TASK} --model hf --device cpu --batch_size 4 --log_samples".split()
    words += ["--include_path", str(folder / harness_task.FOLDER), "--output_path", str(theirs)]
    words += ["--model_args", f"pretrained={model},dtype=float32"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (results,) = theirs.rglob("results_*.json")
    accuracy = json.loads(results.read_text(encoding="utf-8"))["results"][harness_task.TASK][
        "substring,none"
    ]
    (samples,) = theirs.rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]

    given = params.Answer(**asked, passages=1, passage="{title}\n{text}", passage_tokens=48)
    replug = params.Replug(top_k=1, temperature=1.0, mixture="token_mixture", vote=False)
    setup = answer.Setup("popqa", "closed_book", smollm, None, given, replug, 0, "key")
    ours = answer.answer(pq.read_table(data / "questions/popqa/popqa.parquet"), setup).to_pylist()
    assert {row["doc"]["question_id"]: row["substring"] for row in rows} == {
        row["question_id"]: float(row["correct"]) for row in ours
    }
    assert accuracy == sum(row["correct"] for row in ours) / QUESTIONS
    print(f"{n_shots} demonstrations: accuracy {accuracy} of theirs, {QUESTIONS} questions")
