"""What columns of predictions are called, and where known systems have them: a table of paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from pipelines.foreign.records import known_fields, plain, value_at
from pipelines.sources.question_files import ANSWERS, IDS, QUESTION

# Columns of a file of predictions, the likeliest name first.
CLEAR_PREDICTION = (
    *("prediction", "pred", "predictions", "preds", "predict", "predicted_answer", "pred_answer"),
    *("extracted_answer", "parsed_answer", "final_answer", "model_answer", "model_prediction"),
    *("generated_answer", "predicted_text", "prediction_text", "actual_output", "model_output"),
    *("model_response", "generated_text", "generation", "completion", "output", "response"),
    *("outputs", "replies", "completions", "generations", "generated_texts", "responses"),
)
ANSWER = "answer"  # a prediction, or gold answers
PREDICTION = (*CLEAR_PREDICTION, ANSWER)
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
# The harness writes a sample once for each of its filters.
FILTER = "harness_filter"

# RAGAS calls the question user_input, and its gold answer reference; jspace calls it q.
ROLES = {
    "prediction": PREDICTION + CONVERSATION,
    "correct": JUDGED + SCORES,
    "question": (*QUESTION, "user_input", "q"),
    "answers": (*ANSWERS, "reference"),
    "prompt": PROMPT,
}
KNOWN = {*IDS, *TELLING}.union(*ROLES.values())


@dataclass(frozen=True)
class Layout:
    """Where a known system has the columns. Paths are as in `records.value_at`.

    The record's other fields are columns too, unless a path begins with them.
    """

    name: str
    needs: Sequence[str]  # paths that a record of this layout has
    columns: Mapping[str, str] = field(default_factory=dict)  # column -> its path
    objects: Sequence[str] = ()  # paths of objects, the fields of which are columns as well
    question: str = ""  # the pattern whose group is the question in `prompts`


def _beginnings(paths: Iterable[str]) -> Iterator[str]:
    """The field of a record that each path begins with."""
    for path in paths:
        for alternative in path.split("|"):
            yield alternative.partition(".")[0]


LAYOUTS = (
    Layout(
        "lm-evaluation-harness' samples",
        needs=("doc", "filtered_resps|resps"),
        objects=("doc",),
        columns={
            "prediction": "filtered_resps|resps",
            "golds": "doc.golds|target",
            FILTER: "filter",
        },
    ),
    Layout(
        "FlashRAG's intermediate data",
        needs=("golden_answers", "output.pred"),
        objects=("metadata", "output.metric_score"),
        columns={
            "prediction": "output.pred",
            "retrieved": "output.retrieval_flag|output.judge_result|output.retrieved_times",
        },
    ),
    Layout(
        "Self-RAG's results",
        needs=("preds", "metric_results|prompts"),
        columns={"retrieved": "all_results"},
        question="(?s).*?### Instruction:\n(?:.*?## Input:\n+)?(.*?)\n\n### (?:Input|Response):",
    ),
    Layout(
        "Search-R1's results",
        needs=("input", "output", "gts"),
        columns={"prompts": "input"},
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
        columns={"question": "input", "prediction": "output.0.answer"},
    ),
    Layout(
        "InstructRAG's results",
        needs=("question", "rationale"),
        columns={"prediction": "rationale"},
    ),
    Layout(
        "output of a batch of OpenAI's API or vLLM's",
        needs=("custom_id", "response.status_code"),
        columns={
            "id": "custom_id",
            "prediction": "response.body.choices.0.message.content|response.body.choices.0.text",
        },
    ),
    Layout(
        "results of a batch of Anthropic's API",
        needs=("custom_id", "result.type"),
        columns={"id": "custom_id", "prediction": "result.message.content"},
    ),
    Layout(
        "samples of Inspect or DeepEval",
        needs=("input", "output.completion|actual_output"),
        columns={"question": "input", "prediction": "output.completion|actual_output"},
    ),
    Layout(
        "lighteval's details",
        needs=("doc.query", "model_response"),
        columns={"question": "doc.query", "prediction": "model_response.text"},
    ),
)
# The fields by which a record of some layout is known, beside KNOWN.
FIELDS = {plain(name) for layout in LAYOUTS for name in _beginnings(layout.needs)}


def layout_of(records: Sequence[Mapping[str, Any]]) -> Layout:
    """The layout of the file that begins with these records, some of which may lack an answer."""
    for layout in LAYOUTS:
        for record in records:
            if all(value_at(record, path) is not None for path in layout.needs):
                return layout
    return _other_layout(records[0])


def _other_layout(record: Mapping[str, Any]) -> Layout:
    """The layout of records whose columns are called as they are here.

    Where a record has no question or nothing that was said, the fields of its objects are columns
    too, but not those that several objects have.
    """
    own = known_fields(record, KNOWN).keys()
    if not own.isdisjoint(ROLES["question"]) and not own.isdisjoint(CLEAR_PREDICTION):
        return Layout("", needs=())
    places: dict[str, list[str]] = {}
    for name, value in record.items():
        fields = known_fields(value, KNOWN) if isinstance(value, dict) else ()
        for inner in fields:
            places.setdefault(inner, []).append(f"{name}.{inner}")

    columns = {}
    for inner, paths in places.items():
        if inner not in own and len(paths) == 1:
            columns[inner] = paths[0]
    return Layout("", needs=(), columns=columns)


def rows_of_columns(
    records: Iterable[Mapping[str, Any]], layout: Layout, known: Set[str]
) -> Iterator[dict[str, Any]]:
    """The known columns of each record. Its own fields count before those of its objects."""
    own = known - set(_beginnings(layout.columns.values()))
    for record in records:
        row: dict[str, Any] = {}
        for path in layout.objects:
            fields = value_at(record, path)
            if isinstance(fields, dict):
                row |= known_fields(fields, known)

        row |= known_fields(record, own)
        for name, path in layout.columns.items():
            row[name] = value_at(record, path)
        yield row
