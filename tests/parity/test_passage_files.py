"""The harnesses for which `longtail search` writes passages read them: FlashRAG and lm-eval."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pipelines.retrieval import passage_layouts
from pipelines.retrieval.passage_layouts import AnsweredQuestion

pytestmark = [pytest.mark.usefixtures("workplace"), pytest.mark.slow]

QUESTIONS = {"Who was born in Velm?": ["Mira Tosh", "Tosh"], "Was wächst in 港?": []}
PASSAGES = [
    {"id": "p:1", "title": 'Mira "M" Tosh', "text": "Born in Velm.", "score": 2.5},
    {"id": "p:2", "title": "", "text": "A harbour, 港.", "score": 0.5},
]
# A task of lm-eval that reads the passages of a file as the fork of lm-eval for retrieval does.
TASK = """
task: passages
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{ctxs[1]['retrieval text']}}}}{{{{ctxs[0]['retrieval text']}}}}{{{{query}}}}"
doc_to_target: "{{{{answers | first | default('none')}}}}"
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


@pytest.fixture
def written(tmp_path):
    """A function from a layout to a file of it with two questions."""

    def write(layout: str) -> Path:
        questions = []
        for number, (text, right) in enumerate(QUESTIONS.items(), start=1):
            questions.append(AnsweredQuestion(str(number), text, right))
        file = tmp_path / f"{layout}.jsonl"
        found = passage_layouts.write_passages(
            file, layout, questions, lambda texts: [PASSAGES] * len(texts)
        )
        assert found == 0
        return file

    return write


def test_flashrag_reads_questions_answers_and_passages(written):
    dataset = pytest.importorskip(
        "flashrag.dataset.dataset", reason="pip install --no-deps flashrag-dev"
    )
    prompts = pytest.importorskip("flashrag.prompt.base_prompt")
    file = written("flashrag")
    data = dataset.Dataset({"dataset_name": "ours"}, str(file))
    assert (data.question, data.golden_answers) == ([*QUESTIONS], [*QUESTIONS.values()])
    assert data.id == ["1", "2"]
    template = object.__new__(prompts.PromptTemplate)  # it asks for a model's tokenizer
    template.reference_template = None
    for retrieved in data.retrieval_result:
        assert template.format_reference(retrieved).splitlines() == [
            'Doc 1(Title: "Mira "M" Tosh") Born in Velm.',
            "Doc 2(Title: ) A harbour, 港.",
        ]


def test_lm_eval_puts_the_passages_before_the_question(written, tmp_path):
    if not find_spec("lm_eval"):
        pytest.skip("no lm_eval; pip install -e '.[parity]'")
    file = written("lm-eval")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/passages.yaml").write_text(TASK.format(file=file), encoding="utf-8")
    words = ["-m", "lm_eval", "run", "--model", "dummy", "--tasks", "passages", "--log_samples"]
    words += ["--include_path", "tasks", "--output_path", "theirs"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (samples,) = (tmp_path / "theirs").rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    prompts = [row["arguments"]["gen_args_0"]["arg_0"] for row in rows]
    passages = 'A harbour, 港.\n\nMira "M" Tosh\nBorn in Velm.\n\n'
    assert prompts == [passages + question for question in QUESTIONS]
