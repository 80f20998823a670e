"""Knowledge or memorised questions? Closed-book accuracy by whether training asked about the subject as evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines import draws
from pipelines.evaluation.accuracy import TAIL, Answers, both, correlations, gain
from pipelines.intervals import Interval

if TYPE_CHECKING:
    from pipelines.evaluation.analyse import AnswersOf

TABLES = {
    "halves": {"lm": str, "subjects": str, "questions": int}
    | dict.fromkeys(("substring", "word", "correlation", "tail_gain"), Interval)
}


def of_answers(of: AnswersOf) -> dict[str, list[dict]]:
    """The table halves, of this run's own models on the first question set of the sample's world."""
    first = of.dataset == of.params.parts.answered[0]
    if not (first and of.params.fetch.source == "world" and of.lm in of.params.lms):
        return {}
    return {"halves": compare_halves(of.answers, *of.draw)}


def compare_halves(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Closed-book accuracy on two halves of the offline world's subjects, to tell knowledge from memorised questions.

    The language model's training text asks about one half in the evaluation's wording, about the other never. The draw
    is that of world.facts.World.asked_as_evaluated.
    """
    if not {"closed_book", "dense"} <= set(answers.by_method):
        return []
    qids = [str(subject).rsplit("/", 1)[-1] for subject in answers.subjects]
    asked = draws.uniforms(seed, "world/wording", qids) < 0.5
    groups = {"asked there in the evaluation's wording": asked, "never asked in it": ~asked}
    correlation = correlations(answers, "closed_book", groups, seed, resamples)
    tail = {name: (gain(answers, "dense"), half & (answers.ranks < TAIL)) for name, half in groups.items()}
    gains = answers.means(tail, seed, resamples)
    return [
        {"subjects": name, **both(answers.by_method["closed_book"], half)}
        | {"correlation": correlation[name], "tail_gain": gains[name]}
        for name, half in groups.items()
    ]


def report_entries() -> list:
    """Knowledge or memorised questions?"""
    from pipelines.report.entries import Drawn, Entry, Shown
    from pipelines.report.figures import bars
    from pipelines.report.page import Percent, show

    def halves(inputs):
        return [row | {"series": "closed_book"} for row in inputs.rows("halves")]

    def says(inputs, rule):
        shares = (
            f"{show(Percent(row[rule]))} % of the questions on subjects {row['subjects']}" for row in halves(inputs)
        )
        return f"Closed-book answers are right on {' and on '.join(shares)}."

    parts = [
        Drawn(
            bars, "halves", halves, "subjects", "substring",
            "Closed-book accuracy by what the training text asked about the subject.", {"y": "accuracy, %"},
        ),
        "The sample's language model was trained on text that asks about half of the world's entities in the wording "
        "of the evaluation, and about the other half only in other wordings. If both halves have similar figures, "
        "closed-book answers are recalled facts, not recalled questions.",
        Shown(
            "halves", halves, ["subjects", "questions", "substring", "word", "correlation", "tail_gain"],
            "By what the language model's training text asked about the subject. The last column is dense minus "
            "closed-book in the tail (substring), in points.",
            {"correlation": "correlation with log popularity"},
        ),
    ]  # fmt: skip
    return [Entry("halves", "Knowledge or memorised questions?", parts, says, after="accuracy")]
