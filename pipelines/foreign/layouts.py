"""What columns of predictions are called, and where known systems have them: a table of names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from pipelines.foreign.record_file import field_paths, known_fields, plain, value_at
from pipelines.sources import question_files
from pipelines.sources.question_files import ANSWERS

# Paths of predictions, as in `record_file.value_at`, in KILT's output, in batches of OpenAI's and
# vLLM's API, and of Anthropic's.
PATHS = ("output.0.answer", "response.body.choices", "result.message.content")
# Columns of a file of predictions, the likeliest name first.
CLEAR_PREDICTION = (
    *("prediction", "pred", "predictions", "preds", "predict", "predicted_answer", "pred_answer"),
    *("extracted_answer", "parsed_answer", "final_answer", "model_answer", "model_prediction"),
    *("generated_answer", "predicted_text", "prediction_text", "actual_output", "model_output"),
    *("model_response", "generated_text", "generation", "completion", "output", "response"),
    *("outputs", "replies", "completions", "generations", "generated_texts", "responses"),
    *("filtered_resps", "rationale"),  # lm-evaluation-harness', InstructRAG's
)
ANSWER = "answer"  # a prediction, or gold answers
UNFILTERED = "resps"  # the harness's, beside filtered_resps
PREDICTION = (*PATHS, *CLEAR_PREDICTION, UNFILTERED, ANSWER)
# A prediction where there is no other column of predictions and no judgement.
CONVERSATION = ("messages", "conversations", "conversation")
# Anything but true or false in these is an error.
JUDGED = ("correct", "is_correct")
# These are used if they are true or false.
SCORES = ("acc", "accuracy", "exact_match", "em", "match", "metric_results", "score")
PROMPT = ("prompt", "prompts")
INPUT = "input"  # a question, or a prompt with one in it
# What stands around the question in the prompts of Self-RAG and of Search-R1.
QUESTIONS_IN_PROMPTS = (
    "(?s).*?### Instruction:\n(?:.*?## Input:\n+)?(.*?)\n\n### (?:Input|Response):",
    r"(?s).*Question: *(.+?) *(?:\n|<\||$)",
)
# Whether a system retrieved, or how often: plain names, two of FlashRAG's, DRAGIN's, another of
# FlashRAG's, SeaKR's, Self-RAG's, Adaptive-RAG's, FLARE's.
RETRIEVED = (
    *("retrieved", "retrieve", "do_retrieve", "retrieval_flag", "judge_result", "retrieve_count"),
    *("retrieved_times", "retrieval_times", "all_results", "step_num", "retrieval"),
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
IDS = (*question_files.IDS, "custom_id")  # the last in batches of APIs
# Columns that tell questions of the same text apart.
TELLING = ("s_uri", "o_uri", "relation", "prop", "subj", "obj")
# The harness writes a sample once for each of its filters.
FILTER = "filter"

# RAGAS calls the question user_input, and its gold answer reference; jspace calls it q.
ROLES = {
    "prediction": PREDICTION + CONVERSATION,
    "correct": JUDGED + SCORES,
    "question": (*question_files.QUESTION, "user_input", "q", INPUT, "instruction"),
    "answers": (*ANSWERS, "reference"),
    "prompt": PROMPT,
}
KNOWN = {*IDS, *TELLING, FILTER}.union(*ROLES.values())


def places_of_columns(records: Sequence[Mapping[str, Any]], known: Set[str]) -> dict[str, str]:
    """Where columns are that lie within objects: column -> its path, as in `record_file.value_at`.

    `records` are the first of a file, some of which may lack a column. Fields of objects are
    columns where the records have no question or no prediction of their own. Of fields of one name
    the outermost counts, and none of several as far out.
    """
    paths = list(dict.fromkeys(path for record in records for path in field_paths(record)))
    own = {plain(path) for path in paths if "." not in path}
    has_prediction = not own.isdisjoint(CLEAR_PREDICTION)
    if has_prediction:
        own.update(CLEAR_PREDICTION)

    places = {}
    for path in PATHS:
        if any(value_at(record, path) is not None for record in records):
            places[path] = path
    if has_prediction and not own.isdisjoint(ROLES["question"]):
        return places

    paths_by_name: dict[str, list[str]] = {}
    for path in sorted(paths, key=_depth):
        name = plain(path.rpartition(".")[2])
        may_be_said = name not in PREDICTION or not _is_number(records, path)
        if name in known and name not in own and may_be_said:
            paths_by_name.setdefault(name, []).append(path)
    for name, candidates in paths_by_name.items():
        if list(map(_depth, candidates)).count(_depth(candidates[0])) == 1:
            places[name] = candidates[0]
    return places


def _is_number(records: Sequence[Mapping[str, Any]], path: str) -> bool:
    """Whether a number stands at a path somewhere, as of tokens in `usage.completion`."""
    return any(isinstance(value_at(record, path), int | float) for record in records)


def _depth(path: str) -> int:
    return path.count(".")


def rows_of_columns(
    records: Iterable[Mapping[str, Any]], places: Mapping[str, str], known: Set[str]
) -> Iterator[dict[str, Any]]:
    """The known columns of each record: what stands at `places`, and its other fields."""
    # An object in which a prediction was found is none.
    predictions = [path for name, path in places.items() if name in PREDICTION]
    own = known - {plain(path.partition(".")[0]) for path in predictions}
    for record in records:
        row = known_fields(record, own)
        for name, path in places.items():
            row[name] = value_at(record, path)
        yield row
