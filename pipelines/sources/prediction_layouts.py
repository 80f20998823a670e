"""What the columns of a file of predictions are called, and where the layouts of known systems have them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pipelines.sources.record_files import plain

# Names that a column may have, the likeliest first. Self-RAG's `golds` and verl's `gts` are answer lists.
PREDICTION = ("prediction", "pred", "predictions", "preds", "predicted_answer", "pred_answer", "final_answer")
PREDICTION += ("model_answer", "model_prediction", "model_output", "output", "response", "generated_answer")
PREDICTION += ("generated_text", "generation", "completion", "answer")
JUDGED = ("correct", "is_correct")  # anything but true or false in these is an error
SCORES = ("acc", "accuracy", "exact_match", "em", "match", "metric_results", "score")  # true or false, or not used
IDS = ("question_id", "id", "qid", "popqa_id", "_id")
QUESTION = ("question", "query", "question_text")
ANSWERS = ("possible_answers", "golden_answers", "gold_answers", "gt_answers", "answers", "golds", "gts")
ANSWERS += ("ground_truth",)
TELLING = ("s_uri", "o_uri", "relation", "prop", "subj", "obj")  # tell questions of the same text apart
ROLES = {"prediction": PREDICTION, "correct": (*JUDGED, *SCORES), "question": QUESTION, "answers": ANSWERS}
ROLES |= {"prompt": ("prompt", "prompts")}
FILTER = "harness_filter"  # rows with other filters repeat the question: only the first filter's rows are read


class Layout(NamedTuple):
    """A known system's layout. A place is a field, or a path as `output.pred` or `output.0` (the first of a list).

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
        columns={"prediction": "output.pred"},
    ),
    Layout(
        "Self-RAG's results",
        needs=("preds", "metric_results|prompts"),
        prompt=("prompts", r"(?s).*?### Instruction:\n(?:.*?## Input:\n+)?(.*?)\n\n### (?:Input|Response):"),
    ),
    Layout(
        "Search-R1's results",
        needs=("input", "output", "gts"),
        within={"": (*IDS, "output", "gts", "score")},
        prompt=("input", r"(?s).*Question: *(.+?) *(?:\n|<\||$)"),
    ),
    Layout("KILT's output", needs=("output.0.answer",), columns={"prediction": "output.0.answer", "question": "input"}),
    Layout("messages of a chat", ("generated_text.-1.content",), columns={"prediction": "generated_text.-1.content"}),
    Layout("Search-R1's results", needs=("gt_answers", "final_answer|pred_answer", "qid|query")),
    Layout("the PopQA authors' results", needs=("subj", "prop", "pred", "is_correct")),
    Layout("", needs=()),  # any other: its columns are called as they are here
)
PLACES = [place for layout in LAYOUTS for place in (*layout.needs, *layout.within, *layout.columns.values())]
KNOWN = {*PREDICTION, *JUDGED, *SCORES, *ASKED, FILTER}
FIELDS = {path.partition(".")[0] for place in PLACES for path in place.split("|")}  # of a record, in some layout


def layout_of(record: Mapping[str, Any]) -> Layout:
    """The layout of the file whose first record this is."""
    return next(layout for layout in LAYOUTS if all(_values(record, place) for place in layout.needs))


def flattened(record: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """The columns of a record."""
    row = {} if layout.within else dict(record)
    for place, names in layout.within.items():
        for fields in _values(record, place) if place else [record]:
            if isinstance(fields, dict):
                row |= {name: value for name, value in fields.items() if plain(name) in names}
    for name, place in layout.columns.items():
        row[name] = next((value for value in _values(record, place) if value not in (None, [])), None)
    place, pattern = layout.prompt
    if place and isinstance(prompt := record.get(place), str):
        match = re.match(pattern, prompt)
        row["question"] = match and match[1]
    return row


def _values(record: Mapping[str, Any], place: str) -> list[Any]:
    """What stands at a place, for each of its paths that the record has."""
    values = []
    for path in place.split("|"):
        value: Any = record
        try:
            for field in path.split("."):
                value = value[int(field)] if isinstance(value, list) else value[field]
        except (KeyError, IndexError, TypeError, ValueError):
            continue
        values.append(value)
    return values
