"""The mixture on a server: tokens that bounds decide are the local model's, and all others are said
to be undecided."""

import numpy as np
import pytest
import tiny_models
from http_faults import Fault

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.lm.server_mixture import Mixture, decide
from pipelines.replug import ensemble

STEPS, K = 6, 3
CONTEXTS = np.repeat(tiny_models.words(8, 2, at_most=12), K).tolist()
DOCUMENTS = [text + "\n" for text in tiny_models.words(8 * K, 1, at_most=15)]
PROMPTS = [Prompt(*pair) for pair in zip(CONTEXTS, DOCUMENTS, strict=True)]
SIMILARITIES = np.random.default_rng(3).normal(size=(8, K))
SIMILARITIES[::4, K - 1 :] = -np.inf
WEIGHTS = ensemble.log_weights(SIMILARITIES, 0.7)


def logs(**probable: float) -> dict:
    """What a server shows: `_7` is the token 7, another name a text."""
    return {
        int(name[1:]) if name[0] == "_" else name: np.log(value) for name, value in probable.items()
    }


@pytest.mark.parametrize(
    ("shown", "weights", "token"),
    [
        ([logs(_1=0.6, _2=0.3), logs(_2=0.5, _1=0.4)], [0.5, 0.5], 1),  # 0.50 against 0.40 and, of others, 0.10
        ([logs(_1=0.6, _2=0.3), logs(_2=0.5, _1=0.4)], [0.1, 0.9], 2),
        # the first prompt hides 0.2, so 2 has 0.30 to 0.40, and 3 has 0.35
        ([logs(_3=0.5, _1=0.3), logs(_2=0.6, _3=0.2)], [0.5, 0.5], None),
        ([logs(_3=0.6, _1=0.3), logs(_2=0.6, _3=0.2)], [0.5, 0.5], 3),  # it hides 0.1: 2 has 0.30 to 0.35, 3 has 0.40
        # a hidden token is no likelier than the least likely one that is shown, however much is
        # hidden
        ([logs(_1=0.2, _2=0.1), logs(_1=0.2, _2=0.1)], [0.5, 0.5], 1),
        ([logs(_1=0.4, _2=0.4), logs(_1=0.2, _2=0.2)], [0.5, 0.5], None),  # as likely
        ([logs(é=0.5, _2=0.3), logs(_2=0.5, é=0.3)], [0.5, 0.5], None),  # which of its tokens a text is, is not known
        ([logs(é=0.3, _2=0.5), logs(_2=0.5, é=0.3)], [0.5, 0.5], 2),
        # one of two tokens is not shown: it may have the same text and 0.7, which is 0.45 of the
        # mixture; 1 has 0.40
        ([logs(é=0.3), logs(_1=0.8, é=0.2)], [0.5, 0.5], None),
        ([{}, {}], [0.5, 0.5], None),
    ],
)  # fmt: skip
def test_a_token_is_decided_where_none_can_be_likelier(shown, weights, token):
    log_weights = np.log(weights)
    assert decide(shown, 2, log_weights, log_weights)[0] == token


def test_bounds_hold_the_probabilities_that_are_hidden():
    generator, outcomes = np.random.default_rng(0), []
    for _ in range(300):
        probable = generator.dirichlet(np.full(12, 0.3), size=K)
        weights = generator.dirichlet(np.ones(K))
        count = int(generator.integers(1, 13))
        shown = [
            {int(i): float(np.log(row[i])) for i in row.argsort()[-count:]} for row in probable
        ]
        token, least, most = decide(shown, count, np.log(weights), np.log(weights))
        outcomes.append((count, token is not None))
        if token is not None:
            assert token == (weights @ probable).argmax()
            assert (least <= probable[:, token] + 1e-12).all()
            assert (probable[:, token] <= most + 1e-12).all()
    assert all(decided for count, decided in outcomes if count == 12), "everything is shown"
    assert {decided for count, decided in outcomes if count == 3} == {True, False}


def test_an_answer_ends_at_an_end_token():
    """It also ends where nothing is decided, and empty places are not read."""
    mixture = Mixture(
        [[7], [8], [9]], np.array([np.log(0.75), np.log(0.25), -np.inf]), 2, moving=True
    )
    assert mixture.follow([logs(_1=0.8, _2=0.2), logs(_1=0.4, _2=0.6)], {0})
    assert (mixture.prompts, mixture.log_probs) == ([[7, 1], [8, 1]], [pytest.approx(np.log(0.7))])
    # weights follow the text: they were 0.75 and 0.25, and are 0.75 * 0.8 and 0.25 * 0.4, or 6 / 7
    # and 1 / 7
    assert mixture.follow([logs(_2=0.6, _3=0.4), logs(_3=0.99)], {0})
    assert mixture.tokens == [1, 2]
    assert mixture.follow([logs(_2=0.5, _3=0.5), logs(_3=0.5, _2=0.5)], {0}) is False
    assert not mixture.decided
    mixture = Mixture([[7]], np.zeros(1), 2, moving=False)
    assert mixture.follow([logs(_0=0.9)], {0}) is False
    expected = (True, [], 1, 1)
    assert (mixture.decided, mixture.tokens, mixture.prompt_tokens, mixture.new_tokens) == expected


# of a byte, the text says too little
@pytest.mark.parametrize(("by_ids", "steps"), [(True, STEPS), (False, 1)])
@pytest.mark.parametrize("mixture", ensemble.MIXTURES)
@pytest.mark.parametrize("stop", ["\n", "e"])
def test_decided_answers_are_the_local_models_to_the_token(
    opened, server, local, mixture, by_ids, steps, stop
):
    server.ids = by_ids
    lm, sequence = opened(logprobs=20), mixture == "sequence_mixture"
    found = lm.generate_mixture(PROMPTS, WEIGHTS, steps, stop, sequence_mixture=sequence)
    expected = local.generate_mixture(PROMPTS, WEIGHTS, steps, stop, sequence_mixture=sequence)
    decided = [pair for pair in zip(found, expected, strict=True) if pair[0].decided]
    assert 2 <= len(decided) < len(found), "some and not all are decided, or the test shows nothing"
    for there, here in decided:
        assert (there.text, there.new_tokens) == (here.text, here.new_tokens)
        assert here.mean_log_prob - 0.5 < there.mean_log_prob < here.mean_log_prob + 1e-4
    assert lm.usage["lm_undecided"] == len(found) - len(decided)
    assert lm.votes
    assert lm.mixes


def test_only_missing_tokens_are_asked_for_after_an_error(opened, server):
    server.ids = True
    asking = opened(logprobs=20, concurrency=1)
    server.faults = [None] * 20 + [Fault(402, b"no more")]
    with pytest.raises(LongtailError, match="no more"):
        asking.generate_mixture(PROMPTS, WEIGHTS, STEPS)
    paid, again = len(server.paid), opened(logprobs=20)
    made = again.generate_mixture(PROMPTS, WEIGHTS, STEPS)
    assert len(server.paid) > paid
    assert max(server.paid.values()) == 1
    assert again.usage["lm_requests"] > 0
    asked = len(server.requests)
    assert opened(logprobs=20).generate_mixture(PROMPTS, WEIGHTS, STEPS) == made
    assert len(server.requests) == asked


def test_a_server_that_refuses_to_show_ids_is_asked_for_texts(opened, server):
    server.ids = True
    lm = opened(logprobs=20)
    server.faults = [Fault(400, b"unknown field")]
    assert len(lm.generate_mixture(PROMPTS[:K], WEIGHTS[:1], 2)) == 1
    assert "return_tokens_as_token_ids" not in server.requests[-1]


def test_without_the_tokenizer_a_server_can_not_mix(opened):
    assert not opened(None).mixes
