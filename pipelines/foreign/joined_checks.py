"""What speaks against a join: texts that are gold answers or prompts, rows of other subjects."""

from collections.abc import Sequence

from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import folded
from pipelines.foreign.join_predictions import Match, QuestionKeys, told_by
from pipelines.foreign.prediction_files import Predictions

ENOUGH_ROWS = 20  # that no model answers with nothing but gold answers


def check_joined(predictions: Predictions, asked: QuestionKeys, match: Match) -> None:
    """Refuse predictions that are gold answers, or most of which are of another subject or
    prompts.
    """
    for name, (theirs, ours) in told_by(predictions, asked).items():
        filled = [(row, place) for row, place in match.pairs if ours[row] and theirs[place]]
        differing = [row for row, place in filled if ours[row] != theirs[place]]
        if 2 * len(differing) > len(filled):
            first = predictions.shown_rows(differing[:1])
            raise LongtailError(
                f"{predictions.path}: {len(differing):,} rows, joined by {match.by}, have another "
                f"{name} than their question, as {first}; drop what joins them, and bring ids or "
                "questions of this set"
            )

    if predictions.texts is not None:
        texts = [folded(predictions.texts[row]) for row in match.rows]
        _check_no_golds(predictions, asked, match, texts)
        if not predictions.is_cut and asked.questions:
            _check_no_prompts(predictions, asked, match, texts)


def _check_no_golds(
    predictions: Predictions, asked: QuestionKeys, match: Match, texts: Sequence[str]
) -> None:
    """Raise LongtailError where all texts are gold answers of their question."""
    pairs = zip(texts, match.questions, strict=True)
    are_golds = all(text in asked.answer_sets[place] for text, place in pairs)
    if len(texts) >= ENOUGH_ROWS and are_golds:
        raise LongtailError(
            f"{predictions.path}: its column {predictions.names['prediction']} holds the gold "
            "answers, expected what a model said; call that column prediction"
        )


def _check_no_prompts(
    predictions: Predictions, asked: QuestionKeys, match: Match, texts: Sequence[str]
) -> None:
    """Raise LongtailError where most texts hold their question."""
    n_prompts = 0
    for text, place in zip(texts, match.questions, strict=True):
        question = folded(asked.questions[place])
        n_prompts += " " in question and question in text

    if 2 * n_prompts > len(texts):
        raise LongtailError(
            f"{predictions.path}: {n_prompts:,} of {len(texts):,} predictions hold their question, "
            "expected what was said alone, not the prompt; --answer-pattern '(?i)answer:(.*)' "
            "judges what follows alone, '(.*)' all of the text"
        )
