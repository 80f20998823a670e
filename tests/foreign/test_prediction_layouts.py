"""Predictions of other people's systems: each published layout is recognised, named and read."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import systems
from three_questions import ASKED, GOLD, IDS, ROWS, SAID, lines, quoted, write

from pipelines.errors import LongtailError
from pipelines.foreign.layouts import DOUBT, RETRIEVED
from pipelines.foreign.prediction_files import read_predictions

WRONG = "Beijing"  # no prediction


class Three(systems.Made):
    """The three questions of PopQA, and what was said to them."""

    def said(self, _) -> list[str]:
        return SAID


ROWS_OF_POPQA = [
    dict.fromkeys(systems.COLUMNS, WRONG)
    | {"id": id_, "question": asked, "possible_answers": json.dumps(gold)}
    for _, id_, asked, gold, _ in ROWS
]
RIGHT = np.array([True, False, False])
MADE = Three(ROWS_OF_POPQA, RIGHT, RIGHT)
ANSWERED = [row for row, _, _ in systems.answered(MADE, RIGHT)]
WRITTEN = {name: writer(MADE, RIGHT) for name, (writer, _) in systems.LAYOUTS.items()}
HARNESS = systems.records(WRITTEN["samples.jsonl"])
FLASHRAG = systems.records(WRITTEN["intermediate_data.json"])
SELF_RAG = json.loads(WRITTEN["self_rag.json"])
KILT, CHAT, BATCH = (
    systems.records(WRITTEN[f"{name}.jsonl"]) for name in ("kilt", "chat", "batch")
)
MESSAGES = [
    {"id": row["id"], "question": row["question"], "messages": row["generated_text"]}
    for row in CHAT
]
RUN_BATCH = [
    {"id": f"vllm-{n}", "custom_id": id_, "error": None}
    | {"response": {"status_code": 200, "body": {"choices": [{"index": 0, "text": said}]}}}
    for n, id_, _, _, said in ROWS
]
ANTHROPIC = [
    {
        "custom_id": id_,
        "result": {"type": "succeeded", "message": {"role": "assistant", "content": [part]}},
    }
    for id_, part in zip(IDS, [{"type": "text", "text": said} for said in SAID], strict=True)
]
INSPECT = [
    {"id": row["id"], "input": row["question"], "target": WRONG}
    | {"output": systems.chosen(row, said) | {"completion": said}}
    for row, said in zip(ANSWERED, SAID, strict=True)
]
LIGHTEVAL = [
    {
        "doc": {"query": asked, "choices": gold},
        "model_response": {"input": WRONG, "text": [said], "reasonings": [WRONG]},
    }
    for _, _, asked, gold, said in ROWS
]
VLLM = [
    {"id": id_, "q": asked, "prompt": f"{WRONG} {asked}", "outputs": [{"index": 0, "text": said}]}
    for _, id_, asked, _, said in ROWS
]
FULL = [
    {"id": id_, "question": asked, "prompt": f"{WRONG}? {asked} A:"}
    | {"generated_text": f"{WRONG}? {asked} A: {said}"}
    for _, id_, asked, _, said in ROWS
]


@pytest.mark.parametrize(
    ("name", "layout", "keys"),
    [
        ("samples.jsonl", "JSON lines", {"id": IDS}),
        ("intermediate_data.json", "JSON list", {"id": ["test_0", "test_1", "test_2"]}),
        ("self_rag.json", "JSON object of columns", {}),
        ("validation.jsonl", "JSON lines", {}),
        ("search_r1.jsonl", "JSON lines", {"qid": IDS}),
        ("authors.csv", "CSV", {"id": IDS}),
    ],
)
def test_the_layouts_of_published_systems(tmp_path, name, layout, keys):
    read = read_predictions(write(tmp_path, name, WRITTEN[name]))
    assert (read.layout, read.texts, read.questions, read.ids) == (layout, SAID, ASKED, keys)
    assert read.correct == RIGHT.tolist()
    expected = None if name == "self_rag.json" else [tuple(answers) for answers in GOLD]
    assert read.answers == expected


OBJECTS = {  # who writes them -> records, whether they have questions, and the columns of ids
    "KILT": (KILT, True, ["id"]),
    "transformers, of messages": (CHAT, True, ["id"]),
    "InstructRAG": (systems.records(WRITTEN["result.json"]), True, []),
    "OpenAI's batches": (BATCH, False, ["custom_id", "id"]),
    "vLLM's batches": (RUN_BATCH, False, ["custom_id", "id"]),
    "Anthropic's batches": (ANTHROPIC, False, ["custom_id"]),
    "Inspect": (INSPECT, True, ["id"]),
    "lighteval": (LIGHTEVAL, True, []),
    "a chat": (MESSAGES, True, ["id"]),
    "vLLM": (VLLM, True, ["id"]),
    "transformers, of texts": (FULL, True, ["id"]),
}


@pytest.mark.parametrize("writer", OBJECTS)
def test_of_objects_the_answer_alone_is_the_prediction(tmp_path, writer):
    records, has_questions, columns = OBJECTS[writer]
    read = read_predictions(write(tmp_path, "a.jsonl", lines(records)))
    assert read.texts == SAID
    assert read.questions == (ASKED if has_questions else None)
    assert sorted(read.ids) == columns
    assert [ids for ids in read.ids.values() if ids == IDS] == [IDS] * bool(columns)


@pytest.mark.parametrize("form", ["csv of Python", "csv of JSON", "Parquet"])
def test_objects_are_read_in_tables_too(tmp_path, form):
    objects = {record["id"]: record["generated_text"] for record in CHAT}
    path = tmp_path / "a"
    if form == "Parquet":
        pq.write_table(pa.table({"id": IDS, "output": list(objects.values())}), path)
    else:
        spell = json.dumps if form == "csv of JSON" else str
        path = write(
            tmp_path,
            "a",
            quoted([("id", "output"), *((id_, spell(said)) for id_, said in objects.items())]),
        )
    assert read_predictions(path).texts == SAID


FAILED = {
    "object": "error",
    "message": WRONG,
    "type": "BadRequestError",
    "param": None,
    "code": 400,
}
ODD = {  # a first record without an answer, and the file's others
    "KILT without an answer": ({"id": "0", "input": "x", "output": [{"provenance": [{"title": WRONG}]}]}, KILT),
    "KILT without entries": ({"id": "0", "input": "x", "output": []}, KILT),
    "a chat without content": ({"id": "0", "question": "x", "generated_text": [{"role": "assistant", "content": None, "refusal": WRONG}]}, CHAT),
    "a chat without messages": ({"id": "0", "question": "x", "generated_text": None}, CHAT),
    "OpenAI's error": ({"id": "b", "custom_id": "0", "response": None, "error": {"code": "x", "message": WRONG}}, BATCH),
    "OpenAI's bad request": (BATCH[0] | {"custom_id": "0", "response": {"status_code": 400, "body": {"error": {"message": WRONG}}}}, BATCH),
    "vLLM's error": (BATCH[0] | {"custom_id": "0", "response": {"status_code": 400, "request_id": "r", "body": None}, "error": FAILED}, RUN_BATCH),
    "Anthropic's error": ({"custom_id": "0", "result": {"type": "errored", "error": {"type": "error", "error": {"message": WRONG}}}}, ANTHROPIC),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_a_record_without_an_answer_is_an_empty_prediction(tmp_path, name):
    """It tells no columns."""
    odd, records = ODD[name]
    read = read_predictions(write(tmp_path, "a.jsonl", lines([odd, *records])))
    assert read.texts == ["", *SAID]
    none = "1 of 4 predictions have no answer (null, an error, reasoning, tools or sources), and so are wrong: row 1 ("
    assert any(line.startswith(none) for line in read.described)
    assert "1 of 4 predictions are empty, and so wrong" in read.described, "the last"
    with pytest.raises(
        LongtailError, match=r"no row has an answer|the prediction is an object|one with"
    ):
        read_predictions(write(tmp_path, "a.jsonl", lines([odd, odd])))


def test_what_is_no_text_is_refused_by_its_row(tmp_path):
    for record, said in [
        ({"output": {"a": "x", "b": "y"}}, "an object with the fields a, b, expected a text"),
        ({"output": CHAT[0]["generated_text"][:1]}, "a message of the role user"),
        ({"output": "{'answer': y, 'provenance': [x]}"}, "an object that is cut, damaged or oddly spelled"),
        ({"output": True}, "true, expected a text"),
    ]:  # fmt: skip
        with pytest.raises(LongtailError, match=f"row 2: the prediction is {said}"):
            read_predictions(write(tmp_path, "a.jsonl", lines([{"output": "y"}, record])))
    unanswered = FLASHRAG[1] | {"output": {"metric_score": {"em": 0.0}}}
    read = read_predictions(write(tmp_path, "a.json", [FLASHRAG[0], unanswered]))
    assert read.texts == [SAID[0], ""]
    assert read.described[-1].endswith("and so are wrong: row 2 (test_1)")


def test_messages_are_a_prediction_only_where_nothing_else_is(tmp_path):
    asked = [{"role": "user", "content": "x"}]
    assert read_predictions(
        write(tmp_path, "a.json", [{"messages": asked, "response": "y"}])
    ).texts == ["y"]
    assert read_predictions(
        write(tmp_path, "a.json", [{"messages": asked, "correct": True}])
    ).correct == [True]


def test_a_prompt_is_no_prediction(tmp_path):
    """transformers' pipeline returns the prompt with the text, unless it is told not to."""
    records = [
        {"question": asked, "generated_text": f"{asked} It is {n}."}
        for n, asked in enumerate(ASKED)
    ]
    read = read_predictions(write(tmp_path, "a.json", records))
    assert read.texts == ["It is 0.", "It is 1.", "It is 2."]
    assert "3 of 3 predictions begin with their prompt; what follows it is judged" in read.described
    for record, asked in zip(records, ASKED, strict=True):
        record["generated_text"] = f"{WRONG} {asked} Answer: so"
    assert (
        read_predictions(write(tmp_path, "a.json", records), pattern="Answer: (.*)").texts
        == ["so"] * 3
    )
    read = read_predictions(
        write(tmp_path, "a.json", [{"id": 1, "prompt": "base", "pred": "base camp"}])
    )
    assert read.texts == ["base camp"], "a prompt's name is no prompt"


def test_filters_and_log_likelihoods_are_refused(tmp_path):
    other = [
        record | {"filter": "strict-match", "filtered_resps": ["[invalid]"]} for record in HARNESS
    ]
    with pytest.raises(LongtailError) as refused:
        read_predictions(write(tmp_path, "samples.jsonl", lines([*HARNESS, *other])))
    assert (
        "samples of the filters none, strict-match, expected those of one; "
        "jq -c 'select(.filter == \"none\")' samples.jsonl > one-samples.jsonl; its columns are "
    ) in str(refused.value)
    scored = [
        record | {"resps": [[-2.1, False]], "filtered_resps": [[-2.1, False]]} for record in HARNESS
    ]
    with pytest.raises(
        LongtailError, match="row 1: the prediction is a list of numbers, expected a text"
    ):
        read_predictions(write(tmp_path, "samples.jsonl", lines(scored)))


FLARE = [
    {"qid": id_, "question": asked, "output": said, "output_prob": [], "trace": []}
    | {"retrieval": [[asked, ["7", "9"]]] * n}
    for n, id_, asked, _, said in ROWS
]
ROUTES = {
    id_: {"prediction": said, "option": "ABC"[n], "stepNum": (0, 1, 4)[n]}
    for n, id_, *_, said in ROWS
}
PASSAGES = [
    {"no_retrieval": "x"},
    {"no_retrieval": "x", "retrieval_0": {"pred": "y"}},
    {"retrieval_0": {"pred": "y"}},
]
JUDGED = [
    record | {"output": record["output"] | {"judge_result": "ABC"[n]}}
    for n, record in enumerate(FLASHRAG)
]
AGENT = [
    record | {"output": record["output"] | {"retrieved_times": n}}
    for n, record in enumerate(FLASHRAG)
]
COUNTED = [{"qid": id_, "prediction": said, "retrieve_count": n} for n, id_, *_, said in ROWS]
TIMES = [{"qid": id_, "Final Answer": said, "Retrieval Times": n} for n, id_, *_, said in ROWS]
TOKENS = [["id", "retrieve"], *zip(IDS, ("[No Retrieval]", "[Retrieval]", "yes"), strict=True)]


@pytest.mark.parametrize(
    ("content", "calls"),
    [
        (SELF_RAG | {"all_results": PASSAGES}, [0, 1, 1]),
        (FLASHRAG, None),
        (JUDGED, [0, 1, 2]),
        (AGENT, [0, 1, 2]),
        (ROUTES, [0, 1, 4]),
        (lines(FLARE), [0, 1, 2]),
        (lines(COUNTED), [0, 1, 2]),
        (lines(TIMES), [0, 1, 2]),
        (quoted(TOKENS), [0, 1, 1]),
        ([{"id": id_, "prediction": said, "retrieved": ["a passage"]} for _, id_, *_, said in ROWS], None),
    ],
)  # fmt: skip
def test_how_often_systems_retrieved(tmp_path, content, calls):
    """C alone stands for several retrievals, two at least.

    A list of passages says nothing of it.
    """
    read = read_predictions(write(tmp_path, "a", content), more=(*RETRIEVED, *DOUBT))
    assert read.calls == calls
    assert read.says is (not isinstance(content, str) or "[Retrieval]" not in content)
    assert any("`retrieved` is left aside: " in line for line in read.described) is (
        "a passage" in str(content)
    )


def test_doubt_is_largest_where_systems_are_least_sure(tmp_path):
    for name, cells, doubt in [
        ("mean_log_prob", "-0.5,,-inf", [0.5, np.inf, np.inf]),
        ("perplexity", "2,3,1", [2, 3, 1]),
    ]:
        path = write(
            tmp_path, "a.csv", quoted([["id", name], *zip(IDS, cells.split(","), strict=True)])
        )
        assert read_predictions(path, more=(*RETRIEVED, *DOUBT)).uncertainty == doubt
        with pytest.raises(LongtailError, match="expected one with what a model said"):
            read_predictions(path)
