"""Small files in the benchmarks' published layouts, and how they are read."""

import json
from pathlib import Path

from pipelines import catalogue
from pipelines.evaluation.task_items import Task
from pipelines.params import params
from pipelines.sources.rejects import Rejects

CHOSEN = params.Tasks(
    max_questions=40, mmlu_query="question", mmlu_shots=2, qa_shots=3, new_tokens=5
)


def write(folder: Path) -> Path:
    """Files of MMLU and of Natural Questions; TriviaQA's folder is empty."""
    for split, n in (("dev", 5), ("test", 30)):
        for subject in ("virology", "formal_logic"):
            rows = [
                f'"Which, {subject} {split} {i}?",one,two,"th\nree",four,{"ABCD"[i % 4]}\n'
                for i in range(n)
            ]
            path = folder / f"mmlu/{split}/{subject}_{split}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(rows))
    (folder / "nq").mkdir()
    (folder / "triviaqa").mkdir()
    nq = [{"question": f"who is {i}", "answer": [f"Number {i}", "the one"]} for i in range(20)]
    (folder / "nq/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in nq))
    (folder / "nq/train").mkdir()
    learnt = [{"question": f"who was {i}", "answer": [f"Number {i}", "the one"]} for i in range(20)]
    (folder / "nq/train/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in learnt))
    return folder


def read(raw: Path, name: str, settings=CHOSEN, rejects=None) -> Task:
    return catalogue.function(name, "benchmark")(raw / name, settings, 0, rejects or Rejects(0.0))
