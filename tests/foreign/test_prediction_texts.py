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
    "KILT": [
        {"provenance": [{"title": WRONG}]},
        {"answer": "Rome", "provenance": [{"title": WRONG}]},
    ],
    "a chat": [USER, SAID],
    "a chat in a list": [{"generated_text": [USER, SAID]}],
    "a batch of chats": [[USER, SAID]],
    "a chat with tools": [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [{}]},
        TOOL,
        SAID,
    ],
    "ShareGPT": [{"from": "human", "value": WRONG}, {"from": "gpt", "value": "Rome"}],
    "LangChain's messages": [
        {"type": "human", "content": WRONG},
        {"type": "ai", "content": "Rome"},
    ],
    "LangChain's chain": {"query": WRONG, "result": "Rome", "source_documents": SOURCES},
    "LangChain's graph": {"input": WRONG, "context": SOURCES, "answer": "Rome"},
    "LlamaIndex": {"response": "Rome", "source_nodes": SOURCES, "metadata": {}},
    "Haystack": {
        "answers": [{"answer": "Rome", "type": "generative", "context": WRONG}],
        "documents": SOURCES,
    },
    "OpenAI's chat": {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": SAID}],
        "usage": {},
    },
    "OpenAI's completion": {"choices": [{"text": " Rome", "logprobs": None}]},
    "OpenAI's response": {
        "output": RESPONSES,
        "text": {"format": {"type": "text"}},
        "reasoning": {},
        "error": None,
    },
    "OpenAI's assistant": {
        "role": "assistant",
        "content": [{"type": "text", "text": {"value": "Rome"}}],
    },
    "a structured output": {
        "role": "assistant",
        "content": json.dumps({"reasoning": WRONG, "answer": "Rome"}),
    },
    "typed parts": TYPED,
    "Anthropic": {
        "type": "message",
        "role": "assistant",
        "content": TYPED,
        "stop_reason": "end_turn",
    },
    "Mistral": {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": TYPED[2:]}, TYPED[2]],
    },
    "Gemini": {"candidates": [{"content": GEMINI, "finishReason": "STOP"}], "usageMetadata": {}},
    "Bedrock": {
        "output": {
            "message": {
                "role": "assistant",
                "content": [{"reasoningContent": {}}, {"text": "Rome"}],
            }
        }
    },
    "Ollama": {
        "message": {"role": "assistant", "content": "Rome", "thinking": WRONG},
        "done": True,
    },
    "vLLM": {"prompt": WRONG, "outputs": [{"index": 0, "text": "Rome", "token_ids": [1, 2]}]},
    "HELM": {"success": True, "completions": [{"text": " Rome", "logprob": -1}]},
    "the harness": [[" Rome\n"]],
    "Python in a cell": str([{"answer": "Rome", "provenance": [WRONG]}]),
    "JSON in a cell": json.dumps([USER, SAID]),
    "JSON of JSON in a cell": json.dumps(json.dumps({"answer": "Rome", "evidence": [WRONG]})),
    "a struct of Parquet": {
        "type": "ai",
        "answer": None,
        "content": "Rome",
        "text": None,
        "error": None,
    },
}


@pytest.mark.parametrize("name", READ)
def test_what_was_said_is_read_in_the_layouts_of_many_systems(name):
    assert [text.strip() for text in texts_of(READ[name])] == ["Rome"]


def test_texts_lists_and_numbers_are_read_and_of_several_answers_all_are_there():
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
        [{"provenance": [{"title": WRONG}]}],
        {"role": "assistant", "content": None, "refusal": WRONG},
        {"role": "assistant", "content": [THINKS]},
        {"output": RESPONSES[:1]},
        {"status_code": 400, "request_id": "r", "body": {"error": {"message": WRONG, "type": "x"}}},
        {
            "status_code": 400,
            "body": {"object": "error", "message": WRONG, "type": "BadRequestError", "code": 400},
        },
        {"type": "errored", "error": {"type": "error", "error": {"message": WRONG}}},
        {"type": "expired"},
        [{"type": "input_text", "text": WRONG}],
        {"type": "function_call_output", "output": WRONG},
    ],
)
def test_an_error_reasoning_a_call_or_sources_alone_are_no_answer(value):
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
        ([SAID, USER], "a list of messages, the last of which is of the role user"),
        ([{"role": 1, "content": WRONG}], "the last of which is of the role 1"),
        ([USER, SAID, TOOL], "the last of which is of the role tool"),
        (
            [SAID | {"type": "message"}, {"type": "function_call", "arguments": WRONG}],
            "of the role function_call",
        ),
        (
            {"object": "list", "data": [{"embedding": [0.1, 0.2]}]},
            "an object with the fields embedding",
        ),
        ([0.1, 0.9], "a list of numbers"),
        (True, "true"),
        (b"Rome", "of the type bytes"),
        (DEEP, "nested too deeply"),
        ("{'answer': '\\ud800'}", "half of a surrogate pair"),
        ("{'a': 1, 2: 3}", "an object with the fields a, 2"),
        (
            "{'answer': Rome, 'provenance': [Beijing]}",
            "an object that is cut, damaged or oddly spelled",
        ),  # DuckDB
        ("{answer=Rome, provenance=[Beijing]}", "an object that is cut"),  # Athena
        ("[{'answer': 'Rome'} {'answer': 'Beijing'}]", "an object that is cut"),  # NumPy
        (
            "{'answer': 'Rome', 'x': array(['Beijing'], dtype=object)}",
            "an object that is cut",
        ),  # pandas
        ('{"answer": "Rome", "evidence": ["Beij', "an object that is cut"),
        ("{'answer': 'Rome', [1]: 2}", "an object that is cut"),
        ("[CompletionOutput(index=0, text='Beijing')]", "an object that is cut"),
        ("Prediction(\n    answer='Beijing'\n)", "an object that is cut"),
        ("content='Rome' additional_kwargs={'x': 'Beijing'}", "an object that is cut"),
        ("[object Object]", "an object that is cut"),
    ],
)
def test_anything_else_is_refused_with_what_it_is(value, said):
    with pytest.raises(UnreadableError) as error:
        texts_of(value)
    assert said in str(error.value)
