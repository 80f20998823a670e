"""Small files of MMLU and Natural Questions in their published layouts, and the sets built of them."""

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
from knowledge_tables import chosen

from pipelines import catalogue
from pipelines.tables.questions import DEMONSTRATIONS, NATURAL_QUESTIONS


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


def build(raw: Path, name: str, out: Path = Path("data/questions")) -> tuple[pa.Table, pa.Table]:
    """The questions of a set that is built without triples, and its demonstrations."""
    settings = chosen(parts=SimpleNamespace(knowledge=[]))
    catalogue.function(name, "questions")(settings, out / name, raw)
    questions = pq.read_table(out / f"{name}/{name}.parquet", schema=NATURAL_QUESTIONS.schema)
    shown = pq.read_table(out / name / DEMONSTRATIONS.name, schema=DEMONSTRATIONS.schema)
    return questions, shown
