"""What the columns of a file of predictions are called, and how the records of known systems become flat.

The layouts of lm-evaluation-harness, FlashRAG, Self-RAG, Search-R1 and PopQA's authors are known by their fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pipelines.sources.cell_values import written_list

# Names that a column may have, the likeliest first. Self-RAG's `golds` and verl's `gts` are answer lists.
PREDICTION = ("prediction", "pred", "predictions", "preds", "predicted_answer", "pred_answer", "final_answer")
PREDICTION += ("model_answer", "model_prediction", "model_output", "output", "response", "generated_answer")
PREDICTION += ("generated_text", "generation", "completion", "answer")
JUDGED = ("correct", "is_correct")  # anything but true or false in these is an error
SCORES = ("acc", "accuracy", "exact_match", "em", "match", "metric_results", "score")  # true or false, or not used
IDS = ("question_id", "id", "qid", "popqa_id", "_id")
QUESTION = ("question", "query", "question_text")
ANSWERS = (
    "possible_answers",
    "golden_answers",
    "gold_answers",
    "gt_answers",
    "answers",
    "golds",
    "gts",
    "ground_truth",
)
TELLING = ("s_uri", "o_uri", "relation", "prop", "subj", "obj")  # tell questions of the same text apart
PROMPT = ("prompt", "prompts")
KNOWN = {*PREDICTION, *JUDGED, *SCORES, *IDS, *QUESTION, *ANSWERS, *TELLING, *PROMPT}
SAID_OR_JUDGED = frozenset((*PREDICTION, *JUDGED, *SCORES))
FIELDS = {"doc", "doc_id", "resps", "filtered_resps", "filter", "target", "metadata", "input"}  # of the named layouts

INSTRUCTION = re.compile(r"### Instruction:\n(?:.*?## Input:\n+)?(.*?)\n\n### (?:Input|Response):", re.DOTALL)
SEARCH_R1 = re.compile(r".*Question: *(.+?) *(?:\n|<\||$)", re.DOTALL)


Flat = Callable[[dict[str, Any]], dict[str, Any]]


def layout(kind: str, names: set[str], first: dict[str, Any]) -> tuple[str, Flat]:
    """The layout's name, and what makes a flat record of one of its records."""
    if "doc" in names and names & {"resps", "filtered_resps"}:
        return "lm-evaluation-harness' samples", of_harness
    if "output" in names and "golden_answers" in names and isinstance(first.get("output"), dict):
        return "FlashRAG's intermediate data", _of_flashrag
    if {"preds", "metric_results"} <= names or {"preds", "prompts"} <= names:
        return "Self-RAG's results", _of_self_rag
    if {"input", "output", "gts"} <= names:
        return "Search-R1's results", _of_verl
    if "gt_answers" in names and names & {"final_answer", "pred_answer"} and names & {"qid", "query"}:
        return "Search-R1's results", dict
    if {"subj", "prop", "pred", "is_correct"} <= names:
        return f"the PopQA authors' results ({kind})", dict
    return kind, dict


def of_harness(record: dict[str, Any]) -> dict[str, Any]:
    doc = record["doc"] if isinstance(record.get("doc"), dict) else {}
    doc = {name: value for name, value in doc.items() if plain(name) not in SAID_OR_JUDGED}
    filtered, raw = record.get("filtered_resps"), record.get("resps")
    said = filtered if filtered not in (None, []) else raw
    while isinstance(said, list) and len(said) == 1:
        said = said[0]
    scores = {name: record[name] for name in SCORES if name in record}
    gold = record.get("target")
    if isinstance(gold, (list, tuple)) or (isinstance(gold, str) and written_list(gold)):
        doc.setdefault("golds", gold)
    return doc | scores | {"prediction": said, "filter": record.get("filter", "none")}


def _of_flashrag(record: dict[str, Any]) -> dict[str, Any]:
    about, output = record.get("metadata"), record.get("output")
    output = output if isinstance(output, dict) else {}
    scores = output.get("metric_score")
    scores = {name: scores[name] for name in SCORES if name in scores} if isinstance(scores, dict) else {}
    keys = {name: record.get(name) for name in ("id", "question", "golden_answers") if name in record}
    about = {name: value for name, value in about.items() if name in TELLING} if isinstance(about, dict) else {}
    return about | keys | scores | {"prediction": output.get("pred")}


def _of_self_rag(record: dict[str, Any]) -> dict[str, Any]:
    prompt = record.get("prompts")
    question = INSTRUCTION.search(prompt) if isinstance(prompt, str) else None
    return record | ({"question": question[1]} if question else {})


def _of_verl(record: dict[str, Any]) -> dict[str, Any]:
    prompt, ids = record.get("input"), {name: record[name] for name in IDS if name in record}
    question = SEARCH_R1.match(prompt) if isinstance(prompt, str) else None
    scores = {"score": record["score"]} if "score" in record else {}
    said = {ours: record[name] for ours, name in (("gts", "gts"), ("prediction", "output")) if name in record}
    return ids | scores | said | {"question": question and question[1]}


SAID = {  # where these layouts have what was said
    of_harness: {"prediction": "filtered_resps"},
    _of_flashrag: {"prediction": "output.pred"},
    _of_verl: {"prediction": "output"},
}


@lru_cache(maxsize=1 << 12)
def plain(name: str) -> str:
    """A column's name without capitals, with underscores for blanks and hyphens."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())
