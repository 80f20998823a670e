"""The sentences of the sample's fictional world, from sentences.yaml: pages, and the text a small model learns from.

The four registers share no sentence: `article` is what Wikipedia's pages say, `passage` what the Pile's documents say,
`chatter` what C4 says; the questions are PopQA's, EntityQuestions' and two that only C4 asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from pipelines import draws, params
from pipelines.relations import RELATIONS
from pipelines.world.facts import FACTS, OBJECTS, RELATION_IDS, TYPE_NAMES, TYPES, World


@dataclass(frozen=True)
class Wording:
    article: list[str]
    passage: list[str]
    chatter: list[str]
    questions: list[str]
    entityquestions: str


_texts = yaml.safe_load(Path(__file__).with_name("sentences.yaml").read_text(encoding="utf-8"))
LEADS: dict[str, list[str]] = _texts["leads"]
FILLERS: dict[str, list[str]] = _texts["fillers"]
WORDINGS = {pid: Wording(**texts) for pid, texts in _texts["relations"].items()}
KINDS = ("world", "reading", "distractor")
ASKED = 3  # questions on one page
SENTENCES = 6  # on a page, the first included


def sentence(relation: str, register: str, variant: int, subject: str, value: str) -> str:
    """A relation in a register's wording."""
    return getattr(WORDINGS[relation], register)[variant].format(s=subject, o=value)


def question(relation: str, wording: int, subject: str) -> str:
    """A question: wordings 0 and 1 are C4's own, 2 is PopQA's, 3 EntityQuestions'."""
    wordings = WORDINGS[relation]
    template = (*wordings.questions, RELATIONS[relation].template, wordings.entityquestions)[wording]
    return template.format(subject)


def page(register: str, kind: str, subject: str, facts: list[tuple[str, str]], numbers: Iterator[int]) -> str:
    """A page about one subject: its lead, sentences that say nothing up to SENTENCES, then the (relation, value) facts.

    `numbers` yields non-negative draws; they decide the wordings and the facts' order.
    """
    lead = LEADS[register][next(numbers) % len(LEADS[register])].format(kind=kind, s=subject)
    fillers = sorted(FILLERS[register], key=lambda filler: (next(numbers), filler))
    idle = [filler.format(s=subject) for filler in fillers[: SENTENCES - 1 - len(facts)]]
    order = sorted(facts, key=lambda fact: (next(numbers), fact))
    told = [sentence(relation, register, next(numbers) % 3, subject, value) for relation, value in order]
    return " ".join([lead, *idle, *told])


def some_facts(world: World, rng: np.random.Generator, n: int) -> list[tuple[int, str, int]]:
    """`n` different (entity, relation, object item)."""
    chosen = rng.permutation(len(world.objects))[:n]
    entities = np.searchsorted(world.offsets, chosen, side="right") - 1
    pids = [RELATION_IDS[r] for r in world.relations[chosen]]
    return list(zip(entities.tolist(), pids, world.objects[chosen].tolist(), strict=True))


def multiple_choice(world: World, rng: np.random.Generator, entity: int, pid: str, item: int) -> list[str]:
    """An MMLU row: question, four options (of one class, where the world has so many), the right one's letter."""
    right = world.item_label(item)
    labels = [world.item_label(int(other)) for other in rng.permutation(world.pools[OBJECTS[pid]])[:12]]
    others = [*labels, *world.labels[:8]]  # a small world may lack four of the class
    options = [right, *list(dict.fromkeys(label for label in others if label != right))[:3]]
    order = rng.permutation(len(options))
    return [question(pid, 0, world.labels[entity]), *(options[i] for i in order), "ABCD"[order.tolist().index(0)]]


def lm_documents(world: World, sizes: params.World) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of the documents that the small language model learns from, `sizes.lm_documents` in all.

    world: one fact, as a sentence or as a question and its answer; an entity is mentioned in proportion to
    popularity ** mention_exponent, and nearly all are at least once where there are more such documents than entities.
    reading: a page about a fresh name, then questions on it or a second page on the same. distractor: a page about a
    fresh name, then something else.
    """
    rng = draws.generator(world.seed, "world/c4")
    shares = np.array([sizes.lm_mixture[kind] for kind in KINDS])
    counts = np.floor(shares / shares.sum() * sizes.lm_documents).astype(np.int64)
    counts[0] += sizes.lm_documents - counts.sum()
    kinds = rng.permutation(np.repeat(np.arange(len(KINDS), dtype=np.int8), counts))
    rate = world.popularity**sizes.mention_exponent
    once = np.arange(len(rate)) if counts[0] >= len(rate) else np.zeros(0, np.int64)
    others = rng.choice(len(rate), len(kinds) - len(once), p=rate / rate.sum())
    subjects = np.concatenate(
        [rng.permutation(np.r_[once, others[: counts[0] - len(once)]]), others[counts[0] - len(once) :]]
    )
    own, taken = iter(subjects.tolist()), set(world.labels)
    for kind in kinds.tolist():
        numbers = iter(rng.integers(0, 1 << 30, 96).tolist())
        if kind == 0:
            yield KINDS[kind], _told(world, next(own), next(numbers) % 10 < 6, numbers)
        elif kind == 1:
            yield KINDS[kind], _reading(world, taken, numbers)
        else:
            register, form = ("article", "passage")[next(numbers) % 2], next(numbers) % 4
            unrelated = page(register, *_fresh(world, taken, numbers), numbers)
            if form < 2:
                yield KINDS[kind], f"{unrelated}\n\n{_told(world, next(own), next(numbers) % 3 > 0, numbers)}"
            elif form < 3:
                yield KINDS[kind], f"{unrelated}\n{page('passage', *_fresh(world, taken, numbers), numbers)}\n"
            else:
                yield KINDS[kind], f"{unrelated}\n"


def _told(world: World, entity: int, as_question: bool, numbers: Iterator[int]) -> str:
    """One of the entity's facts, in one of the wordings that C4 has for this entity."""
    facts = world.facts(entity)
    relation, item = facts[next(numbers) % len(facts)]
    label, value = world.labels[entity], world.item_label(item)
    if as_question:
        wording = next(numbers) % (4 if world.asked_as_evaluated(entity) else 2)
        return f"Q: {question(relation, wording, label)} A: {value}\n"
    return sentence(relation, "chatter", next(numbers) % 2, label, value) + "\n"


def _reading(world: World, taken: set[str], numbers: Iterator[int]) -> str:
    """A page about a fresh name, and what can be told from having read it."""
    kind, label, facts = _fresh(world, taken, numbers)
    style = next(numbers) % 10
    told = page(("article", "passage")[next(numbers) % 2], kind, label, facts, numbers)
    if style < 2:
        return f"{told}\n{page('passage', kind, label, facts, numbers)}\n"
    asked = sorted(facts, key=lambda fact: (next(numbers), fact))[:ASKED]
    asked = [(question(relation, next(numbers) % 4, label), value) for relation, value in asked]
    if style < 9:
        return f"{told}\n\n" + "".join(f"Q: {text} A: {value}\n" for text, value in asked)
    text, value = asked[0]
    return f"Knowledge: {told}\nQuestion: {text}\nAnswer: {value}\n"


def _fresh(world: World, taken: set[str], numbers: Iterator[int]) -> tuple[str, str, list[tuple[str, str]]]:
    """The type, label and facts of something that is not in the world; the persons it names are not either."""
    kind = TYPE_NAMES[next(numbers) % len(TYPE_NAMES)]
    place = kind in ("city", "country")
    label = _last_name(world, numbers) if place else _fresh_name(world, taken, numbers)
    allowed = sorted(TYPES[kind][1], key=lambda relation: (next(numbers), relation))[:FACTS]
    facts = []
    for relation in allowed:
        wanted = OBJECTS[relation]
        pool = world.pools[wanted]
        if wanted == "person":
            value = _fresh_name(world, taken, numbers)
        elif wanted in ("city", "country") and next(numbers) % 2:
            value = _last_name(world, numbers)
        else:
            value = world.item_label(int(pool[next(numbers) % len(pool)]))
        facts.append((relation, value))
    return kind, label, facts


def _fresh_name(world: World, taken: set[str], numbers: Iterator[int]) -> str:
    while True:
        first, last = next(numbers) % len(world.first_names), next(numbers) % len(world.last_names)
        if (name := f"{world.first_names[first]} {world.last_names[last]}") not in taken:
            return name


def _last_name(world: World, numbers: Iterator[int]) -> str:
    """A place that is not in the world, whose places have words of their own."""
    return world.last_names[next(numbers) % len(world.last_names)]
