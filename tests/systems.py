"""A question set in PopQA's published layout, and predictions in the layouts that published systems
write.

The fixtures are of tests that work on such files in a folder without a project.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pipelines.questions.published import COLUMNS

RELATIONS = {"capital": "What is the capital of {}?", "author": "Who is the author of {}?"}
RELATIONS |= {"sport": "What sport does {} play?"}
ENTITY = "http://www.wikidata.org/entity/"


@dataclass(frozen=True)
class Made:
    """Questions, which of them each of two answers is right on, and what was said."""

    rows: list[dict]
    closed: np.ndarray  # bool
    augmented: np.ndarray  # bool

    def said(self, right: np.ndarray) -> list[str]:
        golds = [json.loads(row["possible_answers"])[0] for row in self.rows]
        return [
            f"It is {gold}." if ok else "I do not know"
            for gold, ok in zip(golds, right, strict=True)
        ]


def make(n: int = 300, seed: int = 0, crossing: float = 1000.0) -> Made:
    """Closed-book answers are right above `crossing`, augmented ones below it, with some noise."""
    rng = np.random.default_rng(seed)
    popularity = np.ceil(10 ** rng.normal(3, 1, n)).astype(int)
    flip, names = rng.random((2, n)) < 0.15, [*RELATIONS]
    rows = []
    for i in range(n):
        name, subject = names[i % 3], f"Subject {i}"
        row = dict.fromkeys(COLUMNS, "x") | dict.fromkeys(("s_aliases", "o_aliases"), "[]")
        row |= dict.fromkeys(("subj_id", "prop_id", "obj_id", "o_pop"), str(i))
        row |= {"id": str(1000 + i), "subj": subject, "prop": name, "obj": f"Object {i}"}
        row |= {"s_pop": str(popularity[i]), "question": RELATIONS[name].format(subject)}
        row |= {"possible_answers": json.dumps([f"Object {i}", f"Thing {i}"])}
        row |= {f"{side}_uri": f"{ENTITY}Q{k}{i}" for k, side in ((1, "s"), (2, "o"))}
        rows.append(row)
    return Made(rows, (popularity >= crossing) ^ flip[0], (popularity < crossing) ^ flip[1])


def table(names: Sequence[str], rows: Sequence[Sequence], delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\r\n").writerows([names, *rows])
    return out.getvalue()


def popqa(path: Path, made: Made) -> Path:
    path.write_text(
        table(COLUMNS, [[row[name] for name in COLUMNS] for row in made.rows], "\t"),
        encoding="utf-8",
    )
    return path


def plain(made: Made, right: np.ndarray) -> str:
    return table(
        ["id", "prediction"], [[row["id"], said] for row, said, _ in answered(made, right)]
    )


def answered(made: Made, right: np.ndarray) -> Iterator[tuple[dict, str, bool]]:
    """Each question, with its acceptable answers as a list `golds`, what was said, and whether
    it is right.
    """
    for row, said, ok in zip(made.rows, made.said(right), right, strict=True):
        yield row | {"golds": json.loads(row["possible_answers"])}, said, bool(ok)


def lines(records: Iterable[dict]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def records(text: str) -> list[dict]:
    """Those of a JSON list, or of lines."""
    return json.loads(text) if text[0] == "[" else list(map(json.loads, text.splitlines()))


def authors(made: Made, right: np.ndarray) -> str:
    """PopQA's authors: run_model.py."""
    names = ["subj", "prop", "obj", "s_uri", "o_uri", "s_pop", "question", "possible_answers"]
    rows = [
        [i, f"{row['id']}.0", *(row[name] for name in names), "Q: … A:", said, ok, said]
        for i, (row, said, ok) in enumerate(answered(made, right))
    ]
    return table(["", "id", *names, "prompt", "pred", "is_correct", "generation"], rows)


def harness(made: Made, right: np.ndarray) -> str:
    """lm-evaluation-harness: --log_samples."""
    return lines(
        {
            "doc_id": i,
            "doc": {name: row[name] for name in ("id", "question", "possible_answers")},
            "filter": "none",
        }
        | {"target": row["obj"], "arguments": {"gen_args_0": {"arg_0": f"Q: {row['question']} A:"}}}
        | {"resps": [[f" {said}\n"]], "filtered_resps": [said], "exact_match": float(ok)}
        for i, (row, said, ok) in enumerate(answered(made, right))
    )


def flashrag(made: Made, right: np.ndarray) -> str:
    """FlashRAG: intermediate_data.json."""
    more = {"retrieval_result": [{"id": "7", "contents": "x"}], "prompt": "…"}
    rows = [
        {"id": f"test_{i}", "question": row["question"], "golden_answers": row["golds"]}
        | {"output": more | {"pred": said, "metric_score": {"em": float(ok)}}}
        for i, (row, said, ok) in enumerate(answered(made, right))
    ]
    return json.dumps(rows)


def self_rag(made: Made, right: np.ndarray) -> str:
    """Self-RAG: run_short_form.py."""
    prompts = [f"### Instruction:\n{row['question']}\n\n### Response:\n" for row in made.rows]
    judged = {"metric_results": [int(ok) for ok in right], "golds": [], "metric": "match"}
    return json.dumps({"preds": made.said(right), "prompts": prompts} | judged)


def search_r1(made: Made, right: np.ndarray) -> str:
    """Search-R1: a line each."""
    return lines(
        {"qid": row["id"], "query": row["question"], "gt_answers": row["golds"]}
        | {"final_answer": said, "is_correct": ok}
        for row, said, ok in answered(made, right)
    )


def verl(made: Made, right: np.ndarray) -> str:
    """verl, with which Search-R1 is trained: validation_data_dir."""
    prompt = "user\nAnswer in <answer> Beijing </answer>. Question: {question}\n<|im_end|>\n"
    prompt += "<|im_start|>assistant"
    return lines(
        {"input": prompt.format(**row), "output": f"<think>Hm.</think><answer>{said}</answer>"}
        | {"step": 0, "gts": {"target": row["golds"]}, "score": float(ok)}
        for row, said, ok in answered(made, right)
    )


def kilt(made: Made, right: np.ndarray) -> str:
    """KILT: the output of its knowledge-intensive tasks."""
    return lines(
        {"id": row["id"], "input": row["question"]}
        | {"output": [{"answer": said, "provenance": row["golds"]}, {"answer": "no"}]}
        for row, said, _ in answered(made, right)
    )


def messages(row: dict, said: str) -> list[dict]:
    prompt = {"role": "user", "content": f"{', '.join(row['golds'])}. {row['question']}"}
    return [prompt, {"role": "assistant", "content": said}]


def chat(made: Made, right: np.ndarray) -> str:
    """transformers: the text-generation pipeline, called with messages."""
    return lines(
        {"id": row["id"], "question": row["question"], "generated_text": messages(row, said)}
        for row, said, _ in answered(made, right)
    )


def instruct_rag(made: Made, right: np.ndarray) -> str:
    """InstructRAG: result.json."""
    rows = [
        {"question": row["question"], "answers": row["golds"], "qa_pairs": None, "rationale": said}
        | {"prompt": f"Document: {row['obj']}\n{row['question']}", "ctxs": [{"text": row["obj"]}]}
        for row, said, _ in answered(made, right)
    ]
    return json.dumps(rows, indent=4)


def chosen(row: dict, said: str) -> dict:
    choice = {"index": 0, "message": messages(row, said)[1], "finish_reason": "stop"}
    return {"choices": [choice]}


def batch(made: Made, right: np.ndarray) -> str:
    """The output file of OpenAI's Batch API, and of vLLM's run-batch."""
    return lines(
        {"id": f"batch_req_{i}", "custom_id": row["id"], "error": None}
        | {"response": {"status_code": 200, "body": chosen(row, said)}}
        for i, (row, said, _) in enumerate(answered(made, right))
    )


LAYOUTS = {  # file -> what writes it, and the words that the command must say
    "authors.csv": (authors, "CSV, 300 rows; prediction in `pred`"),
    "samples.jsonl": (harness, "prediction in `filtered_resps`"),
    "intermediate_data.json": (flashrag, "prediction in `output.pred`"),
    "self_rag.json": (self_rag, "JSON object of columns, 300 rows; prediction in `preds`"),
    "search_r1.jsonl": (search_r1, "prediction in `final_answer`"),
    "validation.jsonl": (verl, "validation.jsonl: JSON lines, 300 rows; prediction in `output`"),
    "kilt.jsonl": (kilt, "prediction in `output.0.answer`"),
    "chat.jsonl": (chat, "prediction in `generated_text`"),
    "result.json": (instruct_rag, "prediction in `rationale`"),
    "batch.jsonl": (batch, "prediction in `response.body.choices`"),
}


@pytest.fixture
def made() -> Made:
    return make()


@pytest.fixture
def folder(tmp_path, made):
    popqa(tmp_path / "popQA.tsv", made)
    (tmp_path / "closed.csv").write_text(plain(made, made.closed), encoding="utf-8")
    (tmp_path / "rag.csv").write_text(plain(made, made.augmented), encoding="utf-8")
    return tmp_path


@pytest.fixture
def longtail(folder, monkeypatch, call):
    """The command in this process, called from the folder. Gives exit code, output and errors."""
    monkeypatch.chdir(folder)
    return call


@pytest.fixture
def tuned(longtail, folder):
    """`longtail thresholds` of two files; gives the rule and what was said."""

    def call(*words, out="thresholds"):
        code, said, error = longtail("thresholds", *words, "--questions", "popQA.tsv", "--out", out)
        assert (code, error) == (0, "")
        return json.loads((folder / out / "rule.json").read_text()), said

    return call
