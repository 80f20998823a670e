"""Questions that can be answered without knowing the fact (PopQA, section 4 and appendix C.1).

An answer may stand in the question: canton of Marseille-Belsunce has the capital Marseille. Or it may be the one that
most questions of the relation have: red, of colours.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.language.language import ENGLISH, Language
from pipelines.questions import matching
from pipelines.storage import database


@dataclass(frozen=True)
class Guesses:
    """What can be guessed of each question; arrays (n,)."""

    usual: (
        np.ndarray
    )  # str: the answer that most other subjects of the relation accept, "" if there is none
    named: np.ndarray  # 1 or 0: an acceptable answer stands in the question, as whole words
    majority: np.ndarray  # 1 or 0: the usual answer is right by the published substring rule
    majority_word: np.ndarray  # 1 or 0: the usual answer is right by whole words

    @property
    def guessable(self) -> np.ndarray:
        """1 or 0: an acceptable answer stands in the question, or the usual answer is right by whole words."""
        return np.maximum(self.named, self.majority_word)


def read_guesses(questions: Path, ids: np.ndarray, language: Language = ENGLISH) -> Guesses:
    """The guesses for these ids of a question set; usual answers are counted over the whole set."""
    query = """SELECT question_id, question, relation, coalesce(CAST(s_uri AS VARCHAR), subj, question_id),
            coalesce(obj, possible_answers[1], ''), coalesce(possible_answers, [])
        FROM (SELECT * FROM questions UNION ALL BY NAME SELECT NULL::VARCHAR AS obj WHERE false) ORDER BY question_id"""
    known, texts, *facts = zip(*database.ask(query, questions=questions).fetchall(), strict=True)
    usual, answers = usual_answers(*facts), facts[-1]
    asked = [
        (usual[place], texts[place], answers[place])
        for place in np.searchsorted(known, ids.astype(str)).tolist()
    ]
    return Guesses(
        np.array([answer for answer, _, _ in asked], object),
        np.array([matching.word(question, names, language) for _, question, names in asked], float),
        np.array([matching.substring(answer, names) for answer, _, names in asked], float),
        np.array([matching.word(answer, names, language) for answer, _, names in asked], float),
    )


def usual_answers(
    relations: Sequence[str],
    subjects: Sequence[str],
    labels: Sequence[str],
    answers: Sequence[Sequence[str]],
) -> list[str]:
    """For each question the label that most other subjects of its relation accept as an answer, "" if none does.

    So a question has no say in its own guess. Of equally frequent labels the first by the alphabet is chosen.
    """
    labelled: dict[str, set] = defaultdict(set)
    accepted: dict[tuple[str, str], set] = defaultdict(set)
    for relation, subject, label, names in zip(relations, subjects, labels, answers, strict=True):
        labelled[relation].add(label)
        accepted[relation, subject].update(names)
    counts: dict[str, Counter] = defaultdict(Counter)
    for (relation, _), names in accepted.items():
        counts[relation].update(names & labelled[relation])
    ranked = {
        relation: sorted(of, key=lambda label: (-of[label], label))
        for relation, of in counts.items()
    }
    found = []
    for relation, subject in zip(relations, subjects, strict=True):
        own, of, best = accepted[relation, subject], counts[relation], ranked[relation]
        others = next((label for label in best if label not in own), "")
        label = max([*best[:1], others], key=lambda label: of[label] - (label in own))
        found.append(label if of[label] > (label in own) else "")
    return found
