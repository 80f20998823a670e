"""The HTTP language model against a real server over the tiny one: the local model's numbers, or a
clear refusal."""

import re

import numpy as np
import pytest
import tiny_models
import yaml
from completions_server import settings
from http_faults import Fault

from pipelines.answering import answer_letters
from pipelines.errors import LongtailError
from pipelines.lm.http_model import HttpModel
from pipelines.lm.language_model import Prompt
from pipelines.lm.server_answers import Choice, LogProbs
from pipelines.params import params, params_file
from pipelines.replug import ensemble
from pipelines.replug.ensemble import vote

# some are too long
CONTEXTS, DOCUMENTS = (tiny_models.words(30, 3), tiny_models.words(30, 4, at_least=20, at_most=60))
SHORT = [Prompt(text) for text in tiny_models.words(30, 5, at_most=12)]
CONTINUATIONS = [f" {text}" for text in tiny_models.words(28, 6, at_most=10)] + [
    " 東京 façade🙂",
    "",
]


@pytest.mark.parametrize("by_ids", [True, False])
def test_scores_and_answers_are_the_local_models(opened, server, local, tiny, by_ids):
    prompts = [
        Prompt(c, f"{d}\n" if i % 2 else "")
        for i, (c, d) in enumerate(zip(CONTEXTS, DOCUMENTS, strict=True))
    ]
    prompts[5] = Prompt("")
    lm = opened(tiny if by_ids else None)
    prompts = prompts if by_ids else [Prompt(p.context, p.document[:60]) for p in prompts]
    assert lm.scores == by_ids
    if by_ids:
        expected, scores = local.score(prompts, CONTINUATIONS), lm.score(prompts, CONTINUATIONS)
        for mine, theirs in zip(expected.log_probs, scores.log_probs, strict=True):
            np.testing.assert_allclose(theirs, mine, atol=1e-4)
            assert theirs.dtype == np.float32
        assert [counts.tolist() for counts in scores.bytes] == [
            counts.tolist() for counts in expected.bytes
        ]
    else:
        with pytest.raises(
            LongtailError, match=r"http\.tokenizer is null, so tiny can't score texts"
        ):
            lm.score(prompts, CONTINUATIONS)

    for mine, theirs in zip(
        local.generate(prompts, 12, "e"), lm.generate(prompts, 12, "e"), strict=True
    ):
        assert theirs.text == mine.text
        assert theirs.mean_log_prob == pytest.approx(mine.mean_log_prob, abs=1e-4)
        assert theirs.prompt_tokens == (mine.prompt_tokens if by_ids else 0)


def test_an_answer_that_begins_with_the_stop_is_asked_again(opened, server, local, cost):
    lm = opened(prompt_price=1.0)
    before, prompts = cost(), list(dict.fromkeys(SHORT))  # equal prompts are paid for once
    probes = len(server.requests)
    alone, there = local.generate(prompts, 12, " "), lm.generate(prompts, 12, " ")
    again = [
        made
        for made, other in zip(there, alone, strict=True)
        if made.prompt_tokens > other.prompt_tokens
    ]
    assert [made.text for made in there] == [made.text for made in alone]
    assert len(again) > 2
    assert all(made.text for made in again)
    # no pieces of characters
    whole = [pair for pair in zip(there, alone, strict=True) if "\ufffd" not in pair[0].text]
    assert all(
        made.mean_log_prob == pytest.approx(other.mean_log_prob, abs=1e-4) for made, other in whole
    )
    assert sum(made.prompt_tokens for made in there) == round(1000 * (cost() - before))
    without_stop = ["stop" not in body for body in server.requests[probes:]]
    assert sum(without_stop) == len(again), "those that were empty"


def answer_by_letter(lm, prompts, weights) -> list[str]:
    return [made.text for made in answer_letters.answer_by_letter(lm, prompts, weights)]


def test_options_are_chosen_as_by_the_local_model(opened, local, server, monkeypatch):
    prompts = [Prompt(p.context + " Answer:") for p in SHORT]
    weights = ensemble.log_weights(np.random.default_rng(0).random((10, 3)), 1.0)
    server.echo = False
    # some of the letters are two tokens
    with pytest.raises(LongtailError, match="can't score texts"):
        answer_by_letter(opened(), prompts, weights)
    server.echo = True
    assert answer_by_letter(opened(logprobs=2), prompts, weights) == answer_by_letter(
        local, prompts, weights
    )
    # each a token: the likeliest, and by scoring what does not show
    monkeypatch.setattr(answer_letters, "LETTERS", "ATiw")
    assert answer_by_letter(opened(logprobs=2), prompts, weights) == answer_by_letter(
        local, prompts, weights
    )
    server.echo = False
    # else the probe is kept
    answers = answer_by_letter(opened(logprobs=8, extra={"another": 1}), SHORT, weights)
    ids, probable = (
        [local._texts.token_ids([f" {letter}"])[f" {letter}"] for letter in answer_letters.LETTERS],
        np.exp(local.next_token(SHORT)),
    )
    probable[probable < np.sort(probable, axis=1)[:, [-8]]] = 0
    mixed = (probable[:, ids].reshape(10, 3, 4) * np.exp(weights)[:, :, None]).sum(1)
    assert answers == [answer_letters.LETTERS[row.argmax()] if row.any() else "" for row in mixed]
    assert len(set(answers)) > 1


@pytest.mark.parametrize(
    ("change", "fault", "message"),
    [
        ({"echo": False}, None, "gives 0 log-probabilities where"),
        ({"lost": 1}, None, r"gives \d+ log-probabilities where"),
        ({}, Fault(400, b"echo is not \n supported"), "the server answers 400 Bad Request: echo is not supported"),
        ({"echo_fails": True}, None, "the server answers 500 .*Only no echo is supported"),
        ({"shifted": True}, None, "gives '.*' after 'one two three' the log-probability .* as an answer's"),
    ],
)  # fmt: skip
def test_a_server_that_cannot_score_says_so_when_opened(opened, server, change, fault, message):
    """It still generates."""
    vars(server).update(change)
    server.faults = [None, fault]
    lm = opened()
    assert not lm.scores
    asked = len(server.requests)
    with pytest.raises(LongtailError, match=rf"{message}.*can't score texts"):
        lm.score(SHORT, CONTINUATIONS)
    assert len(server.requests) == asked, "refused before any request"
    assert len(lm.generate(SHORT[:3], 3)) == 3
    server.echo, server.lost, server.echo_fails, server.shifted = True, 0, False, False
    assert opened().scores, "what a server could not do is tried again"


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        (
            {"texts_only": True},
            "if it takes texts alone, no token ids, set lm.tiny.http.tokenizer to null",
        ),
        ({"least": 9}, "could not broadcast input array.*gave up"),
    ],
)
def test_a_server_that_takes_other_prompts_says_so(opened, server, change, advice):
    vars(server).update(change)
    with pytest.raises(LongtailError, match=advice):
        opened()


def test_texts_that_are_too_long_are_refused(opened):
    with pytest.raises(
        LongtailError,
        match=r"\d+ tokens in a prompt, where lm\.tiny\.http\.max_tokens is 128; with",
    ):
        opened(None).generate([Prompt("a b " * 50)], 1)


def test_answers_that_are_not_the_likeliest_are_refused(opened, server, local):
    server.penalty = 9.0
    with pytest.raises(
        LongtailError, match=r"where another token is likelier by \d.*in http\.extra"
    ):
        opened().generate(SHORT[:12], 12)
    generations = opened(extra={"penalty": 0}).generate(SHORT[:12], 12)
    assert [made.text for made in generations] == [
        made.text for made in local.generate(SHORT[:12], 12)
    ]


def test_log_probs_in_the_chat_form_are_the_same(opened, server, local):
    server.quiet = server.chat = server.echo_fails = True
    lm, asked = opened(), SHORT[:12]
    texts = local._texts.texts_of_ids(400)
    generations, log_probs = lm.generate(asked, 4), lm.choose(asked, texts)
    server.chat = False
    other = opened(extra={"another": 1})  # else the answers kept
    assert lm.generate(asked, 4) == generations == other.generate(asked, 4)
    np.testing.assert_array_equal(log_probs, other.choose(asked, texts))


@pytest.mark.parametrize("places", [[0, 2, 4, 5], [-1] * 4, None])
def test_tokens_after_an_answer_do_not_count(places):
    """SGLang says -1 for each."""
    shown = LogProbs([" a", " b", "\n", " c"], [-1.0, -2.0, -5.0, -7.0], places)
    assert Choice(" a b\n c", logprobs=shown).answer("\n") == (" a b", -1.5, [])


def test_a_server_that_shows_few_tokens_can_not_choose(opened, server):
    server.shown = 3
    lm = opened(logprobs=8)
    assert np.isnan(lm.choose(SHORT, [" a"])).all()
    assert not lm.mixes
    prompts = [Prompt("Answer:"), Prompt("The answer is")]
    assert len(answer_by_letter(lm, prompts, np.zeros((2, 1)))) == 2, "by scoring"
    server.logprobs = False
    generations = opened(extra={"another": 1}).generate(SHORT, 3)
    assert any(made.text for made in generations)
    assert all(np.isnan(made.mean_log_prob) for made in generations if made.text)
    with pytest.raises(LongtailError, match="which the vote needs"):
        vote(generations, np.zeros((len(generations), 1)))


def test_another_models_tokenizer_is_named(server, tmp_path):
    (other := tiny_models.tokenizer()).backend_tokenizer.train_from_iterator(["zz yy xx"])
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(
        LongtailError, match=r"lm\.other\.http\.tokenizer is .*expected the tokenizer of the model"
    ):
        HttpModel(
            tmp_path / "other", settings(server.url, tmp_path / "other"), None, tmp_path / "cache"
        )


def test_params_that_lack_something_are_refused(root):
    whole = yaml.safe_load((root / "params.yaml").read_text("utf-8"))
    for change, message in [
        ({"path": None}, "should be the model's name on the server"),
        ({"http": {"url": "host/v1"}}, "should match pattern"),
        ({"http": {"max_cost": 5.0}}, "should be null where prompt_price is 0"),
        ({"chat": True, "http": {"tokenizer": "gpt2"}}, "should be false where http.tokenizer is set"),
    ]:  # fmt: skip
        values = settings("http://127.0.0.1:1/v1").model_dump()
        whole["lm"]["served"] = values | change | {"http": values["http"] | change.get("http", {})}
        with pytest.raises(LongtailError, match=message):
            params_file.parse(whole)


def test_the_documented_examples_are_valid(root):
    text = "".join(
        (root / f"docs/{page}.md").read_text("utf-8")
        for page in ("language-models", "servers", "paid-services")
    )
    examples = re.findall(r"^```yaml\n(lms: .*?)```", text, re.DOTALL | re.MULTILINE)
    sections = [
        section for example in examples for section in yaml.safe_load(example)["lm"].values()
    ]
    on_a_server = [params.LM(**section).http is not None for section in sections]
    assert on_a_server == [False] * 3 + [True] * 2
