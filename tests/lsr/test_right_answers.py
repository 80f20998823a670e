"""LSR by whether the language model's own answer is right, or whether the document holds an answer:
no log-probability is asked for, and equal rewards are no lesson."""

import completions_server
import numpy as np
import pytest
from completions_server import Completions
from lsr_training import change, steps_from_now, weights
from small_project import TUNED, UNTUNED

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Generation
from pipelines.lm.local import LocalModel
from pipelines.lsr import objective, rounds, scores, teacher, train_lsr, training_queries
from pipelines.lsr.rounds import Refresher, ScoredCandidates, TrainingFiles
from pipelines.lsr.trainer import Trainer
from pipelines.params import params_file
from pipelines.retrieval import documents
from pipelines.retrieval.encoder import EXACT, Encoder

RIGHT = {"likelihood": "answer_right", "queries": "qa", "lm_queries": 0}


@pytest.fixture
def prompts(project, monkeypatch):
    """The prompts that the local model answered: rightly where a document speaks of a field,
    "Velmont" elsewhere.
    """
    answered = []

    def generate(self, prompts, max_tokens, stop="\n"):
        answered.extend(prompts)
        said = [
            " It is Mira Tosh, of Velm." if "Field" in prompt.document else " Velmont"
            for prompt in prompts
        ]
        return [Generation(text, float("nan"), 0) for text in said]

    monkeypatch.setattr(LocalModel, "generate", generate)
    change(project, **RIGHT)
    return answered


def opened(project):
    corpora = training_queries.read_training_queries(project.params, "dense")
    schedule = training_queries.Schedule(corpora, project.params.lsr, seed=0)
    return Refresher(project.params, "dense", corpora, schedule, TrainingFiles("train_lsr", "key"))


def test_the_reward_is_1_where_the_answer_is_right(project, prompts):
    """Gains are over the answer without a document."""
    refresher = opened(project)
    rows, positions = np.arange(6), np.arange(30).reshape(6, 5)
    scored = refresher.score(0, rows, positions)
    texts = documents.read_documents(refresher.corpora[0].docs, positions).filled("{text}")
    holds = np.array([["Field" in text for text in of_one] for of_one in texts]).astype(float)
    assert 0 < holds.sum() < holds.size
    assert scored.targets.tolist() == scored.gains.tolist() == holds.tolist(), "Velmont is not Velm"
    assert len(prompts) == 36
    refresher.score(0, rows, positions)
    assert len(prompts) == 36


def test_killed_while_it_answers_no_prompt_is_answered_twice(project, prompts, monkeypatch):
    monkeypatch.setattr(scores, "ANSWERS_AT_ONCE", 7)
    whole, calls = LocalModel.generate, iter(range(2))

    def killed(*arguments):
        next(calls)
        return whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(LocalModel, "generate", killed)
        with pytest.raises(StopIteration):
            train_lsr.train_retriever(project.params, "dense")
    assert len(prompts) == 14
    metrics = train_lsr.train_retriever(project.params, "dense")
    assert len(prompts) == len(set(prompts)) == metrics["scored_wikipedia"]


def test_a_chat_without_log_probabilities_teaches(project, monkeypatch):
    """The model card names the teacher."""
    folder, converse = (
        project.folder / "data/models/lm" / project.params.lms[0],
        Completions.converse,
    )

    def said(server, body):
        server.said = (
            "Velm or Mira Tosh" if "Field" in body["messages"][0]["content"] else "no idea"
        )
        return converse(server, body)

    monkeypatch.setattr(Completions, "converse", said)
    with completions_server.running(folder) as server:
        server.logprobs = False
        served = completions_server.settings(server.url, None, chat=True)
        project.params.lm = {project.params.lms[0]: served}
        change(project, queries="qa")
        with pytest.raises(
            LongtailError, match="a chat interface shows no log-probabilities of prompts"
        ):
            train_lsr.train_retriever(project.params, "dense")
        change(
            project, **RIGHT, steps=20, refresh_steps=20, learning_rate=5e-3, keep="last", beta=0.1
        )
        metrics = train_lsr.train_retriever(project.params, "dense")
        answered = [
            body
            for body in server.requests
            if body["max_tokens"] == project.params.answer.new_tokens
        ]
        assert len(answered) == metrics["scored_wikipedia"]
        TUNED.rename("tuned")
        steps_from_now(monkeypatch, lambda number: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_lsr.train_retriever(project.params, "dense")
        again = [
            body
            for body in server.requests
            if body["max_tokens"] == project.params.answer.new_tokens
        ]
        assert again == answered, "kept answers are not asked for again"
    assert np.mean(metrics["kl"][-5:]) < 0.7 * np.mean(metrics["kl"][:5])
    card = (project.folder / "tuned/README.md").read_text()
    assert "likelihood: answer_right" in card
    assert (
        "Tuned by REPLUG LSR to tiny, by whether its own answer after a document is right." in card
    )


def test_documents_teach_by_the_answers_that_they_hold(project, monkeypatch, capsys):
    """No language model is opened."""
    monkeypatch.setattr(rounds, "lm_at_work", lambda *_, **__: 1 / 0)
    change(project, **RIGHT | {"likelihood": "holds_answer", "beta": 0.1, "top_k": 20})
    change(project, steps=20, refresh_steps=20, learning_rate=5e-3, keep="last")
    refresher = opened(project)
    rows = np.arange(6)
    positions = np.arange(30).reshape(6, 5)
    scored = refresher.score(0, rows, positions)
    assert 0 < scored.targets.sum() < scored.targets.size
    assert (scored.targets == refresher.hold_answers(0, rows, positions)).all()

    metrics = train_lsr.train_retriever(project.params, "dense")
    assert np.mean(metrics["kl"][-5:]) < 0.7 * np.mean(metrics["kl"][:5])
    assert not [name for name in metrics if name.startswith("scored")]
    assert "warning" not in capsys.readouterr().out
    card = (TUNED / "README.md").read_text()
    assert "Tuned by whether a document holds an answer, with the loss of REPLUG LSR." in card


@pytest.fixture
def trainer(project):
    """A function that makes a Trainer of questions with given rewards (6, 5)."""

    def make(targets, **changes):
        change(project, **RIGHT, **changes)
        corpora = training_queries.read_training_queries(project.params, "dense")
        schedule = training_queries.Schedule(corpora, project.params.lsr, seed=0)
        encoder = Encoder.open(
            UNTUNED, project.params.retriever["dense"], project.params.compute, EXACT
        )
        made = Trainer(encoder, corpora, schedule, project.params.lsr, [0.1])
        made.start_round(
            [ScoredCandidates(np.arange(6), np.arange(30).reshape(6, 5), targets, targets)]
        )
        return made

    return make


def test_questions_whose_rewards_are_equal_move_nothing(trainer):
    targets = np.zeros((6, 5))
    made = trainer(targets, batch_size=6)
    before, step = weights(made.encoder), made.step(0)
    assert (step["uniform"], step["entropy_lm"]) == (1, 1)
    assert bool((weights(made.encoder) == before).all())
    targets[1], targets[2, 3], targets[4, :2] = 1, 1, 1
    made = trainer(targets, batch_size=6)
    step = made.step(0)
    assert step["uniform"] == pytest.approx(4 / 6)
    alone = trainer(targets, batch_size=6)
    alone.schedule.batch = lambda number: np.array([2, 4])
    assert step == pytest.approx(alone.step(0) | {"uniform": 4 / 6}, rel=1e-4)
    assert bool((weights(made.encoder) == weights(alone.encoder)).all())


def test_a_teacher_that_is_never_right_stops_the_training(project, prompts, monkeypatch, capsys):
    monkeypatch.setattr(
        LocalModel, "generate", lambda _, prompts, *__: [Generation("no", 0.0, 0)] * len(prompts)
    )
    with pytest.raises(
        LongtailError, match=r"uniform .*answer_right, .*right with all documents or with none; rai"
    ):
        train_lsr.train_retriever(project.params, "dense")
    assert "to the language model all documents of a query are equal" in capsys.readouterr().out


def test_the_look_counts_questions_that_teach_nothing(project, prompts):
    change(project, top_k=2)
    (row,) = teacher.look(opened(project), project.params)
    assert 0 < row["uniform"] < 1
    assert row["uniform"] * row["queries"] == pytest.approx(round(row["uniform"] * row["queries"]))
    assert row["entropy"] < 1
    assert not objective.informative(np.array([[1.0, 1.0], [0.0, 0.0]])).any()


@pytest.mark.parametrize("queries", ["lm", "mixed"])
@pytest.mark.parametrize("likelihood", ["answer_right", "holds_answer"])
def test_texts_have_no_right_answer(project, queries, likelihood):
    project.settings["lsr"] |= {"likelihood": likelihood, "queries": queries}
    with pytest.raises(
        LongtailError, match=rf"lsr\.queries .*should be qa with lsr\.likelihood: {likelihood}"
    ):
        params_file.parse(project.settings)
