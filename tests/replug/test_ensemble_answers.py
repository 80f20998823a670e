"""One answer from k prompts: the params say how, and the vote sums lambda_d * exp(mean token
log-prob) by answer.
"""

import math

import numpy as np
import pytest

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Generation
from pipelines.params import params
from pipelines.replug import ensemble
from pipelines.replug.ensemble import check_ability, generate, vote


def made(*answers):
    return [Generation(text, mean if text else -math.inf, 1) for text, mean in answers]


def texts_of(generations, log_weights):
    return [elected.text for elected in vote(generations, log_weights)]


def test_vote_by_hand():
    answers = made(*((text, 0.0) for text in ("Paris", "the Rome", "rome!", "Oslo")))
    # summed by normalised answer: Paris 0.35, Rome 0.2 + 0.2, Oslo 0.25
    assert texts_of(answers, np.log([[0.35, 0.2, 0.2, 0.25]])) == ["the Rome"]
    unsure = made((" sure", -0.1), (" guess", -3.0)) * 2  # 0.4 * 0.905 against 0.6 * 0.050
    assert texts_of(unsure, np.log([[0.02, 0.98], [0.4, 0.6]])) == ["guess", "sure"]
    (elected,) = vote(
        [Generation("a", -0.5, 3, 2), Generation("b", -0.5, 4, 5)], np.log([[0.4, 0.6]])
    )
    assert elected == Generation("b", pytest.approx(math.log(0.6) - 0.5), 7, 7)
    # of equal votes the earliest document wins, however they add up
    answers = made(*((text, 0.0) for text in ("b", "a", "b", "a", "b", "a")))
    # floats added one by one differ in the last place: 0.1 + 0.2 + 0.3 is more than 0.3 + 0.2 + 0.1
    assert texts_of(answers, np.log([[0.3, 0.1, 0.2, 0.2, 0.1, 0.3]])) == ["b"]
    # empty places and empty texts have no vote, and what has no log-prob can't vote
    answers = made(("", 0.0), ("Rome", -4.0), ("Oslo", 0.0))
    assert texts_of(answers, ensemble.log_weights(np.array([[1e4, 1.0, -np.inf]]), 1000.0)) == [
        "Rome"
    ]
    assert texts_of(made(("", 0.0), ("", 0.0)), np.log([[0.5, 0.5]])) == [""]
    with pytest.raises(LongtailError, match="which the vote needs"):
        vote(made(("Rome", -9.0), ("Oslo", math.nan)), np.log([[0.5, 0.5]]))


class Recording:
    """Says what it was asked to do."""

    name = "recording"
    mixes = votes = True

    def generate(self, prompts, max_tokens, stop="\n"):
        return [Generation(prompt, -1.0, 1, 1) for prompt in prompts]

    def generate_mixture(
        self, prompts, log_weights, max_tokens, stop="\n", *, sequence_mixture=False
    ):
        kind = "sequences" if sequence_mixture else "tokens"
        return [
            Generation(f"{kind} {np.round(np.exp(own), 3).tolist()}", -1.0, 1, 1)
            for own in log_weights
        ]


REPLUG = params.Replug(top_k=2, temperature=0.5, mixture="token_mixture", vote=False)
# at a temperature of 0.5 one weight is thrice the other
SIMILARITIES = np.array([[0.0, 0.5 * math.log(3)]])


def test_the_params_say_how_an_answer_is_made():
    for changed, text in (
        ({}, "tokens [0.25, 0.75]"),
        ({"mixture": "sequence_mixture"}, "sequences [0.25, 0.75]"),
        ({"temperature": 1e9}, "tokens [0.5, 0.5]"),
        ({"vote": True}, "second"),
    ):
        (answer,) = generate(
            Recording(), ["first", "second"], SIMILARITIES, 5, REPLUG.model_copy(update=changed)
        )
        assert answer.text == text


def test_a_model_unfit_for_the_params_is_refused_first():
    lm, voting = Recording(), REPLUG.model_copy(update={"vote": True})
    lm.mixes = False
    for mixture in ensemble.MIXTURES:
        with pytest.raises(
            LongtailError, match=f"recording .* replug.mixture: {mixture}: .* set replug.vote: true"
        ):
            generate(
                lm,
                ["first", "second"],
                SIMILARITIES,
                5,
                REPLUG.model_copy(update={"mixture": mixture}),
            )
    assert [own.text for own in generate(lm, ["alone", "too"], None, 5, REPLUG)] == ["alone", "too"]
    lm.votes = False
    with pytest.raises(
        LongtailError,
        match=r"recording shows no log-probabilities .* the vote \(replug.vote\) needs",
    ):
        check_ability(lm, voting)


def test_an_undecided_answer_is_elected(capsys):
    """It counts the tokens of both."""

    class Undecided(Recording):
        def generate_mixture(self, prompts, log_weights, *rest, **options):
            mixed = super().generate_mixture(prompts, log_weights, *rest, **options)
            return [mixed[0], Generation("", -1.0, 10, 20, decided=False)]

    prompts = ["a", "b", "c", "d"]
    similarities = np.concatenate([SIMILARITIES, SIMILARITIES[:, ::-1]])
    decided, elected = generate(Undecided(), prompts, similarities, 5, REPLUG)
    assert (decided.text, decided.decided) == ("tokens [0.25, 0.75]", True)
    assert elected == Generation("c", pytest.approx(math.log(0.75) - 1), 12, 22, decided=False)
    assert "recording: 1 of 2 answers by vote" in capsys.readouterr().out
