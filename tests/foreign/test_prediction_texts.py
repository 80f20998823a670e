"""Of a prediction that is an object, what the system said is read, in whatever layout, and
nothing else ever is.
"""

import json

import pytest

from pipelines.foreign.prediction_texts import UnreadableError, texts_of

WRONG = "Beijing"  # stands in all that nobody may take for the answer
USER = {"role": "user", "content": f"Is it {WRONG}?"}
TOOL = {"role": "tool", "content": WRONG}
SAID = {"role": "assistant", "content": "Rome", "refusal": None, "tool_calls": []}
THINKS = {"type": "thinking", "thinking": WRONG, "signature": "x"}
TYPED = [
    THINKS,
    {"type": "tool_use", "name": "search", "input": {"query": WRONG}},
    {"type": "text", "text": "Rome"},
]
RESPONSES = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": WRONG}]},
    {"type": "web_search_call", "id": "ws", "status": "completed"},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Rome", "annotations": []}],
    },
]
GEMINI = {
    "role": "model",
    "parts": [{"text": WRONG, "thought": True}, {"text": "Ro"}, {"text": "me"}],
}
SOURCES = [{"page_content": WRONG}]
READ = {
    "an object with an answer": {"reasoning": WRONG, "answer": "Rome"},
    "a list of one": [{"text": "Rome", "finish_reason": "stop"}],
    "a chat": [USER, SAID],
    "a chat in a list": [{"generated_text": [USER, SAID]}],
    "a batch of chats": [[USER, SAID]],
    "a chat with tools": [USER, {"role": "assistant", "content": None, "tool_calls": [{}]}, TOOL, SAID],
    "LangChain's chain": {"query": WRONG, "result": "Rome", "source_documents": SOURCES},
    "LangChain's graph": {"input": WRONG, "context": SOURCES, "answer": "Rome"},
    "LlamaIndex": {"response": "Rome", "source_nodes": SOURCES, "metadata": {}},
    "OpenAI's chat": {"object": "chat.completion", "choices": [{"index": 0, "message": SAID}], "usage": {}},
    "OpenAI's completion": {"choices": [{"text": " Rome", "logprobs": None}]},
    "OpenAI's response": {"output": RESPONSES, "text": {"format": {"type": "text"}}, "reasoning": {}, "error": None},
    "a structured output": {"role": "assistant", "content": json.dumps({"reasoning": WRONG, "answer": "Rome"})},
    "typed parts": TYPED,
    "Anthropic": {"type": "message", "role": "assistant", "content": TYPED, "stop_reason": "end_turn"},
    "Mistral": {"role": "assistant", "content": [{"type": "thinking", "thinking": TYPED[2:]}, TYPED[2]]},
    "Ollama": {"message": {"role": "assistant", "content": "Rome", "thinking": WRONG}, "done": True},
    "vLLM": {"prompt": WRONG, "outputs": [{"index": 0, "text": "Rome", "token_ids": [1, 2]}]},
    "HELM": {"success": True, "completions": [{"text": " Rome", "logprob": -1}]},
    "the harness": [[" Rome\n"]],
    "Python in a cell": str([{"answer": "Rome", "provenance": [WRONG]}]),
    "JSON in a cell": json.dumps([USER, SAID]),
    "JSON of JSON in a cell": json.dumps(json.dumps({"answer": "Rome", "evidence": [WRONG]})),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_was_said_is_read_in_the_layouts_of_many_systems(name):
    assert [text.strip() for text in texts_of(READ[name])] == ["Rome"]


def test_of_several_answers_all_are_there():
    assert texts_of("Me\u0301xico ") == ["M\xe9xico "]
    assert (
        texts_of({"choices": [{"text": "a"}, {"text": "b"}]})
        == texts_of("['a', 'b']")
        == ["a", "b"]
    )
    assert [texts_of(number) for number in (1998, 12.0, 0.5)] == [["1998"], ["12"], ["0.5"]]
    for text in (
        "",
        "[sic] Rome",
        "{a, b}",
        "{Rome}",
        '"Heroes" by Bowie',
        "f(x=1)",
        "It is {so}: no",
    ):
        assert texts_of(text) == [text]


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"role": "assistant", "content": None, "refusal": WRONG},
        {"role": "assistant", "content": [THINKS]},
        {"output": RESPONSES[:1]},
        [{"type": "input_text", "text": WRONG}],
        [{"type": "human", "content": WRONG}, {"type": "ai", "content": "Rome"}],  # LangChain
    ],
)
def test_a_refusal_reasoning_or_a_call_alone_is_no_answer(value):
    assert texts_of(value) == []


DEEP: list = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": WRONG, "b": 1}, "an object with the fields a, b"),
        ({"label": WRONG, "score": 0.9}, "an object with the fields label, score"),
        ([{"answer": "Rome"}, {"name": WRONG}], "an object with the fields name"),
        (USER, "a message of the role user"),
        ([SAID, USER], "a message of the role user"),
        ([{"role": 1, "content": WRONG}], "a message of the role 1"),
        ([USER, SAID, TOOL], "a message of the role tool"),
        ([SAID | {"type": "message"}, {"type": "function_call", "arguments": WRONG}], "an object of the type function_call"),
        ({"object": "list", "data": [{"embedding": [0.1, 0.2]}]}, "an object with the fields object, data"),
        ([{"provenance": [{"title": WRONG}]}, {"answer": "Rome"}], "with the fields provenance"),
        ({"status_code": 400, "body": {"error": {"message": WRONG}}}, "the fields status_code, body"),
        ({"object": "error", "message": WRONG, "code": 400}, "with the fields object, message, code"),
        ({"type": "errored", "error": {"message": WRONG}}, "an object of the type errored"),
        ({"type": "function_call_output", "output": WRONG}, "the type function_call_output"),
        ([{"from": "human", "value": WRONG}, {"from": "gpt", "value": "Rome"}], "fields from, value"),
        ({"candidates": [{"content": GEMINI}]}, "an object with the fields candidates"),
        ({"answers": [{"answer": "Rome", "type": "generative"}]}, "the fields answers"),
        ([{"type": "text", "text": {"value": "Rome"}}], "an object with the fields value"),
        ([0.1, 0.9], "a list of numbers"),
        (True, "true"),
        (b"Rome", "of the type bytes"),
        (DEEP, "nested too deeply"),
        ("{'answer': '\\ud800'}", "half of a surrogate pair"),
        ("{'a': 1, 2: 3}", "an object with the fields a, 2"),
        ("{'answer': Rome, 'provenance': [Beijing]}", "an object that is cut, damaged or oddly spelled"),  # DuckDB
        ("{answer=Rome, provenance=[Beijing]}", "an object that is cut"),  # Athena
        ("[{'answer': 'Rome'} {'answer': 'Beijing'}]", "an object that is cut"),  # NumPy
        ("{'answer': 'Rome', 'x': array(['Beijing'], dtype=object)}", "an object that is cut"),  # pandas
        ('{"answer": "Rome", "evidence": ["Beij', "an object that is cut"),
        ("{'answer': 'Rome', [1]: 2}", "an object that is cut"),
        ("[CompletionOutput(index=0, text='Beijing')]", "an object that is cut"),
        ("Prediction(\n    answer='Beijing'\n)", "an object that is cut"),
        ("content='Rome' additional_kwargs={'x': 'Beijing'}", "an object that is cut"),
        ("[object Object]", "an object that is cut"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_what_it_is(value, said):
    with pytest.raises(UnreadableError) as error:
        texts_of(value)
    assert said in str(error.value)
