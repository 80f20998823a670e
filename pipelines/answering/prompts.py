"""Question prompts and their demonstrations, drawn by a hash of (seed, question id) (PopQA, section 4, appendix B)."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import draws
from pipelines.language.language import ENGLISH, Language
from pipelines.lm.language_model import Prompt


@dataclass(frozen=True)
class Questions:
    """The columns of a question set, in the order of question_id. A question is known by its position."""

    ids: list[str]
    relations: np.ndarray  # (n,) str
    texts: list[str]
    answers: list[list[str]]
    subjects: Sequence[str | None] = ()  # `demonstrations` needs none of these three
    pages: Sequence[str | None] = ()  # title of the subject's Wikipedia page
    shown: Sequence[str] = ()  # the answer that a demonstration shows


class Sent(NamedTuple):
    """What a LM is asked: k prompts in a row for each question.

    Similarities (questions, k) weigh an ensemble's documents; None stands for one prompt per question.
    """

    prompts: list[Prompt]
    similarities: np.ndarray | None

    def length(self) -> int:
        """How many characters there are to read."""
        return sum(len(prompt.document) + len(prompt.context) for prompt in self.prompts)


def read_questions(table: pa.Table) -> Questions:
    """A question set. Demonstrations show the triple's object (PopQA), else the first answer."""
    columns = table.sort_by("question_id").to_pydict()
    ids, answers = columns["question_id"], columns["possible_answers"]
    pages = columns.get("s_wiki_title") or [None] * len(ids)
    shown = columns.get("obj") or [next(iter(of_question), "") for of_question in answers]
    relations = np.array(columns["relation"], dtype=object)
    return Questions(ids, relations, columns["question"], answers, columns["subj"], pages, shown)


def demonstrations(
    seed: int,
    dataset: str,
    questions: Questions,
    asked: Sequence[int],
    n_shots: int,
    *,
    common: bool = False,
) -> list[list[int]]:
    """Positions of each asked question's demonstrations among `questions`, in the order they are shown.

    PopQA shows one question of each other relation, at most `n_shots`; other sets show any `n_shots` questions, of
    whatever relation. They are drawn by a hash of (seed, question id), so neither resuming nor sharding changes a
    prompt. With `common` they are drawn once for all questions, because the LM must write a passage for each
    demonstration. A demonstration never has the tested question's text.
    """
    relations, times = np.unique(questions.relations) if n_shots else (), Counter(questions.texts)
    rows = {relation: np.flatnonzero(questions.relations == relation) for relation in relations}

    def one_per_relation(position: int, key: str) -> list[int]:
        others = [relation for relation in rows if relation != questions.relations[position]]
        others.sort(
            key=lambda relation: (draws.uniform(seed, "shot order", f"{key}|{relation}"), relation)
        )
        return [
            int(
                rows[relation][
                    int(draws.uniform(seed, "shot", f"{key}|{relation}") * len(rows[relation]))
                ]
            )
            for relation in others[:n_shots]
        ]

    def of_any_relation(position: int, key: str) -> list[int]:
        text, size = questions.texts[position], len(questions.ids)
        chosen: list[int] = []
        for draw in range(
            40 * n_shots
        ):  # small sets: repeated draws may run into what is already chosen
            pick = int(draws.uniform(seed, "shot", f"{key}|{draw}") * size)
            if pick not in chosen and questions.texts[pick] != text:
                chosen.append(pick)
            if len(chosen) == min(n_shots, size - times[text]):
                break
        return chosen

    draw = one_per_relation if dataset == "popqa" else of_any_relation
    return [draw(position, "" if common else questions.ids[position]) for position in asked]


def question_prompt(
    question: str,
    passage: str | None,
    shots: Sequence[tuple[str, str, str | None]],
    language: Language = ENGLISH,
) -> Prompt:
    """Demonstrations, then the passage and a blank line if there is one, then, in English, `Q: <question> A:`.

    `shots` are (question, answer, passage or None), each shown the same way and followed by a blank line.
    """
    return compose(shown(shots, language), _passage(passage), language.asked(question))


def shown(shots: Sequence[tuple[str, str, str | None]], language: Language = ENGLISH) -> str:
    """Demonstrations as a prompt begins with them; `shots` are as in `question_prompt`."""
    return "".join(
        f"{_passage(passage)}{language.answered(*example)}\n\n" for *example, passage in shots
    )


def passage_prompt(question: str, language: Language = ENGLISH) -> Prompt:
    """The prompt for a passage that the LM writes (GenRead)."""
    return Prompt(context=language.prompt.passage.format(question=question))


def passage_left(
    passage: str, question: str, prompt: Prompt, seen: Prompt, language: Language = ENGLISH
) -> str:
    """The part of the passage that the LM has `seen` of a `question_prompt`."""
    if prompt.document:
        return seen.document[: len(passage)]
    begins = len(prompt.context) - len(f"{passage}\n\n{language.asked(question)}")
    return passage[max(0, len(prompt.context) - len(seen.context) - begins) :]


def compose(shots: str, document: str, question: str) -> Prompt:
    """Demonstrations, document and question as one prompt.

    Without demonstrations the document is the prompt's document, which is never cut at its beginning. With
    demonstrations it stands next to its question in the context. If room is short, the context loses its far end first:
    the demonstrations.
    """
    return (
        Prompt(context=shots + document + question)
        if shots
        else Prompt(context=question, document=document)
    )


def prompt_hash(*prompts: Prompt) -> str:
    """16 hex digits that tell two prompts, or two ensembles of them, apart."""
    texts = "\x1e".join(f"{prompt.document}\x1f{prompt.context}" for prompt in prompts)
    return hashlib.blake2b(texts.encode(), digest_size=8).hexdigest()


def _passage(text: str | None) -> str:
    return "" if text is None else f"{text}\n\n"
