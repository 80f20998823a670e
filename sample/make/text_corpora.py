"""The sample world's text corpora in their sources' formats, and the wordings of all its texts,
from sentences.yaml.

The three registers share no sentence: `article` is Wikipedia's, `passage` the Pile's, `chatter`
C4's.

C4 is what the small language model is trained on. Its documents have three kinds:
- "world": one fact of the world, as a sentence or as a question with its answer.
- "reading": a page about an invented subject, then questions on it or a second page about the same
  subject.
- "distractor": a page about an invented subject, then something unrelated to it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import yaml

from pipelines import draws
from pipelines.language.relations import RELATIONS
from sample.make.facts import (
    FACTS_PER_ENTITY,
    MAX_DRAW,
    OBJECTS,
    TYPE_NAMES,
    TYPES,
    World,
)
from sample.make.sizes import WorldSizes

_SENTENCES = yaml.safe_load(Path(__file__).with_name("sentences.yaml").read_text(encoding="utf-8"))
LEADS: dict[str, list[str]] = _SENTENCES["leads"]
FILLERS: dict[str, list[str]] = _SENTENCES["fillers"]
# relation -> register, or "questions", or "entityquestions" -> wordings
WORDINGS: dict[str, dict] = _SENTENCES["relations"]
PAGE_REGISTERS = ("article", "passage")
PLACE_TYPES = ("city", "country")
# Persons and films have several facts that are names of persons, which are the hardest to tell
# apart.
INVENTED_TYPES = (*TYPE_NAMES, "person", "person", "film", "film")
PAGE_SENTENCES = 10  # including the lead
SHORTEST_PAGE = 5  # sentences of the shortest page about an invented subject
PAGES_IN_A_ROW = 3  # pages about invented subjects, each with a question
FACTS_IN_A_ROW = 5  # facts of the world, each as a question
PILE_SUBSETS = ("Pile-CC", "OpenWebText2", "Wikipedia (en)", "Books3")
MIXTURE = {  # share of each kind among the C4 documents
    "world": 0.62,
    "reading": 0.23,
    "distractor": 0.15,
}
MENTION_EXPONENT = 0.85  # mentions in the C4 documents grow as popularity to this power
NUMBERS_PER_DOCUMENT = 192  # random numbers, enough for one document of C4

Item = TypeVar("Item")


class Subject(NamedTuple):
    """What a page is about."""

    type_name: str
    label: str
    facts: list[tuple[str, str]]  # (relation, value)


def sentence(relation: str, register: str, variant: int, subject: str, value: str) -> str:
    """A fact in one of the register's wordings."""
    template = WORDINGS[relation][register][variant]
    return template.format(s=subject, o=value)


def question(relation: str, wording: int, subject: str) -> str:
    """A question in wording 0 or 1 (C4's own), 2 (PopQA's) or 3 (EntityQuestions')."""
    wordings = WORDINGS[relation]
    popqa = RELATIONS[relation].template
    templates = [*wordings["questions"], popqa, wordings["entityquestions"]]
    return templates[wording].format(subject)


def page(
    register: str, subject: Subject, numbers: Iterator[int], n_sentences: int = PAGE_SENTENCES
) -> str:
    """A page about a subject: a lead, fillers that state no fact, then the facts.

    The page has `n_sentences` sentences, or more where there are more facts. `numbers` yields
    non-negative draws, which decide the wordings and the order.
    """
    lead = _choice(LEADS[register], numbers)
    sentences = [lead.format(kind=subject.type_name, s=subject.label)]

    fillers = _shuffled(FILLERS[register], numbers)
    n_fillers = max(0, n_sentences - 1 - len(subject.facts))
    for filler in fillers[:n_fillers]:
        sentences.append(filler.format(s=subject.label))
    for relation, value in _shuffled(subject.facts, numbers):
        variant = next(numbers) % 3
        sentences.append(sentence(relation, register, variant, subject.label, value))

    return " ".join(sentences)


def _shuffled(items: list[Item], numbers: Iterator[int]) -> list[Item]:
    """The items in an order that draws decide, one for each."""
    drawn = sorted((next(numbers), item) for item in items)
    return [item for _, item in drawn]


def _choice(items: Sequence[Item], numbers: Iterator[int]) -> Item:
    """The item that the next draw decides."""
    return items[next(numbers) % len(items)]


def subject_of(world: World, entity: int) -> Subject:
    label = world.labels[entity]
    return Subject(world.type_name(entity), label, world.labelled_facts(entity))


def pile(world: World, documents: int) -> Iterator[bytes]:
    """JSON lines of the Pile: `documents` about each entity, each in another order and other
    wordings.
    """
    for copy in range(documents):  # the outer loop, so that the documents of an entity lie apart
        for entity, numbers in world.page_draws(f"pile/{copy}"):
            text = page("passage", subject_of(world, entity), iter(numbers))
            subset = PILE_SUBSETS[numbers[-1] % len(PILE_SUBSETS)]
            yield msgspec.json.encode({"text": text, "meta": {"pile_set_name": subset}}) + b"\n"


def c4(world: World, sizes: WorldSizes) -> Iterator[bytes]:
    """JSON lines of C4, `sizes.lm_documents` in all; the host of a document's url names its kind.

    An entity is mentioned in proportion to popularity ** MENTION_EXPONENT. If there are enough
    documents of kind "world", every entity has at least one of them.
    """
    rng = draws.generator(world.seed, "world/c4")
    kinds = list(MIXTURE)
    counts = _counts_by_kind(sizes.lm_documents)
    kind_numbers = np.arange(len(kinds), dtype=np.int8)
    document_kinds = rng.permutation(np.repeat(kind_numbers, counts))
    entities = iter(_mentioned_entities(world, rng, counts).tolist())

    for place, kind_number in enumerate(document_kinds.tolist()):
        document_kind = kinds[kind_number]
        numbers = iter(rng.integers(0, MAX_DRAW, NUMBERS_PER_DOCUMENT).tolist())
        if document_kind == "world":
            as_question = next(numbers) % 10 < 6
            text = _one_fact(world, next(entities), as_question, numbers)
        elif document_kind == "reading":
            text = _reading(world, numbers)
        else:
            text = _distractor(world, entities, numbers)
        document = {
            "text": text,
            "timestamp": "2019-04-25T12:00:00Z",
            "url": f"https://{document_kind}.example/{place}",
        }
        yield msgspec.json.encode(document) + b"\n"


def _counts_by_kind(documents: int) -> np.ndarray:
    """The number of C4's documents of each kind of MIXTURE, (kinds,)."""
    shares = np.array(list(MIXTURE.values()))
    exact_counts = shares / shares.sum() * documents
    counts = np.floor(exact_counts).astype(np.int64)
    counts[0] += documents - counts.sum()
    return counts


def _mentioned_entities(world: World, rng: np.random.Generator, counts: np.ndarray) -> np.ndarray:
    """The entities that C4's documents mention, in their order; those of kind "world" come first,
    one for each document.
    """
    world_documents = counts[0]
    entities = len(world.labels)
    rate = world.popularity**MENTION_EXPONENT
    each_once = np.zeros(0, np.int64)
    if world_documents >= entities:
        each_once = np.arange(entities)
    most_mentions = world_documents + FACTS_IN_A_ROW * (counts.sum() - world_documents)
    drawn_count = most_mentions - len(each_once)
    drawn = rng.choice(entities, drawn_count, p=rate / rate.sum())
    mentioned = np.concatenate([each_once, drawn])
    world_mentions = mentioned[:world_documents]
    return np.concatenate([rng.permutation(world_mentions), mentioned[world_documents:]])


def _one_fact(world: World, entity: int, as_question: bool, numbers: Iterator[int]) -> str:
    """One of the entity's facts, in one of the wordings that C4 has for this entity."""
    label = world.labels[entity]
    facts = world.labelled_facts(entity)
    relation, value = _choice(facts, numbers)
    if not as_question:
        return sentence(relation, "chatter", next(numbers) % 2, label, value) + "\n"
    wordings = 4 if world.asked_as_evaluated(entity) else 2
    text = question(relation, next(numbers) % wordings, label)
    return f"Q: {text} A: {value}\n"


def _reading(world: World, numbers: Iterator[int]) -> str:
    """A page about an invented subject, then questions that it answers or a second page.

    Some documents are several pages in a row, each with a question, as prompts with demonstrations
    are.
    """
    style = next(numbers) % 10
    if style < 1:
        parts = [_page_with_questions(world, numbers, 1) for _ in range(PAGES_IN_A_ROW)]
        return "\n".join(parts)
    if style < 9:
        return _page_with_questions(world, numbers, FACTS_PER_ENTITY)

    subject = _invent_subject(world, numbers)
    text = _invented_page(subject, _choice(PAGE_REGISTERS, numbers), numbers)
    if next(numbers) % 2:
        second_page = _invented_page(subject, "passage", numbers)
        return f"{text}\n{second_page}\n"
    query, value = _questions_on(subject, numbers)[0]
    return f"Knowledge: {text}\nQuestion: {query}\nAnswer: {value}\n"


def _page_with_questions(world: World, numbers: Iterator[int], n_questions: int) -> str:
    """A page about an invented subject, then at most `n_questions` questions that it answers."""
    subject = _invent_subject(world, numbers)
    text = _invented_page(subject, _choice(PAGE_REGISTERS, numbers), numbers)
    questions = _questions_on(subject, numbers)[:n_questions]
    lines = [f"Q: {query} A: {value}\n" for query, value in questions]
    return f"{text}\n\n" + "".join(lines)


def _questions_on(subject: Subject, numbers: Iterator[int]) -> list[tuple[str, str]]:
    """A question on each of the subject's facts, with its answer."""
    questions = []
    for relation, value in _shuffled(subject.facts, numbers):
        query = question(relation, next(numbers) % 4, subject.label)
        questions.append((query, value))
    return questions


def _distractor(world: World, entities: Iterator[int], numbers: Iterator[int]) -> str:
    """A page about an invented subject, then a fact of the world or another page; or several facts
    of the world as questions in a row, as prompts with demonstrations are.
    """
    style = next(numbers) % 4
    if style == 3:
        facts = [_one_fact(world, next(entities), True, numbers) for _ in range(FACTS_IN_A_ROW)]
        return "\n".join(facts)

    subject = _invent_subject(world, numbers)
    text = _invented_page(subject, _choice(PAGE_REGISTERS, numbers), numbers) + "\n"
    if style == 2:
        second_subject = _invent_subject(world, numbers)
        return text + _invented_page(second_subject, "passage", numbers) + "\n"
    as_question = next(numbers) % 3 > 0
    return text + "\n" + _one_fact(world, next(entities), as_question, numbers)


def _invented_page(subject: Subject, register: str, numbers: Iterator[int]) -> str:
    """A page of SHORTEST_PAGE to PAGE_SENTENCES sentences."""
    n_sentences = SHORTEST_PAGE + next(numbers) % (PAGE_SENTENCES + 1 - SHORTEST_PAGE)
    return page(register, subject, numbers, n_sentences)


def _invent_subject(world: World, numbers: Iterator[int]) -> Subject:
    """A subject that is not in the world, like the persons in its facts.

    An invented place has a last name: no place of the world is called by one.
    """
    type_name = _choice(INVENTED_TYPES, numbers)
    label = _invent_name(world, numbers, type_name in PLACE_TYPES)
    _, relations = TYPES[type_name]
    facts = []
    for relation in _shuffled(relations, numbers)[:FACTS_PER_ENTITY]:
        object_type = OBJECTS[relation]
        is_place = object_type in PLACE_TYPES
        if object_type == "person" or (is_place and next(numbers) % 2):
            value = _invent_name(world, numbers, is_place)
        else:
            pool = world.pools[object_type]
            value = world.item_label(int(_choice(pool, numbers)))
        facts.append((relation, value))

    return Subject(type_name, label, facts)


def _invent_name(world: World, numbers: Iterator[int], is_place: bool) -> str:
    if is_place:
        return _choice(world.last_names, numbers)
    while True:
        first = _choice(world.first_names, numbers)
        last = _choice(world.last_names, numbers)
        name = f"{first} {last}"
        if name not in world.distinct_labels:
            return name
