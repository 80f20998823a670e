"""Instruction-tuned models: prompts in a chat template, here and behind a server's chat
interface.
"""

from pathlib import Path

import numpy as np
import pytest
import tiny_models
from local_models import open_model

from pipelines.answering import answer_letters
from pipelines.errors import LongtailError
from pipelines.lm import chat_template
from pipelines.lm.language_model import Generation, Prompt
from pipelines.lm.local import LocalModel
from pipelines.lm.token_prompts import PromptTokenizer
from pipelines.params import params
from pipelines.replug import ensemble
from pipelines.replug.ensemble import check_ability

ASKED = [Prompt(text) for text in dict.fromkeys(tiny_models.words(20, 5, at_most=12))]
VOTE = params.Replug(top_k=2, temperature=1.0, mixture="token_mixture", vote=True)


@pytest.fixture(scope="module")
def here(tiny) -> LocalModel:
    return open_model(tiny, chat=True)


def template_of(tokenizer, text) -> list[int]:
    message = [{"role": "user", "content": text}]
    rendered = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return tokenizer(rendered, add_special_tokens=False)["input_ids"]


def test_a_prompt_is_a_users_message_in_the_template(here):
    """A long one is cut within it."""
    tokens = here._texts.prompts(
        [*ASKED, Prompt("the end", "A document. ")], np.full(len(ASKED) + 1, 5)
    ).tolist()
    texts = [*(prompt.context for prompt in ASKED), "A document. the end"]
    assert tokens == [template_of(here.tokenizer, text) for text in texts]
    (tokens,) = here._texts.prompts(
        [Prompt(" ".join(tiny_models.words(8, 5, at_least=20)))], np.array([12])
    ).tolist()
    around = template_of(here.tokenizer, "\ue000")
    assert len(tokens) == here.max_tokens - 12
    assert (tokens[:8], tokens[-8:]) == (around[:8], around[-8:])


def in_template(template: str | None) -> str:
    """What a template makes of the message "a"."""
    (tokenizer := tiny_models.tokenizer()).chat_template = template
    texts = PromptTokenizer(tokenizer, Path("tiny"), "tiny", 99, chat=True)
    return tokenizer.decode(texts.prompts([Prompt("a")], np.zeros(1)).tolist()[0])


def test_a_template_may_name_the_day_or_want_typed_parts():
    day = "It is {{ strftime_now('%d %b %Y') }}. {{ messages[0].content }}"
    assert in_template(day) == f"It is {chat_template.DAY:%d %b %Y}. a"
    parts = "{% for part in messages[0].content %}[{{ part.type }}] {{ part.text }}{% endfor %}"
    assert in_template(parts) == "[text] a"
    asks = "{% if enable_thinking is defined %}{{ raise_exception('no') }}{% endif %}"
    assert in_template(asks + "Q {{ messages[0].content }}") == "Q a", "a switch that fails is left"


REFUSED = {
    None: r"lm\.tiny\.chat is true, but the tokenizer of tiny has no chat template",
    "{{ messages[0].content }} {{ messages[0].content }}": "message 2 times, expected it once; set",
    "user: {{ messages[0].text }}": "message 0 times",
    "user: </s>assistant: {{ messages[0].content }}": "message in the model's turn",
    "{{ raise_exception('only images') }}": "takes no message of a user alone: only images; set",
}


@pytest.mark.parametrize("template", REFUSED)
def test_a_template_without_the_message_once_in_the_users_turn_is_refused(template):
    with pytest.raises(LongtailError, match=REFUSED[template]):
        in_template(template)


@pytest.mark.parametrize("logprobs", [True, False])
def test_a_server_answers_in_chat_as_the_local_model_does(opened, server, here, cost, logprobs):
    server.refused = set() if logprobs else {"logprobs"}
    lm = opened(None, chat=True, prompt_price=1.0)
    before = cost()
    for mine, theirs in zip(here.generate(ASKED, 12), lm.generate(ASKED, 12), strict=True):
        assert (theirs.text, theirs.prompt_tokens) == (mine.text, mine.prompt_tokens)
        if "\ufffd" not in mine.text:
            known = mine.mean_log_prob if logprobs or not mine.text else np.nan
            assert theirs.mean_log_prob == pytest.approx(known, abs=1e-4, nan_ok=True)
    assert sum(made.prompt_tokens for made in lm.generate(ASKED, 12)) == round(
        1000 * (cost() - before)
    )
    assert all("stop" not in body and len(body["messages"]) == 1 for body in server.requests)
    assert lm.votes == logprobs


def answer_by_letter(lm, prompts, weights) -> list[str]:
    return [made.text for made in answer_letters.answer_by_letter(lm, prompts, weights)]


def test_what_a_chat_can_not_do_is_said_before_any_work(opened, server):
    server.refused = {"logprobs"}
    lm, asked = opened(None, chat=True), len(server.requests)
    assert (lm.scores, lm.mixes, lm.votes) == (False, False, False)
    with pytest.raises(
        LongtailError, match="log-probabilities of prompts, so tiny can't score texts"
    ):
        lm.require_scores()
    with pytest.raises(LongtailError, match=r"which the vote \(replug.vote\) needs"):
        check_ability(lm, VOTE)
    assert len(server.requests) == asked


def test_a_letter_is_chosen_by_the_tokens_that_a_chat_shows(opened, server, here, monkeypatch):
    weights = ensemble.log_weights(np.random.default_rng(0).random((9, 2)), 1.0)
    probable = here.next_token(ASKED[:18])
    probable[probable < np.sort(probable, axis=1)[:, [-8]]] = -np.inf
    tokens = here.tokenizer.batch_decode(np.arange(probable.shape[1])[:, None])
    texts = np.array([text.strip() for text in tokens])
    shown = np.unique(texts[np.isfinite(probable).any(0)])
    letters = [text for text in shown if text.isalpha()][:4]
    monkeypatch.setattr(answer_letters, "LETTERS", letters)
    server.said = "I can't say."
    answers = answer_by_letter(opened(None, chat=True, logprobs=8), ASKED[:18], weights)
    each = [np.exp(probable)[:, texts == letter].sum(1) for letter in letters]
    mixed = (np.stack(each, axis=1).reshape(9, 2, 4) * np.exp(weights)[:, :, None]).sum(1)
    assert answers == [letters[row.argmax()] if row.any() else "" for row in mixed]
    assert len({*answers} - {""}) > 1


class Writing:
    """Shows and scores nothing, and answers prompts with what it is given to say."""

    scores, begins = False, ""

    def __init__(self, *said) -> None:
        self.said = said

    def choose(self, prompts, texts) -> np.ndarray:
        return np.full((len(prompts), len(texts)), np.nan)

    def generate(self, prompts, max_tokens) -> list[Generation]:
        return [Generation(text, np.nan, 0) for text in self.said]


def test_without_log_probs_the_letters_that_a_chat_writes_vote(opened, server):
    server.refused, server.said = {"logprobs"}, "**B**"
    lm = opened(None, chat=True)
    assert answer_by_letter(lm, ASKED[:4], np.log([[0.9, 0.1], [0.5, 0.5]])) == ["B", "B"]
    said = ["(C) because", "It is D.", "D", "No idea", "ABBA", "Cats"]
    weights = np.log([[0.5, 0.3, 0.2], [0.4, 0.3, 0.3]])
    assert answer_by_letter(Writing(*said), [None] * 6, weights) == ["C", ""]
    assert answer_by_letter(Writing(*said[:3]), [None] * 3, weights[1:]) == ["D"]
