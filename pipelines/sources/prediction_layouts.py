"""What the columns of a file of predictions are called, and where the layouts of known systems have them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.sources.answer_lists import written_list
from pipelines.sources.record_files import plain

# Names that a column may have, the likeliest first. Self-RAG's `golds` and verl's `gts` are answer lists.
PREDICTION = ("prediction", "pred", "predictions", "preds", "predict", "predicted_answer", "pred_answer")
PREDICTION += ("extracted_answer", "parsed_answer", "final_answer", "model_answer", "model_prediction")
PREDICTION += ("generated_answer", "predicted_text", "prediction_text", "actual_output", "model_output")
PREDICTION += ("model_response", "generated_text", "generation", "completion", "output", "response", "outputs")
PREDICTION += ("replies", "completions", "generations", "generated_texts", "responses", "answer")
CONVERSATION = ("messages", "conversations", "conversation")  # a prediction where there is no other and no judgement
JUDGED = ("correct", "is_correct")  # anything but true or false in these is an error
SCORES = ("acc", "accuracy", "exact_match", "em", "match", "metric_results", "score")  # true or false, or not used
IDS = ("question_id", "id", "qid", "popqa_id", "_id")
QUESTION = ("question", "query", "question_text")
ANSWERS = ("possible_answers", "golden_answers", "gold_answers", "gt_answers", "answers", "golds", "gts")
ANSWERS += ("ground_truth",)
# Whether a system retrieved, or how often: plain names, two of FlashRAG's, DRAGIN's, another of FlashRAG's, SeaKR's
RETRIEVED = ("retrieved", "retrieve", "do_retrieve", "retrieval_flag", "judge_result", "retrieve_count")
RETRIEVED += ("retrieved_times", "retrieval_times")
# How unsure an answer is -> 1 if large values are unsure, -1 if small ones are; the second to fourth are SeaKR's
DOUBT = {"uncertainty": 1, "eigen_score": 1, "ln_entropy": 1, "perplexity": 1, "confidence": -1, "mean_log_prob": -1}
TELLING = ("s_uri", "o_uri", "relation", "prop", "subj", "obj")  # tell questions of the same text apart
ROLES = {
    "prediction": (*PREDICTION, *CONVERSATION),
    "correct": (*JUDGED, *SCORES),
    "question": QUESTION,
    "answers": ANSWERS,
    "prompt": ("prompt", "prompts"),
}
FILTER = "harness_filter"  # rows with other filters repeat the question: only the first filter's rows are read


class Layout(NamedTuple):
    """A known system's layout. A place is a field, or a path as `output.pred`, `output.0` (the first of a list), or
    `output.#` (how long a list is).

    Of `a|b` the first counts that has something. Without `within`, all fields of the record are taken.
    """

    name: str
    needs: tuple[str, ...]  # places that a record has
    within: Mapping[str, Collection[str]] = {}  # object, "" for the record -> the columns that are taken of it
    columns: Mapping[str, str] = {}  # column -> its place
    prompt: tuple[str, str] = ("", "")  # place of a prompt, and the pattern whose group is the question


ASKED = (*IDS, *QUESTION, *ANSWERS, *TELLING, *ROLES["prompt"])
LAYOUTS = (
    Layout(
        "lm-evaluation-harness' samples",
        needs=("doc", "filtered_resps|resps"),
        within={"doc": ASKED, "": SCORES},
        columns={"prediction": "filtered_resps|resps", "golds": "doc.golds|target", FILTER: "filter"},
    ),
    Layout(
        "FlashRAG's intermediate data",
        needs=("golden_answers", "output.pred"),
        within={"metadata": TELLING, "": ("id", "question", "golden_answers"), "output.metric_score": SCORES},
        columns={
            "prediction": "output.pred",
            "retrieved": "output.retrieval_flag|output.judge_result|output.retrieved_times",
        },
    ),
    Layout(
        "Self-RAG's results",
        needs=("preds", "metric_results|prompts"),
        columns={"retrieved": "all_results"},
        prompt=("prompts", r"(?s).*?### Instruction:\n(?:.*?## Input:\n+)?(.*?)\n\n### (?:Input|Response):"),
    ),
    Layout(
        "Search-R1's results",
        needs=("input", "output", "gts"),
        within={"": (*IDS, "output", "gts", "score")},
        prompt=("input", r"(?s).*Question: *(.+?) *(?:\n|<\||$)"),
    ),
    Layout("Adaptive-RAG's options", ("option", "stepNum"), columns={"retrieved": "stepNum|option"}),
    Layout("FLARE's output", ("output", "retrieval", "trace"), columns={"retrieved": "retrieval.#"}),
    Layout("messages of a chat", ("generated_text.-1.content",)),
    Layout("KILT's output", ("input", "output.0.answer|output.0.provenance"), columns={"question": "input"}),
    Layout(
        "OpenCompass' predictions",
        needs=("origin_prompt", "prediction"),
        within={"": ("question",)},  # its ids number the questions
        columns={"prediction": "prediction", "prompt": "origin_prompt", "answers": "gold"},
    ),
    Layout("LLaMA-Factory's predictions", ("prompt", "predict", "label"), columns={"prediction": "predict"}),
    Layout("LLaMA-Factory's predictions", ("predict", "label"), columns={"prediction": "predict", "answers": "label"}),
    Layout("InstructRAG's results", ("question", "rationale", "qa_pairs"), columns={"prediction": "rationale"}),
    Layout(
        "output of a batch of OpenAI's API or vLLM's",
        needs=("custom_id", "response.body", "error"),
        within={"": QUESTION},  # its `response` is no column
        columns={"id": "custom_id", "prediction": "response"},
    ),
    Layout(
        "results of a batch of Anthropic's API",
        needs=("custom_id", "result.type"),
        columns={"id": "custom_id", "prediction": "result"},
    ),
    Layout("Inspect's samples", ("input", "output.choices|output.completion"), columns={"question": "input"}),
    Layout("lighteval's details", ("doc.query", "model_response"), columns={"question": "doc.query"}),
    Layout("Search-R1's results", needs=("gt_answers", "final_answer|pred_answer", "qid|query")),
    Layout("the PopQA authors' results", needs=("subj", "prop", "pred", "is_correct")),
    Layout("", needs=()),  # any other: its columns are called as they are here
)
PLACES = [place for layout in LAYOUTS for place in (*layout.needs, *layout.within, *layout.columns.values())]
KNOWN = {*ROLES["prediction"], *JUDGED, *SCORES, *ASKED, FILTER}
FIELDS = {plain(path.partition(".")[0]) for place in PLACES for path in place.split("|")}  # in some layout


def layout_of(records: Sequence[Mapping[str, Any]]) -> Layout:
    """The layout of the file that begins with these records, some of which may lack an answer."""
    return next(
        layout for layout in LAYOUTS if any(all(values_at(one, place) for place in layout.needs) for one in records)
    )


def flattened(record: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """The columns of a record."""
    row = {name: value for name, value in record.items() if not layout.within or plain(name) not in KNOWN}
    for place, names in layout.within.items():
        for fields in values_at(record, place) if place else [record]:
            if isinstance(fields, dict):
                row |= {name: value for name, value in fields.items() if plain(name) in names}
    for name, place in layout.columns.items():
        values = values_at(record, place)
        if values or name != "prediction":  # a record without its place is of another layout
            instead = row.get(name) if name == "retrieved" else None
            row[name] = next((value for value in values if value not in (None, [])), instead)
    if "answers" in layout.columns and isinstance(one := row["answers"], str) and written_list(one) is None:
        row["answers"] = [one]
    place, pattern = layout.prompt
    if place and isinstance(prompt := record.get(place), str):
        match = re.match(pattern, prompt)
        row["question"] = match and match[1]
    for name in row.keys() & {"question", *ROLES["prompt"]}:
        row[name] = " ".join(_strings(row[name])) if isinstance(row[name], list) else row[name]
    return row


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inside = [value.get(name) for name in ("content", "prompt", "text")] if isinstance(value, dict) else value
    return [text for one in inside for text in _strings(one)] if isinstance(inside, list) else []


def values_at(record: Mapping[str, Any], place: str) -> list[Any]:
    """What stands at a place, for each of its paths that the record has."""
    values = []
    for path in place.split("|"):
        value: Any = record
        try:
            for field in path.split("."):
                is_list = isinstance(value, list)
                value = len(value) if is_list and field == "#" else value[int(field) if is_list else field]
        except (KeyError, IndexError, TypeError, ValueError):
            continue
        values.append(value)
    return values
