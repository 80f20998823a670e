"""Question prompts and their demonstrations (PopQA, section 4, appendix B; REPLUG, sections 6.2 and
6.3).
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import catalogue, draws
from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language, read_language
from pipelines.lm.language_model import Prompt
from pipelines.storage import parquet
from pipelines.tables.questions import DEMONSTRATIONS

# Draws of a demonstration. In a small set repeated draws may run into what is drawn already.
DRAWS_PER_SHOT = 40

Example = tuple[str, str, str | None]  # of a demonstration: question, answer, passage if it has one


@dataclass(frozen=True)
class Questions:
    """The columns of a question set, in the order of question_id, and behind them those of its
    demonstrations.

    A question is known by its position.
    """

    ids: list[str]
    relations: np.ndarray  # (n,) str
    texts: list[str]
    answers: list[list[str]]
    subjects: Sequence[str | None] = ()  # `demonstrations` needs none of these three
    pages: Sequence[str | None] = ()  # title of the subject's Wikipedia page
    shown: Sequence[str] = ()  # the answer that a demonstration shows
    n_questions: int = 0  # what follows these are demonstrations

    def example(self, position: int, passage: str | None) -> Example:
        """A question as a demonstration, with its answer and with a passage or None."""
        return self.texts[position], self.shown[position], passage

    @cached_property
    def rows_of_relation(self) -> dict[str, np.ndarray]:
        """Relation -> positions of its questions; relations are sorted."""
        relations = np.unique(self.relations)
        return {relation: np.flatnonzero(self.relations == relation) for relation in relations}

    @cached_property
    def own_shots(self) -> dict[str, list[int]]:
        """Relation -> positions of its demonstrations, in their order."""
        shots: dict[str, list[int]] = {}
        for position in range(self.n_questions, len(self.ids)):
            shots.setdefault(self.relations[position], []).append(position)
        return shots

    @cached_property
    def count_of_text(self) -> Counter[str]:
        """Text -> how many questions have it."""
        return Counter(self.texts)


class PromptBatch(NamedTuple):
    """What an LM is asked: k prompts in a row for each question.

    Similarities (questions, k) weigh an ensemble's documents; None stands for one prompt per
    question.
    """

    prompts: list[Prompt]
    similarities: np.ndarray | None

    def length(self) -> int:
        """How many characters there are to read."""
        documents = sum(len(prompt.document) for prompt in self.prompts)
        contexts = sum(len(prompt.context) for prompt in self.prompts)
        return documents + contexts


def read_questions(table: pa.Table, demonstrations: pa.Table | None = None) -> Questions:
    """A question set. Demonstrations show the triple's object (PopQA), else the first answer."""
    table = table.sort_by("question_id")
    n_questions = table.num_rows
    if demonstrations is not None:
        table = pa.concat_tables([table, demonstrations], promote_options="default")
    columns = table.to_pydict()
    answers = columns["possible_answers"]
    shown = columns.get("obj")
    if shown is None:
        shown = [names[0] if names else "" for names in answers]
    return Questions(
        ids=columns["question_id"],
        relations=np.array(columns["relation"], dtype=object),
        texts=columns["question"],
        answers=answers,
        subjects=columns["subj"],
        pages=columns.get("s_wiki_title", [None] * len(answers)),
        shown=shown,
        n_questions=n_questions,
    )


def read_demonstrations(dataset: str, data: Path) -> pa.Table | None:
    """The demonstrations that a question set has of its own; None where they are drawn from it."""
    if catalogue.DATASETS[dataset].protocol.shots != "own":
        return None
    return parquet.read_parquet(data / "questions" / dataset / DEMONSTRATIONS.name)


@cache
def language_of(dataset: str, code: str) -> Language:
    """The run's language, with the words that a question set has around questions and passages."""
    return read_language(code).of_set(catalogue.DATASETS[dataset].protocol)


def demonstrations(
    seed: int,
    dataset: str,
    questions: Questions,
    asked: Sequence[int],
    n_shots: int,
    *,
    common: bool = False,
) -> list[list[int]]:
    """Positions of each asked question's demonstrations among `questions`, in the order they are
    shown.

    The question set's protocol says what is shown, at most `n_shots`. What is not the set's own is
    drawn by a hash of (seed, question id), so neither resuming nor sharding changes a prompt. With
    `common` they are drawn once for all questions, because the LM must write a passage for each
    demonstration. A demonstration never has the tested question's text. Raises LongtailError where
    a set that has demonstrations of its own has none.
    """
    if not n_shots:
        return [[] for _ in asked]
    kind = catalogue.DATASETS[dataset].protocol.shots
    if kind == "own" and not questions.own_shots:
        raise LongtailError(
            f"{dataset}: {n_shots} demonstrations are asked for, but there is none; name their "
            f"files under fetch.files (nq/train, triviaqa/train or mmlu/dev), or set "
            f"answer.sets.{dataset}.n_shots: 0"
        )
    shots = []
    for position in asked:
        key = "" if common else questions.ids[position]
        if kind == "own":
            shots.append(_first_of_its_own(questions, position, n_shots))
        elif kind == "each_relation":
            shots.append(_one_of_each_relation(seed, questions, position, key, n_shots))
        else:
            shots.append(_of_any_relation(seed, questions, position, key, n_shots))
    return shots


def _first_of_its_own(questions: Questions, position: int, n_shots: int) -> list[int]:
    """The first demonstrations of the tested question's relation that ask something else."""
    text = questions.texts[position].casefold()
    shots: list[int] = []
    for shot in questions.own_shots.get(questions.relations[position], []):
        if len(shots) == n_shots:
            break
        if questions.texts[shot].casefold() != text:
            shots.append(shot)
    return shots


def _one_of_each_relation(
    seed: int, questions: Questions, position: int, key: str, n_shots: int
) -> list[int]:
    """A question of each relation but the tested question's, at most `n_shots` relations."""
    relations = []
    for relation in questions.rows_of_relation:
        if relation != questions.relations[position]:
            order = draws.uniform(seed, "shot order", f"{key}|{relation}")
            relations.append((order, relation))

    shots = []
    for _, relation in sorted(relations)[:n_shots]:
        rows = questions.rows_of_relation[relation]
        draw = draws.uniform(seed, "shot", f"{key}|{relation}")
        drawn = int(draw * len(rows))
        shots.append(int(rows[drawn]))
    return shots


def _of_any_relation(
    seed: int, questions: Questions, position: int, key: str, n_shots: int
) -> list[int]:
    """Any questions with another text than the tested question's, at most as many as there are."""
    text = questions.texts[position]
    size = len(questions.ids)
    wanted = min(n_shots, size - questions.count_of_text[text])
    shots: list[int] = []
    for number in range(DRAWS_PER_SHOT * n_shots):
        draw = draws.uniform(seed, "shot", f"{key}|{number}")
        drawn = int(draw * size)
        if drawn not in shots and questions.texts[drawn] != text:
            shots.append(drawn)
        if len(shots) == wanted:
            break
    return shots


def question_prompt(
    question: str,
    passage: str | None,
    shots: Sequence[Example],
    language: Language = ENGLISH,
) -> Prompt:
    """Demonstrations, then the passage if there is one, then the question: for PopQA in English a
    blank line and `Q: <question> A:`.

    Each of `shots` is shown the same way and followed by a blank line.
    """
    return compose(shown(shots, language), language.retrieved(passage), language.asked(question))


def shown(shots: Sequence[Example], language: Language = ENGLISH) -> str:
    """Demonstrations as a prompt begins with them."""
    texts = []
    for question, answer, passage in shots:
        example = language.retrieved(passage) + language.answered(question, answer)
        texts.append(f"{example}\n\n")
    return "".join(texts)


def passage_prompt(question: str, language: Language = ENGLISH) -> Prompt:
    """The prompt for a passage that the LM writes (GenRead)."""
    return Prompt(context=language.prompt.passage.format(question=question))


def passage_left(
    passage: str, question: str, prompt: Prompt, seen: Prompt, language: Language = ENGLISH
) -> str:
    """The part of the passage that the LM has `seen` of a `question_prompt`."""
    before = language.prompt.retrieved.index("{passage}")  # characters
    if prompt.document:
        return seen.document[before : before + len(passage)]
    ending = language.retrieved(passage) + language.asked(question)
    begins = len(prompt.context) - len(ending) + before
    cut = len(prompt.context) - len(seen.context)
    return passage[max(0, cut - begins) :]


def compose(shots: str, document: str, question: str) -> Prompt:
    """Demonstrations, document and question as one prompt.

    Without demonstrations the document is the prompt's document, which is never cut at its
    beginning. With demonstrations it stands next to its question in the context. If room is short,
    the context loses its far end first: the demonstrations.
    """
    if shots:
        return Prompt(context=shots + document + question)
    return Prompt(context=question, document=document)


def prompt_hash(*prompts: Prompt) -> str:
    """16 hex digits that tell two prompts, or two ensembles of them, apart."""
    texts = [f"{prompt.document}\x1f{prompt.context}" for prompt in prompts]
    joined = "\x1e".join(texts)
    return hashlib.blake2b(joined.encode(), digest_size=8).hexdigest()
