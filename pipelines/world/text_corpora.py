"""The sample world's text corpora in their sources' formats, and the wordings of all its texts, from sentences.yaml.

The three registers share no sentence: `article` is Wikipedia's, `passage` the Pile's, `chatter` C4's.

C4 is what the small language model is trained on. Its documents have three kinds:
  world       one fact of the world, as a sentence or as a question with its answer
  reading     a page about an invented subject, then questions on it or a second page about the same subject
  distractor  a page about an invented subject, then something unrelated to it
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import yaml

from pipelines import draws
from pipelines.language.relations import RELATIONS
from pipelines.params import params
from pipelines.world.facts import FACTS, OBJECTS, TYPE_NAMES, TYPES, World

_texts = yaml.safe_load(Path(__file__).with_name("sentences.yaml").read_text(encoding="utf-8"))
LEADS: dict[str, list[str]] = _texts["leads"]
FILLERS: dict[str, list[str]] = _texts["fillers"]
WORDINGS: dict[str, dict] = _texts[
    "relations"
]  # relation -> register, or kind of question -> wordings
SENTENCES = 6  # on a page, including the lead
PILE_SUBSETS = ("Pile-CC", "OpenWebText2", "Wikipedia (en)", "Books3")
MIXTURE = {
    "world": 0.62,
    "reading": 0.23,
    "distractor": 0.15,
}  # share of each kind among the C4 documents
MENTION_EXPONENT = 0.85  # mentions in the C4 documents grow as popularity to this power
ASKED = 3  # questions on one page

WIKITEXT_ENTITIES = (
    90  # with two articles each, so that the training split tells about the test split's entities
)
TEST_SHARE = 1 / 6  # of the articles
RARE = 3  # as in WikiText: words that occur less often in the training split become <unk>
SENTENCE_END = re.compile(r"(?<=\.) ")
MARKS = re.compile(r"(?<=\w)([-,])(?=\w)|([.,()])")


def sentence(relation: str, register: str, variant: int, subject: str, value: str) -> str:
    """A fact in one of the register's wordings."""
    return WORDINGS[relation][register][variant].format(s=subject, o=value)


def question(relation: str, wording: int, subject: str) -> str:
    """A question in wording 0 or 1 (C4's own), 2 (PopQA's) or 3 (EntityQuestions')."""
    wordings = WORDINGS[relation]
    templates = (*wordings["questions"], RELATIONS[relation].template, wordings["entityquestions"])
    return templates[wording].format(subject)


def page(
    register: str, kind: str, subject: str, facts: list[tuple[str, str]], numbers: Iterator[int]
) -> str:
    """A page about a subject of type `kind`: a lead, fillers that state no fact, then the (relation, value) facts.

    The page has SENTENCES sentences. `numbers` yields non-negative draws, which decide the wordings and the order.
    """
    lead = LEADS[register][next(numbers) % len(LEADS[register])].format(kind=kind, s=subject)
    fillers = sorted(FILLERS[register], key=lambda filler: (next(numbers), filler))
    fillers = [filler.format(s=subject) for filler in fillers[: SENTENCES - 1 - len(facts)]]
    ordered = sorted(facts, key=lambda fact: (next(numbers), fact))
    stated = [
        sentence(relation, register, next(numbers) % 3, subject, value)
        for relation, value in ordered
    ]
    return " ".join([lead, *fillers, *stated])


def pile(world: World, documents: int) -> Iterator[bytes]:
    """JSON lines of the Pile: `documents` about each entity, each in another order and other wordings."""
    for copy in range(documents):  # the outer loop, so that the documents of an entity lie apart
        for entity, numbers in world.page_draws(f"pile/{copy}"):
            facts = world.labelled_facts(entity)
            body = page(
                "passage", world.type_name(entity), world.labels[entity], facts, iter(numbers)
            )
            subset = PILE_SUBSETS[numbers[-1] % len(PILE_SUBSETS)]
            yield msgspec.json.encode({"text": body, "meta": {"pile_set_name": subset}}) + b"\n"


def c4(world: World, sizes: params.World) -> Iterator[bytes]:
    """JSON lines of C4, `sizes.lm_documents` in all; the host of a document's url names its kind.

    An entity is mentioned in proportion to popularity ** MENTION_EXPONENT. If there are enough documents of kind
    "world", every entity has at least one of them.
    """
    rng = draws.generator(world.seed, "world/c4")
    shares = np.array(list(MIXTURE.values()))
    counts = np.floor(shares / shares.sum() * sizes.lm_documents).astype(np.int64)
    counts[0] += sizes.lm_documents - counts.sum()
    kinds = rng.permutation(np.repeat(np.arange(len(MIXTURE), dtype=np.int8), counts))
    rate = world.popularity**MENTION_EXPONENT
    each_once = np.arange(len(rate)) if counts[0] >= len(rate) else np.zeros(0, np.int64)
    repeated = rng.choice(len(rate), len(kinds) - len(each_once), p=rate / rate.sum())
    mixed = counts[0] - len(each_once)  # documents of kind "world" whose entity is drawn
    entities = np.concatenate(
        [rng.permutation(np.r_[each_once, repeated[:mixed]]), repeated[mixed:]]
    )
    next_entity, taken = iter(entities.tolist()), set(world.labels)
    for place, number in enumerate(kinds.tolist()):
        kind, numbers = [*MIXTURE][number], iter(rng.integers(0, 1 << 30, 96).tolist())
        if kind == "world":
            body = _one_fact(world, next(next_entity), next(numbers) % 10 < 6, numbers)
        elif kind == "reading":
            body = _reading(world, taken, numbers)
        else:
            register, form = ("article", "passage")[next(numbers) % 2], next(numbers) % 4
            body = page(register, *_invented_subject(world, taken, numbers), numbers) + "\n"
            if form < 2:
                body += "\n" + _one_fact(world, next(next_entity), next(numbers) % 3 > 0, numbers)
            elif form < 3:
                body += page("passage", *_invented_subject(world, taken, numbers), numbers) + "\n"
        document = {
            "text": body,
            "timestamp": "2019-04-25T12:00:00Z",
            "url": f"https://{kind}.example/{place}",
        }
        yield msgspec.json.encode(document) + b"\n"


def wikitext(world: World) -> dict[str, str]:
    """WikiText's training and test split, in its tokens: a mark within a word or a number is `@-@` or `@,@`.

    They have two articles about each of WIKITEXT_ENTITIES entities: on it and on its legacy.
    """
    splits: dict[str, list[list[str]]] = {"train": [], "test": []}
    names = [str(entity) for entity in range(len(world.labels))]
    for entity in draws.sample(world.seed, "world/wikitext", names, WIKITEXT_ENTITIES).tolist():
        label, kind, name = (
            world.labels[entity],
            world.type_name(entity),
            world.title(world.item(entity)),
        )
        for title, section in ((name, "Overview"), (f"Legacy of {name}", "Legacy")):
            numbers = (
                draws.generator(world.seed, "world/wikitext", title)
                .integers(0, 1 << 30, 24)
                .tolist()
            )
            body = page("article", kind, label, world.labelled_facts(entity), iter(numbers))
            lead, *rest = SENTENCE_END.split(body)
            read = f"{label} is a well-known {kind}, read about {world.views(world.item(entity)):,} times a month."
            lines = [
                "",
                f"= {title} =",
                "",
                f"{lead} {read}",
                "",
                f"= = {section} = =",
                "",
                " ".join(rest),
            ]
            is_test = draws.uniform(world.seed, "world/wikitext split", title) < TEST_SHARE
            marked = (
                MARKS.sub(lambda mark: f" @{mark[1]}@ " if mark[1] else f" {mark[2]} ", line)
                for line in lines
            )
            splits["test" if is_test else "train"] += map(str.split, marked)
    counts = Counter(word for words in splits["train"] for word in words)
    texts = {}
    for split, lines in splits.items():
        known = ([word if counts[word] >= RARE else "<unk>" for word in words] for words in lines)
        texts[split] = "".join(f" {' '.join(words)} \n" if words else " \n" for words in known)
    return texts


def _one_fact(world: World, entity: int, as_question: bool, numbers: Iterator[int]) -> str:
    """One of the entity's facts, in one of the wordings that C4 has for this entity."""
    facts, label = world.labelled_facts(entity), world.labels[entity]
    relation, value = facts[next(numbers) % len(facts)]
    if as_question:
        wording = next(numbers) % (4 if world.asked_as_evaluated(entity) else 2)
        return f"Q: {question(relation, wording, label)} A: {value}\n"
    return sentence(relation, "chatter", next(numbers) % 2, label, value) + "\n"


def _reading(world: World, taken: set[str], numbers: Iterator[int]) -> str:
    """A page about an invented subject, then questions that it answers or a second page."""
    kind, label, facts = _invented_subject(world, taken, numbers)
    style = next(numbers) % 10
    body = page(("article", "passage")[next(numbers) % 2], kind, label, facts, numbers)
    if style < 2:
        return f"{body}\n{page('passage', kind, label, facts, numbers)}\n"
    asked = sorted(facts, key=lambda fact: (next(numbers), fact))[:ASKED]
    answers = [(question(relation, next(numbers) % 4, label), value) for relation, value in asked]
    if style < 9:
        return f"{body}\n\n" + "".join(f"Q: {text} A: {value}\n" for text, value in answers)
    text, value = answers[0]
    return f"Knowledge: {body}\nQuestion: {text}\nAnswer: {value}\n"


def _invented_subject(
    world: World, taken: set[str], numbers: Iterator[int]
) -> tuple[str, str, list[tuple[str, str]]]:
    """Type, label and facts of a subject that is not in the world, like the persons in its facts.

    An invented place has a last name: no place of the world is called by one.
    """
    kind = TYPE_NAMES[next(numbers) % len(TYPE_NAMES)]
    label = _invented_name(world, taken, numbers, kind in ("city", "country"))
    facts = []
    for relation in sorted(TYPES[kind][1], key=lambda relation: (next(numbers), relation))[:FACTS]:
        object_type = OBJECTS[relation]
        is_place = object_type in ("city", "country")
        if object_type == "person" or (is_place and next(numbers) % 2):
            value = _invented_name(world, taken, numbers, is_place)
        else:
            pool = world.pools[object_type]
            value = world.item_label(int(pool[next(numbers) % len(pool)]))
        facts.append((relation, value))
    return kind, label, facts


def _invented_name(world: World, taken: set[str], numbers: Iterator[int], of_place: bool) -> str:
    if of_place:
        return world.last_names[next(numbers) % len(world.last_names)]
    while True:
        first, last = next(numbers) % len(world.first_names), next(numbers) % len(world.last_names)
        if (name := f"{world.first_names[first]} {world.last_names[last]}") not in taken:
            return name
