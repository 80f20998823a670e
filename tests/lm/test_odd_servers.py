"""Answers that are not what was asked for: another model's, behind their prompt or a greeting.

What comes before an answer is taken off, and remarks say so.
"""

import pytest
import tiny_models
from local_models import open_model

from pipelines import reasoning
from pipelines.errors import LongtailError
from pipelines.lm.language_model import ECHOED, LED, Prompt
from pipelines.lm.served_models import is_same_model
from pipelines.lm.server_answers import after_prompt

PROMPTS = [
    Prompt("Q: Who wrote it? A: Osk\n\nQ: In what city was she born? A:"),
    Prompt("Q: What is the capital of Velm? A:", "A passage. "),
]
SAME = [
    ("gpt-4o", "gpt-4o-2024-08-06"),
    ("gpt-4-0613", "gpt-4"),
    ("gpt-3.5-turbo", "gpt-3.5-turbo-0125"),
    ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022"),
    ("gemini-1.5-pro", "models/gemini-1.5-pro-002"),
    ("mistral-large-latest", "mistral-large-2411"),
    ("deepseek-r1-0528:free", "deepseek/deepseek-r1-0528:free"),
    ("llama3", "llama3:latest"),
    ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b-instruct"),
    ("gemma-2-2b-it", "/models/gemma-2-2b-it.gguf"),
    ("gemma-3-1b-it", "gemma-3-1b-it:2"),  # a second copy that LM Studio has loaded
    ("command-r", "command-r-08-2024"),
    ("gemini-2.5-flash", "gemini-2.5-flash-preview-05-20"),
]
OTHERS = [
    ("Qwen/Qwen2.5-7B-Instruct", "gemma-3-1b-it-qat:2"),
    ("gpt-4", "gpt-4o"),
    ("gpt-4o-2024-05-13", "gpt-4o-2024-08-06"),
    ("llama-3-70b", "llama-3-8b"),
    ("qwen2.5:7b", "qwen2.5:0.5b"),
]


@pytest.mark.parametrize(("asked", "served"), SAME)
def test_a_dated_name_is_the_same_model(asked, served):
    assert is_same_model(asked, served)
    assert is_same_model(served, asked)


@pytest.mark.parametrize(("asked", "served"), OTHERS)
def test_another_name_is_another_model(asked, served):
    assert not is_same_model(asked, served)
    assert not is_same_model(served, asked)


@pytest.mark.parametrize("chat", [True, False])
def test_another_model_is_named_and_kept_with_the_answers(opened, server, capsys, chat):
    server.served = "other-1b"
    lm = opened(None, chat=chat)
    assert "answers are of other-1b, where served was asked for" in capsys.readouterr().out
    remark = "are of other-1b, where served was asked for"
    assert [made.remarks for made in lm.generate(PROMPTS, 5)] == [(remark,)] * 2
    server.served = None
    asked = len(server.requests)
    again = opened(None, chat=chat).generate(PROMPTS, 5)
    assert [made.remarks for made in again] == [(remark,)] * 2
    assert len(server.requests) == asked, "its answers are kept"


def test_the_model_that_was_asked_for_is_not_remarked(opened, server, capsys):
    server.served = "served-2024-08-06"
    lm = opened()
    assert [made.remarks for made in lm.generate(PROMPTS, 5)] == [(), ()]
    assert "asked for" not in capsys.readouterr().out


@pytest.mark.parametrize("tokens", [True, False])
def test_a_server_that_echoes_by_default_is_refused(opened, server, tiny, tokens):
    tokenizer = tiny if tokens else None
    plain = opened(tokenizer).generate(PROMPTS, 5)
    server.echoes = True
    seeded = {"seed": 1}  # an answer that was kept does not count
    for _ in range(2):
        with pytest.raises(LongtailError, match=r"write echo: false into lm\.tiny\.http\.extra$"):
            opened(tokenizer, extra=seeded)
    lm = opened(tokenizer, extra=seeded | {"echo": False})
    assert lm.generate(PROMPTS, 5) == plain
    assert lm.votes


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Q: Where is the city? A: Osk", " Osk"),
        ("<s> Q: Where is the city? A: Osk", " Osk"),
        ("[INST] Q: Where is the city? A: [/INST] Osk", " [/INST] Osk"),
        ("Q: Where is the city? A:", ""),
        ("Osk, as to Q: Where is the city? A:", "Osk, as to Q: Where is the city? A:"),
        (" Osk", " Osk"),
        ("", ""),
    ],
)
def test_the_answer_comes_after_the_prompt(text, answer):
    assert text[after_prompt(text, "Q: Where is the city? A:") :] == answer


def test_a_prompt_before_a_chats_answer_is_taken_off(opened, server):
    lm = opened(None, chat=True)
    server.said = f"{PROMPTS[0].context} Osk"
    (made,) = lm.generate(PROMPTS[:1], 20)
    assert (made.text, made.remarks) == (" Osk", (ECHOED,))


LEADS = {  # what is wrong -> a whole answer of "Osk"
    "a greeting": "Sure! Here is the answer:\n\nOsk",
    "a role": "assistant\n\nOsk",
    "a role in marks": "<|start_header_id|>assistant<|end_header_id|>\n\nOsk",
    "Gemma's role": "<start_of_turn>model\nOsk",
    "a heading": "### Answer:\nOsk",
    "in bold": "**Answer:**\n\nOsk",
    "several": "assistant\n\nHere you go:\n\nOsk",
    "another language": "Voici la r\u00e9ponse :\nOsk",
    "a full-width colon": "\u7b54\u6848\uff1a\nOsk",
    "a fence": "```\nOsk\n```",
    "after reasoning": "<think>They ask.</think>Answer:\nOsk",
}


@pytest.mark.parametrize("said", LEADS.values(), ids=LEADS)
def test_a_line_before_a_chats_answer_is_taken_off(opened, server, said):
    server.said = said
    lm = opened(None, chat=True)
    made = lm.generate(PROMPTS, 20)
    assert [answer.text.strip() for answer in made] == ["Osk", "Osk"]
    assert [answer.remarks for answer in made] == [(LED,)] * 2


@pytest.mark.parametrize(
    "said",
    ["Osk\nBecause:\nit is", "Osk", "The answer is Osk.\nmore", "Answer:", "assistant", "model\nx"],
)
def test_the_first_line_counts_where_it_is_an_answer(opened, server, said):
    """A line that nothing follows stays."""
    server.said = said
    (made,) = opened(None, chat=True).generate(PROMPTS[:1], 20)
    assert (made.text, made.remarks) == (said.partition("\n")[0], ())


def test_the_log_probability_of_a_chats_answer_is_of_its_own_tokens(opened, server, monkeypatch):
    server.said = "Answer:\nOsk"
    converse = server.converse

    def shown(body: dict) -> dict:
        answer = converse(body)
        tokens = [("Answer:", -3.0), ("\n", -2.0), ("Osk", -0.5)]
        content = [{"token": text, "logprob": value} for text, value in tokens]
        answer["choices"][0]["logprobs"] = {"content": content}
        return answer

    monkeypatch.setattr(server, "converse", shown)
    (made,) = opened(None, chat=True).generate(PROMPTS[:1], 20)
    assert (made.text, made.mean_log_prob) == ("Osk", -0.5)


@pytest.mark.parametrize("said", [["Answer", ":", "\n\n", "Osk"], ["assistant", "\n", "Osk"]])
def test_a_line_before_a_local_chats_answer_is_taken_off(tmp_path, said):
    begin = "{{ messages[-1].content }}<|model|>"
    folder = tiny_models.saying(tmp_path, begin, {"<|model|>": [*said, "\n", "Because"]})
    (made,) = open_model(folder, chat=True).generate([Prompt("Where?")], 15)
    assert (made.text.strip(), made.remarks) == ("Osk", (LED,))
    (made,) = open_model(folder).generate([Prompt("Where?<|model|>")], 15)
    assert made.remarks == (), "outside of a template all that it says is its answer"


def test_only_lines_before_others_are_taken_off():
    assert reasoning.after_leads("Answer:\n  \n") == 0
    assert reasoning.after_leads("\n\nParis\nx") == 0
