"""What speaks against predictions that have been joined with their questions: a wrong column, or wrong ids."""

from pipelines.errors import LongtailError
from pipelines.questions.join_predictions import ENOUGH, Asked, Match, shown_rows, told_by
from pipelines.sources.cell_values import folded
from pipelines.sources.prediction_files import Predictions


def check_joined(predictions: Predictions, asked: Asked, match: Match) -> None:
    """Raise LongtailError where predictions are all gold answers, or most of them hold their question.

    Also where most rows have another subject or relation than their question, as a column of the file says.
    """
    path, pairs = predictions.path, list(match.pairs)
    for name, (theirs, ours) in told_by(predictions, asked).items():
        filled = [(row, place) for row, place in pairs if ours[row] and theirs[place]]
        other = [row for row, place in filled if ours[row] != theirs[place]]
        if 2 * len(other) > len(filled):
            raise LongtailError(
                f"{path}: {len(other):,} rows, joined by {match.by}, have another {name} than their question, as "
                f"{shown_rows(predictions, other[:1])}; drop what joins them, and bring ids or questions of this set"
            )
    if predictions.texts is None:
        return
    said = [(folded(predictions.texts[row]), place) for row, place in pairs]
    if len(said) >= ENOUGH and all(text in asked.answer_sets[place] for text, place in said):
        raise LongtailError(
            f"{path}: its column {predictions.names['prediction']} holds the gold answers, expected what a model said; "
            "call that column prediction"
        )
    asks = list(map(folded, asked.questions))
    quoting = sum(" " in asks[place] and asks[place] in text for text, place in said) if asked.questions else 0
    if 2 * quoting > len(said) and not predictions.is_cut:
        raise LongtailError(
            f"{path}: {quoting:,} of {len(said):,} predictions hold their question, expected what was said alone, not "
            "the prompt; --answer-pattern '(?i)answer:(.*)' judges what follows alone, '(.*)' all of the text"
        )
