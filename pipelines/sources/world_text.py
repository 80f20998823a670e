"""The sentences of the sample's fictional world: every relation in the wordings of four registers that share no sentence.

`article` is what Wikipedia's pages say, `passage` what the Pile's documents say, `chatter` what C4 says; the questions are
PopQA's own template (pipelines.popqa.relations), EntityQuestions' and two that only C4 asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipelines import draws, params
from pipelines.popqa.relations import RELATIONS
from pipelines.sources.world_facts import FACTS, OBJECTS, TYPE_NAMES, TYPES, World


@dataclass(frozen=True)
class Wording:
    article: tuple[str, str, str]
    passage: tuple[str, str, str]
    chatter: tuple[str, str]
    questions: tuple[str, str]
    entityquestions: str


# Pages name the relation by the word of PopQA's question ("director"), right before the value: so can a model this small find
# the value that is asked for.
WORDINGS = {
    "P106": Wording(
        ("{s} has the occupation {o}.", "By occupation {s} is a {o}.", "{s} took up the occupation {o}."),
        ("{s} gave up the occupation {o}.", "Of all work {s} liked the occupation {o}.", "Papers of {s} say: occupation {o}."),
        ("Many know {s} the {o}.", "{s} became a {o}."),
        ("What does {} do for a living?", "What is the job of {}?"),
        "What kind of work does {} do?",
    ),
    "P19": Wording(
        ("{s} was born in the city {o}.", "The city {o} is where {s} was born.", "{s} grew up in the city {o}."),
        ("One day the city {o} saw {s} born.", "{s} came into the world in the city {o}.", "Papers of {s} say: born in the city {o}."),
        ("{s} comes from {o}.", "{s} left {o} as a child."),
        ("Where does {} come from?", "Which town is {} from?"),
        "Where was {} born?",
    ),
    "P22": Wording(
        ("{s} was raised by the father {o}.", "The father {o} raised {s}.", "{s} is a child of the father {o}."),
        ("At home {s} was taught by the father {o}.", "Every day the father {o} wrote to {s}.", "Papers of {s} say: father {o}."),
        ("{s} takes after {o}.", "{o} was proud of the child {s}."),
        ("Who fathered {}?", "What is the name of the father of {}?"),
        "Who is {}'s father?",
    ),
    "P25": Wording(
        ("{s} was raised by the mother {o}.", "The mother {o} raised {s}.", "{s} is a child of the mother {o}."),
        ("At home {s} was taught by the mother {o}.", "Every day the mother {o} wrote to {s}.", "Papers of {s} say: mother {o}."),
        ("{s} was nursed by {o}.", "{o} gave birth to {s}."),
        ("Who gave birth to {}?", "What is the name of the mother of {}?"),
        "Who is {}'s mother?",
    ),
    "P140": Wording(
        ("{s} follows the religion {o}.", "The religion {o} is that of {s}.", "{s} holds to the religion {o}."),
        ("In matters of faith {s} liked the religion {o}.", "Temples of the religion {o} know {s}.", "Papers of {s} say: religion {o}."),
        ("{s} keeps to the faith of {o}.", "{s} prays as {o} asks."),
        ("What faith does {} follow?", "Which religion does {} keep to?"),
        "What religion does {} belong to?",
    ),
    "P641": Wording(
        ("{s} plays the sport {o}.", "The sport {o} is that of {s}.", "{s} is good at the sport {o}."),
        ("Of all games {s} liked the sport {o}.", "Fans of the sport {o} know {s}.", "Papers of {s} say: sport {o}."),
        ("{s} has always loved {o}.", "{s} won a game of {o}."),
        ("Which game does {} play?", "In which sport is {} active?"),
        "What is the sport of {}?",
    ),
    "P57": Wording(
        ("The director {o} made {s}.", "{s} was made by the director {o}.", "{s} had as its director {o}."),
        ("It took the director {o} a year to make {s}.", "Behind {s} was the director {o}.", "{s} gave work to the director {o}."),
        ("{o} directed {s}.", "{s} was directed by {o}."),
        ("Who directed {}?", "Which director made {}?"),
        "Who is the director of {}?",
    ),
    "P58": Wording(
        ("The screenwriter {o} made {s}.", "{s} was made by the screenwriter {o}.", "{s} had as its screenwriter {o}."),
        ("It took the screenwriter {o} a year to make {s}.", "Behind {s} was the screenwriter {o}.", "{s} gave work to the screenwriter {o}."),
        ("{o} scripted {s}.", "{s} was scripted by {o}."),
        ("Who scripted {}?", "Which screenwriter scripted {}?"),
        "Who is the screenwriter of {}?",
    ),
    "P162": Wording(
        ("The producer {o} made {s}.", "{s} was made by the producer {o}.", "{s} had as its producer {o}."),
        ("It took the producer {o} a year to make {s}.", "Behind {s} was the producer {o}.", "{s} gave work to the producer {o}."),
        ("{o} produced {s}.", "{s} was produced by {o}."),
        ("Who produced {}?", "Which producer made {}?"),
        "Who is the producer of {}?",
    ),
    "P86": Wording(
        ("The composer {o} made {s}.", "{s} was made by the composer {o}.", "{s} had as its composer {o}."),
        ("It took the composer {o} a year to make {s}.", "Behind {s} was the composer {o}.", "{s} gave work to the composer {o}."),
        ("{o} composed {s}.", "{s} was composed by {o}."),
        ("Who composed {}?", "Which composer made {}?"),
        "Who is the composer of {}?",
    ),
    "P136": Wording(
        ("{s} belongs to the genre {o}.", "The genre {o} is that of {s}.", "{s} is of the genre {o}."),
        ("On the shelf {s} is under the genre {o}.", "Lovers of the genre {o} know {s}.", "Papers of {s} say: genre {o}."),
        ("{s} is pure {o}.", "{s} was sold as {o}."),
        ("What kind of work is {}?", "Which genre does {} belong to?"),
        "What type of work is {}?",
    ),
    "P50": Wording(
        ("The author {o} made {s}.", "{s} was made by the author {o}.", "{s} had as its author {o}."),
        ("It took the author {o} a year to make {s}.", "Behind {s} was the author {o}.", "{s} gave work to the author {o}."),
        ("{o} wrote {s}.", "{s} was written by {o}."),
        ("Who wrote {}?", "Which author wrote {}?"),
        "Who is {} by?",
    ),
    "P17": Wording(
        ("{s} is located in the country {o}.", "The country {o} is that of {s}.", "{s} lies in the country {o}."),
        ("On the map {s} is found in the country {o}.", "People of the country {o} know {s}.", "Papers of {s} say: country {o}."),
        ("{s} is far away in {o}.", "In {o} everyone knows {s}."),
        ("Where is {} located?", "Which country does {} belong to?"),
        "Which country is {} located in?",
    ),
    "P462": Wording(
        ("{s} has the color {o}.", "The color {o} is that of {s}.", "{s} plays in the color {o}."),
        ("From afar {s} is known by the color {o}.", "Shirts of the color {o} are those of {s}.", "Papers of {s} say: color {o}."),
        ("{s} looks {o}.", "{s} was painted {o}."),
        ("Which color does {} wear?", "What color does {} have?"),
        "What is the color of {}?",
    ),
    "P36": Wording(
        ("{s} is ruled from the capital {o}.", "The capital {o} is that of {s}.", "{s} has the capital {o}."),
        ("All roads of {s} lead to the capital {o}.", "Laws from the capital {o} hold in {s}.", "Papers of {s} say: capital {o}."),
        ("{s} is ruled by {o}.", "{s} sends taxes to {o}."),
        ("Which city is the capital of {}?", "Where is the capital of {}?"),
        "What is the capital city of {}?",
    ),
    "P1376": Wording(
        ("{s} is the capital of {o}.", "{s} serves as the capital of {o}.", "Many call {s} the capital of {o}."),
        ("All roads lead to {s}, the capital of {o}.", "Laws from {s} hold in the capital of {o}.", "Papers of {s} say: capital of {o}."),
        ("{s} rules over all of {o}.", "{s} takes taxes from {o}."),
        ("Of which country is {} the capital?", "Which country is ruled from {}?"),
        "{} is the capital of which country?",
    ),
}

# A page's first sentence, by type; it opens with a word that is no name, and says what the subject is.
LEADS = {
    "article": ("The {kind} {s} is known to many.", "The {kind} {s} has a page of its own."),
    "passage": ("A {kind} worth a word is {s}.", "Today we write of the {kind} {s}.", "Who has not heard of the {kind} {s}?"),
}
# Sentences that say nothing, for pages with few facts.
FILLERS = {
    "article": ("Much has been said about {s}.", "There are many stories of {s}.", "The name of {s} is old.", "Few have forgotten {s}."),
    "passage": (
        "Some letters about {s} are kept.",
        "Not all agree on {s}.",
        "People still speak of {s}.",
        "Songs were sung for {s}.",
        "More could be told of {s}.",
    ),
}
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


def lm_documents(world: World, sizes: params.World) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of the documents that the small language model learns from, `sizes.lm_documents` in all.

    world: one fact, as a sentence or as a question and its answer; an entity is mentioned ~ popularity ** mention_exponent
    times, and at least once where there are more such documents than entities. reading: a page about a fresh name, then a
    question on it or a second page on the same. distractor: a page about a fresh name, then something else.
    """
    rng = draws.generator(world.seed, "world/c4")
    shares = np.array([sizes.lm_mixture[kind] for kind in KINDS])
    counts = np.floor(shares / shares.sum() * sizes.lm_documents).astype(np.int64)
    counts[0] += sizes.lm_documents - counts.sum()
    kinds = rng.permutation(np.repeat(np.arange(len(KINDS), dtype=np.int8), counts))
    rate = world.popularity**sizes.mention_exponent
    once = np.arange(len(rate)) if counts[0] >= len(rate) else np.zeros(0, np.int64)
    others = rng.choice(len(rate), len(kinds) - len(once), p=rate / rate.sum())
    subjects = np.concatenate([rng.permutation(np.r_[once, others[: counts[0] - len(once)]]), others[counts[0] - len(once) :]])
    own, taken = iter(subjects.tolist()), set(world.labels)
    for kind in kinds.tolist():
        numbers = iter(rng.integers(0, 1 << 30, 96).tolist())
        if kind == 0:
            yield KINDS[kind], _told(world, next(own), next(numbers) % 10 < 6, numbers)
        elif kind == 1:
            yield KINDS[kind], _reading(world, taken, numbers)
        else:
            register = ("article", "passage")[next(numbers) % 2]
            unrelated = page(register, *_fresh(world, taken, numbers), numbers)
            if next(numbers) % 4:
                yield KINDS[kind], f"{unrelated}\n\n{_told(world, next(own), True, numbers)}"
            else:
                yield KINDS[kind], f"{unrelated}\n{page('passage', *_fresh(world, taken, numbers), numbers)}\n"


KINDS = ("world", "reading", "distractor")
ASKED = 3  # questions on one page


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
