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
        _check_texts(predictions, predictions.texts, asked, match)


def _check_texts(
    predictions: Predictions, texts: Sequence[str], asked: QuestionKeys, match: Match
) -> None:
    """Refuse texts all of which are gold answers of their question, or most of which hold it."""
    n_texts = len(match.rows)
    n_golds = 0
    n_prompts = 0
    for row, place in match.pairs:
        text = folded(texts[row])
        n_golds += text in asked.answer_sets[place]
        if asked.questions:
            question = folded(asked.questions[place])
            n_prompts += " " in question and question in text

    if n_texts >= ENOUGH_ROWS and n_golds == n_texts:
        raise LongtailError(
            f"{predictions.path}: its column {predictions.names['prediction']} holds the gold "
            "answers, expected what a model said; call that column prediction"
        )
    if 2 * n_prompts > n_texts and not predictions.is_cut:
        raise LongtailError(
            f"{predictions.path}: {n_prompts:,} of {n_texts:,} predictions hold their question, "
            "expected what was said alone, not the prompt; --answer-pattern '(?i)answer:(.*)' "
            "judges what follows alone, '(.*)' all of the text"
        )
