"""Questions that can be answered without knowing the fact (PopQA, section 4 and appendix C.1).

An answer may stand in the question: canton of Marseille-Belsunce has the capital Marseille. Or it
may be the one that most questions of the relation have: red, of colours.
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

    # str: the answer that most other subjects of the relation accept, "" if there is none
    usual: np.ndarray
    named: np.ndarray  # 1 or 0: an acceptable answer stands in the question, as whole words
    majority: np.ndarray  # 1 or 0: the usual answer is right by the published substring rule
    majority_word: np.ndarray  # 1 or 0: the usual answer is right by whole words

    @property
    def guessable(self) -> np.ndarray:
        """1 or 0: an acceptable answer stands in the question, or the usual answer is right by
        whole words.
        """
        return np.maximum(self.named, self.majority_word)


def read_guesses(questions: Path, ids: np.ndarray, language: Language = ENGLISH) -> Guesses:
    """The guesses for these ids of a question set; usual answers are counted over the whole set."""
    query = """SELECT question_id, question, relation,
            coalesce(CAST(s_uri AS VARCHAR), subj, question_id),
            coalesce(obj, possible_answers[1], ''), coalesce(possible_answers, [])
        FROM (SELECT * FROM questions UNION ALL BY NAME SELECT NULL::VARCHAR AS obj WHERE false)
        ORDER BY question_id"""
    rows = database.ask(query, questions=questions).fetchall()
    known_ids, texts, relations, subjects, labels, answers = zip(*rows, strict=True)
    usual = usual_answers(relations, subjects, labels, answers)

    places = np.searchsorted(known_ids, ids.astype(str)).tolist()
    guesses = [usual[place] for place in places]
    named = [matching.word(texts[place], answers[place], language) for place in places]
    majority = [matching.substring(usual[place], answers[place]) for place in places]
    majority_word = [matching.word(usual[place], answers[place], language) for place in places]
    return Guesses(
        usual=np.array(guesses, object),
        named=np.array(named, float),
        majority=np.array(majority, float),
        majority_word=np.array(majority_word, float),
    )


def usual_answers(
    relations: Sequence[str],
    subjects: Sequence[str],
    labels: Sequence[str],
    answers: Sequence[Sequence[str]],
) -> list[str]:
    """For each question the label that most other subjects of its relation accept as an answer, ""
    if none does.

    So a question has no say in its own guess. Of equally frequent labels the first by the alphabet
    is chosen.
    """
    labels_of: dict[str, set] = defaultdict(set)
    accepted: dict[tuple[str, str], set] = defaultdict(set)
    for relation, subject, label, names in zip(relations, subjects, labels, answers, strict=True):
        labels_of[relation].add(label)
        accepted[relation, subject].update(names)

    counts_of: dict[str, Counter] = defaultdict(Counter)
    for (relation, _), accepted_names in accepted.items():
        counts_of[relation].update(accepted_names & labels_of[relation])
    ranked_of = {}
    for relation, counts in counts_of.items():
        alphabetical = sorted(counts)
        ranked_of[relation] = sorted(alphabetical, key=counts.__getitem__, reverse=True)

    usual = []
    for relation, subject in zip(relations, subjects, strict=True):
        accepted_here = accepted[relation, subject]
        usual.append(_usual_answer(accepted_here, counts_of[relation], ranked_of[relation]))
    return usual


def _usual_answer(accepted: set[str], counts: Counter, ranked: Sequence[str]) -> str:
    """The label with the most votes of other subjects, "" without a vote.

    `counts` are the votes of all subjects, `ranked` the labels by them, most first. This subject
    votes for the labels that it accepts, so one of these may draw level with the first other one.
    """
    usual = ""
    most_votes = 0
    for label in ranked:
        is_own = label in accepted
        votes = counts[label] - is_own
        if votes > most_votes or (votes == most_votes and label < usual):
            usual = label
            most_votes = votes
        if not is_own:
            break
    return usual
