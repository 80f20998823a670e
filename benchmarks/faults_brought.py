"""Files that people bring to `longtail thresholds`, in every layout and format, each with the command that reads it.

The set has 60 made-up questions. A command has one file that is damaged: predictions, or the table of questions.
"""

import importlib
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks import row_files
from benchmarks.faults_project import Stage, remove, run_all
from benchmarks.mutations_records import BEGINNING, EVIDENCE, NAMES, RIGHT
from flows import anywhere
from pipelines.foreign.records import PREDICTION_LIST

MODULE = "flows.cli"  # the command's
ALONE = ("predictions alone", "LLaMA-Factory, label")  # have neither ids nor questions
COUNT = 60  # questions
SOUND = Path("data/sound")  # the files of a command that are not damaged
PROMPT = "### Instruction:\n@question\n\n### Response:\n"
SCORES = {"em": 0.0, "acc": 1.0}
USER, SAID = {"role": "user", "content": EVIDENCE}, {"role": "assistant", "content": "@said"}
PARTS = [{"type": "thinking", "thinking": EVIDENCE}, {"type": "text", "text": "@said"}]
EXAMPLES: dict[
    str, dict[str, Any]
] = {  # a record of each layout; of @id, @question, @answers and @said
    "any other": {
        "id": "@id",
        "question": "@question",
        "possible_answers": "@answers",
        "prediction": "@said",
    },
    "lm-evaluation-harness": {
        "doc_id": 1,
        "doc": {"id": "@id", "question": "@question", "possible_answers": "@answers"},
        "target": "@answers",
        "resps": [["@said"]],
        "filtered_resps": ["@said"],
        "filter": "none",
    },
    "FlashRAG": {
        "id": "@id",
        "question": "@question",
        "golden_answers": "@answers",
        "metadata": {"prop": "craft"},
        "output": {
            "retrieval_result": [{"contents": EVIDENCE}],
            "pred": "@said",
            "metric_score": SCORES,
        },
    },
    "Self-RAG": {"prompts": PROMPT, "preds": "@said", "golds": "@answers", "metric_results": 0},
    "Search-R1, input": {
        "input": "Answer it. Question: @question\n",
        "output": "@said",
        "gts": "@answers",
        "score": 0,
    },
    "Adaptive-RAG": {"question_id": "@id", "prediction": "@said", "option": "A", "stepNum": 0},
    "FLARE": {
        "qid": "@id",
        "question": "@question",
        "output": "@said",
        "retrieval": [],
        "trace": [PROMPT],
    },
    "KILT": {
        "id": "@id",
        "input": "@question",
        "output": [{"answer": "@said", "provenance": [USER]}],
    },
    "chat": {
        "id": "@id",
        "question": "@question",
        "generated_text": [USER, SAID],
    },
    "Search-R1, query": {
        "qid": "@id",
        "query": "@question",
        "gt_answers": "@answers",
        "final_answer": "@said",
    },
    "PopQA's authors": {
        "id": "@id",
        "question": "@question",
        "subj": "x",
        "prop": "y",
        "pred": "@said",
        "is_correct": "@right",
    },
    "OpenCompass": {
        "origin_prompt": [{"role": "HUMAN", "prompt": "Answer it: @question"}],
        "prediction": "@said",
        "gold": "@answers",
    },
    "LLaMA-Factory": {"prompt": "user: @question", "predict": "@said", "label": "@answer"},
    ALONE[1]: {"predict": "@said", "label": "@answer"},
    "InstructRAG": {
        "question": "@question",
        "answers": "@answers",
        "rationale": "@said",
        "qa_pairs": [],
        "ctxs": [USER],
    },
    "OpenAI's batches": {
        "id": "b",
        "custom_id": "@id",
        "response": {"status_code": 200, "body": {"choices": [{"index": 0, "message": SAID}]}},
        "error": None,
    },
    "Anthropic's batches": {
        "custom_id": "@id",
        "result": {"type": "succeeded", "message": {"role": "assistant", "content": PARTS}},
    },
    "Inspect": {
        "id": "@id",
        "input": "@question",
        "target": "@answers",
        "output": {"choices": [{"message": SAID}]},
    },
    "lighteval": {
        "doc": {"query": "@question", "choices": "@answers"},
        "model_response": {"text": ["@said"]},
    },
}


def questions() -> row_files.Rows:
    rows: row_files.Rows = []
    for i in range(COUNT):
        relation, right = ("occupation", "genre")[i % 2], RIGHT[i % len(RIGHT)]
        name = f"{NAMES[i % 10]} {NAMES[i // 10]}"
        rows.append({"id": str(4000000 + 37 * i), "question": f"What is the {relation} of {name}?"})
        rows[-1] |= {"possible_answers": [right, f"the other {right}"], "prop": relation}
        rows[-1] |= {
            "s_uri": f"http://www.wikidata.org/entity/Q{90000 + i}",
            "s_pop": 120 + 3013 * (i * 17 % COUNT),
        }
    return rows


def predictions(example: Any, wrong: int) -> row_files.Rows:
    """A record for each question, of which every `wrong`-th is answered wrongly."""
    rows = []
    for i, row in enumerate(questions()):
        answers = row["possible_answers"]
        texts = {"@id": row["id"], "@question": row["question"], "@answer": answers[1]}
        texts["@said"] = BEGINNING + (answers[0] if i % wrong else "nothing")
        rows.append(_filled(example, {"@answers": answers, "@right": bool(i % wrong)}, texts))
    return rows


def _filled(value: Any, values: dict[str, Any], texts: dict[str, str]) -> Any:
    """The value with what stands for its names, which are all of a text, or parts of it."""
    if isinstance(value, dict):
        return {name: _filled(inner, values, texts) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, values, texts) for inner in value]
    if not isinstance(value, str):
        return value
    return values.get(value, re.sub("|".join(texts), lambda match: texts[match[0]], value))


def written() -> dict[tuple[str, str], tuple[str, bytes]]:
    """(layout, or "questions"; format) -> (name of a file, its content)."""
    files = {}
    for name, example in EXAMPLES.items():
        rows, kinds = (
            predictions(example, 3),
            row_files.FORMATS if name == "any other" else row_files.NESTED,
        )
        files |= {
            (name, kind): (f"closed{row_files.FORMATS[kind][0]}", row_files.FORMATS[kind][1](rows))
            for kind in kinds
        }
    said = [row["prediction"] for row in predictions(EXAMPLES["any other"], 3)]
    files[ALONE[0], PREDICTION_LIST] = "closed.json", json.dumps(said).encode()
    return files | {
        ("questions", kind): (f"questions{end}", write(questions()))
        for kind, (end, write) in row_files.FORMATS.items()
    }


def make(folder: Path) -> list[Stage]:
    """The commands, a folder with the files that each reads, and the rule that each writes there."""
    remove(folder)
    (folder / SOUND).mkdir(parents=True)
    example, lines = EXAMPLES["any other"], row_files.FORMATS["JSON lines"][1]
    sound = {
        "closed": predictions(example, 3),
        "augmented": predictions(example, 4),
        "questions": questions(),
    }
    for name, rows in sound.items():
        (folder / SOUND / f"{name}.jsonl").write_bytes(lines(rows))
    stages = []
    for number, ((name, kind), (file, content)) in enumerate(written().items()):
        path, out = Path(f"data/raw/{number:03}/{file}"), Path(f"data/rule/{number:03}")
        outs = out / "rule.json", out / "thresholds.csv"
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(content)
        files = {part: str(SOUND / f"{part}.jsonl") for part in sound} | {path.stem: str(path)}
        words = (
            files["closed"],
            files["augmented"],
            "--questions",
            files["questions"],
            "--out",
            str(out),
        )
        words += ("--by-position",) * (name in ALONE)
        stages.append(Stage(f"{name}@{kind}", MODULE, ("thresholds", *words), (path,), outs))
    importlib.import_module(MODULE)
    with redirect_stdout(
        io.StringIO()
    ):  # in this process: a fork begins with all that the command loads
        sound = [str(folder / SOUND / f"{name}.jsonl") for name in sound]
        anywhere.thresholds(sound[0], sound[1:2], sound[2], out=folder / SOUND)
    run_all(folder, stages)
    return stages
