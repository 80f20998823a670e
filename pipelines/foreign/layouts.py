"""What columns of predictions are called, and where known systems have them: a table of paths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.foreign.answer_lists import written_value
from pipelines.foreign.records import plain, value_at
from pipelines.sources.question_files import ANSWERS, IDS, QUESTION

# Columns of a file of predictions, the likeliest name first.
PREDICTION = (
    *("prediction", "pred", "predictions", "preds", "predict", "predicted_answer", "pred_answer"),
    *("extracted_answer", "parsed_answer", "final_answer", "model_answer", "model_prediction"),
    *("generated_answer", "predicted_text", "prediction_text", "actual_output", "model_output"),
    *("model_response", "generated_text", "generation", "completion", "output", "response"),
    *("outputs", "replies", "completions", "generations", "generated_texts", "responses", "answer"),
)
# A prediction where there is no other column of predictions and no judgement.
CONVERSATION = ("messages", "conversations", "conversation")
# Anything but true or false in these is an error.
JUDGED = ("correct", "is_correct")
# These are used if they are true or false.
SCORES = ("acc", "accuracy", "exact_match", "em", "match", "metric_results", "score")
PROMPT = ("prompt", "prompts")
# Whether a system retrieved, or how often: plain names, two of FlashRAG's, DRAGIN's, another of
# FlashRAG's, SeaKR's.
RETRIEVED = (
    *("retrieved", "retrieve", "do_retrieve", "retrieval_flag", "judge_result", "retrieve_count"),
    *("retrieved_times", "retrieval_times"),
)
# How unsure an answer is: 1 if large values are unsure, -1 if small ones are. The second to fourth
# are SeaKR's.
DOUBT = {
    "uncertainty": 1,
    "eigen_score": 1,
    "ln_entropy": 1,
    "perplexity": 1,
    "confidence": -1,
    "mean_log_prob": -1,
}
# Columns that tell questions of the same text apart.
TELLING = ("s_uri", "o_uri", "relation", "prop", "subj", "obj")

# RAGAS calls the question user_input, and its gold answer reference.
ASKED = (*QUESTION, "user_input")
GOLD = (*ANSWERS, "reference")
ROLES = {
    "prediction": PREDICTION + CONVERSATION,
    "correct": JUDGED + SCORES,
    "question": ASKED,
    "answers": GOLD,
    "prompt": PROMPT,
}
KEYS = (*IDS, *ASKED, *GOLD, *TELLING, *PROMPT)
# The harness writes a sample once for each of its filters. Only the first filter's rows are read.
FILTER = "harness_filter"
KNOWN = {*ROLES["prediction"], *JUDGED, *SCORES, *KEYS, FILTER}


@dataclass(frozen=True)
class Layout:
    """Where a known system has the columns. Paths are as in `records.value_at`.

    With `objects`, only the columns named there are taken: those of the object at each path, "" for
    the record itself. Without, all fields of the record are.
    """

    name: str
    needs: Sequence[str]  # paths that a record of this layout has
    columns: Mapping[str, str] = field(default_factory=dict)  # column -> its path
    objects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prompt: str = ""  # the field of a prompt that holds the question
    question: str = ""  # the pattern whose group is the question in that prompt


LAYOUTS = (
    Layout(
        "lm-evaluation-harness' samples",
        needs=("doc", "filtered_resps|resps"),
        objects={"doc": KEYS, "": SCORES},
        columns={
            "prediction": "filtered_resps|resps",
            "golds": "doc.golds|target",
            FILTER: "filter",
        },
    ),
    Layout(
        "FlashRAG's intermediate data",
        needs=("golden_answers", "output.pred"),
        objects={
            "metadata": TELLING,
            "": ("id", "question", "golden_answers"),
            "output.metric_score": SCORES,
        },
        columns={
            "prediction": "output.pred",
            "retrieved": "output.retrieval_flag|output.judge_result|output.retrieved_times",
        },
    ),
    Layout(
        "Self-RAG's results",
        needs=("preds", "metric_results|prompts"),
        columns={"retrieved": "all_results"},
        prompt="prompts",
        question="(?s).*?### Instruction:\n(?:.*?## Input:\n+)?(.*?)\n\n### (?:Input|Response):",
    ),
    Layout(
        "Search-R1's results",
        needs=("input", "output", "gts"),
        objects={"": (*IDS, "output", "gts", "score")},
        prompt="input",
        question=r"(?s).*Question: *(.+?) *(?:\n|<\||$)",
    ),
    Layout(
        "Adaptive-RAG's options",
        needs=("option", "stepNum"),
        columns={"retrieved": "stepNum|option"},
    ),
    Layout(
        "FLARE's output",
        needs=("output", "retrieval", "trace"),
        columns={"retrieved": "retrieval.#"},
    ),
    Layout("messages of a chat", needs=("generated_text.-1.content",)),
    Layout(
        "KILT's output",
        needs=("input", "output.0.answer|output.0.provenance"),
        columns={"question": "input"},
    ),
    Layout(
        "OpenCompass' predictions",
        needs=("origin_prompt", "prediction"),
        objects={"": ("question",)},  # its ids number the questions
        columns={"prediction": "prediction", "prompt": "origin_prompt", "answers": "gold"},
    ),
    Layout(
        "LLaMA-Factory's predictions",
        needs=("predict", "label"),
        columns={"prediction": "predict", "answers": "label"},
    ),
    Layout(
        "InstructRAG's results",
        needs=("question", "rationale"),
        columns={"prediction": "rationale"},
    ),
    Layout(
        "output of a batch of OpenAI's API or vLLM's",
        needs=("custom_id", "response.body"),
        objects={"": QUESTION},  # its `response` is no column
        columns={"id": "custom_id", "prediction": "response"},
    ),
    Layout(
        "results of a batch of Anthropic's API",
        needs=("custom_id", "result.type"),
        columns={"id": "custom_id", "prediction": "result"},
    ),
    Layout(
        "Inspect's samples",
        needs=("input", "output.choices|output.completion"),
        columns={"question": "input"},
    ),
    Layout(
        "lighteval's details",
        needs=("doc.query", "model_response"),
        columns={"question": "doc.query"},
    ),
    Layout("Search-R1's results", needs=("gt_answers", "final_answer|pred_answer", "qid|query")),
    Layout("the PopQA authors' results", needs=("subj", "prop", "pred", "is_correct")),
)
ANY_OTHER = Layout("", needs=())  # its columns are called as they are here


def _fields() -> set[str]:
    """The plain names of the fields that paths of the layouts begin with."""
    fields: set[str] = set()
    for layout in LAYOUTS:
        for path in (*layout.needs, *layout.objects, *layout.columns.values()):
            fields.update(plain(part.partition(".")[0]) for part in path.split("|"))
    return fields - {""}


FIELDS = _fields()


def layout_of(records: Sequence[Mapping[str, Any]]) -> Layout:
    """The layout of the file that begins with these records, some of which may lack an answer."""
    for layout in LAYOUTS:
        for record in records:
            if all(value_at(record, path) is not None for path in layout.needs):
                return layout
    return ANY_OTHER


def flattened(record: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """The columns of a record."""
    row = _own_fields(record, layout)
    for name, path in layout.columns.items():
        value = value_at(record, path)
        if value is None and name in row and name == "retrieved":
            continue
        if value is not None or name != "prediction" or _has_place(record, path):
            row[name] = value  # a record without the place of a prediction is of another layout

    if "answers" in layout.columns and isinstance(row["answers"], str):
        row["answers"] = _as_list(row["answers"])

    prompt = record.get(layout.prompt) if layout.prompt else None
    if isinstance(prompt, str):
        match = re.match(layout.question, prompt)
        row["question"] = match[1] if match else None
    for name in ("question", *PROMPT):
        if isinstance(row.get(name), list):
            row[name] = " ".join(_strings(row[name]))

    return row


def _own_fields(record: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """The fields of a record that a layout takes, and those of its objects."""
    row = {}
    for name, value in record.items():
        if not layout.objects or plain(name) not in KNOWN:
            row[name] = value
    for path, names in layout.objects.items():
        fields = value_at(record, path) if path else record
        if isinstance(fields, dict):
            row |= {name: value for name, value in fields.items() if plain(name) in names}
    return row


def _has_place(record: Mapping[str, Any], path: str) -> bool:
    """Whether a record has the object or list in which a path ends, if only null stands there."""
    for alternative in path.split("|"):
        parent, _, name = alternative.rpartition(".")
        fields = value_at(record, parent) if parent else record
        if isinstance(fields, dict) and name in fields:
            return True
    return False


def _as_list(answer: str) -> Any:
    """A gold answer as a list of one, unless it is a list in a text."""
    return [answer] if written_value(answer) is None else answer


def _strings(value: Any) -> list[str]:
    """The texts in messages, which may have parts."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = [value.get(name) for name in ("content", "prompt", "text")]
    strings = []
    if isinstance(value, list):
        for element in value:
            strings += _strings(element)
    return strings
