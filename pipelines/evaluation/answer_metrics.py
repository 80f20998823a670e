"""What other systems report of answers, beside whether they are right: exact match and token F1 by
SQuAD's rules, and abstentions.

They follow from the texts of an answer and of the gold answers, so no file of answers stores them.
"""

from collections.abc import Sequence

import numpy as np

from pipelines.language.language import ENGLISH, Language
from pipelines.language.refusals import abstains
from pipelines.questions import matching

SHARES = ("exact", "abstained")  # of the metrics, those that are true or false
ANSWER_METRICS = ("exact", "f1", "abstained")


def measure(
    predictions: Sequence[str | None],
    golds: Sequence[Sequence[str]],
    right: np.ndarray,
    language: Language = ENGLISH,
) -> dict[str, np.ndarray]:
    """The ANSWER_METRICS of answers with these texts, each (n,) float, NaN where there is no text.

    `golds` has the gold answers of each question, and `right`, (n,), is 1 where an answer is right
    by the published rule. An answer abstains if it refuses and is not right; the published rule
    takes it for wrong.
    """
    measured = {name: np.full(len(predictions), np.nan) for name in ANSWER_METRICS}
    for place, prediction in enumerate(predictions):
        if prediction is None:
            continue
        answers = golds[place]
        refuses = right[place] != 1 and abstains(prediction)
        measured["exact"][place] = matching.exact(prediction, answers, language)
        measured["f1"][place] = matching.token_f1(prediction, answers, language)
        measured["abstained"][place] = refuses
    return measured
