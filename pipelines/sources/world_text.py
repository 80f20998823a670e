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


WORDINGS = {
    "P106": Wording(
        ("{s} works as a {o}.", "{s} is a {o} by trade.", "{s} made a living as a {o}."),
        ("The trade of {s} was that of a {o}.", "As a {o}, {s} earned respect.", "{s} spent years as a {o}."),
        ("Many know {s} the {o}.", "{s} became a {o}."),
        ("What does {} do for a living?", "What is the job of {}?"),
        "What kind of work does {} do?",
    ),
    "P19": Wording(
        ("{s} was born in {o}.", "{s} is a native of {o}.", "The birthplace of {s} is {o}."),
        ("It was in {o} that {s} was born.", "The family of {s} lived in {o} at the birth.", "{s} first saw light in {o}."),
        ("{s} comes from {o}.", "{s} left {o} as a child."),
        ("Where does {} come from?", "Which town is {} from?"),
        "Where was {} born?",
    ),
    "P22": Wording(
        ("The father of {s} is {o}.", "{s} has {o} as a father.", "{s} was raised by the father, {o}."),
        ("It was {o} who fathered {s}.", "On the side of the father, {s} descends from {o}.", "The child of the father {o} is {s}."),
        ("{s} takes after {o}, the father.", "{o} was proud to be the father of {s}."),
        ("Who fathered {}?", "What is the name of the father of {}?"),
        "Who is {}'s father?",
    ),
    "P25": Wording(
        ("The mother of {s} is {o}.", "{s} has {o} as a mother.", "{s} was raised by the mother, {o}."),
        ("It was {o} who gave birth to {s}.", "On the side of the mother, {s} descends from {o}.", "The child of the mother {o} is {s}."),
        ("{s} takes after {o}, the mother.", "{o} was proud to be the mother of {s}."),
        ("Who gave birth to {}?", "What is the name of the mother of {}?"),
        "Who is {}'s mother?",
    ),
    "P140": Wording(
        ("{s} follows the religion of {o}.", "The religion of {s} is {o}.", "The faith of {s} is {o}."),
        ("In matters of faith {s} holds to {o}.", "Prayers in {s} are those of {o}.", "By religion {s} belongs to {o}."),
        ("{s} keeps to the faith of {o}.", "{o} is the religion for {s}."),
        ("What faith does {} follow?", "Which religion does {} keep to?"),
        "What religion does {} belong to?",
    ),
    "P641": Wording(
        ("{s} plays {o}.", "The sport of {s} is {o}.", "{s} is known for playing {o}."),
        ("In sport {s} chose {o}.", "On the field, {s} is good at {o}.", "Fans of {o} know {s}."),
        ("{s} has always loved {o}.", "{s} won a game of {o}."),
        ("Which game does {} play?", "In which sport is {} active?"),
        "What is the sport of {}?",
    ),
    "P57": Wording(
        ("{s} was directed by {o}.", "The director of {s} was {o}.", "{s} is a film by the director {o}."),
        ("It was {o} who directed {s}.", "For {s} the director was {o}.", "Behind the camera of {s} stood {o}."),
        ("{o} spent a year directing {s}.", "{s} had {o} as director."),
        ("Who directed {}?", "Which director made {}?"),
        "Who is the director of {}?",
    ),
    "P58": Wording(
        ("{s} was scripted by {o}.", "The screenwriter of {s} was {o}.", "The script of {s} is by {o}."),
        ("It was {o} who scripted {s}.", "For {s} the screenwriter was {o}.", "The lines of {s} came from {o}."),
        ("{o} spent a year on the script of {s}.", "{s} had {o} as screenwriter."),
        ("Who scripted {}?", "Who wrote the script of {}?"),
        "Who is the screenwriter of {}?",
    ),
    "P162": Wording(
        ("{s} was produced by {o}.", "The producer of {s} was {o}.", "{s} was made with the producer {o}."),
        ("It was {o} who produced {s}.", "For {s} the producer was {o}.", "The money for {s} came from {o}."),
        ("{o} spent a year producing {s}.", "{s} had {o} as producer."),
        ("Who produced {}?", "Which producer made {}?"),
        "Who is the producer of {}?",
    ),
    "P86": Wording(
        ("{s} has music composed by {o}.", "The composer of {s} was {o}.", "The music of {s} is by {o}."),
        ("It was {o} who composed {s}.", "For {s} the composer was {o}.", "The songs of {s} came from {o}."),
        ("{o} spent a year composing {s}.", "{s} had {o} as composer."),
        ("Who composed {}?", "Who wrote the music of {}?"),
        "Who is the composer of {}?",
    ),
    "P136": Wording(
        ("{s} is a work of {o}.", "The genre of {s} is {o}.", "{s} belongs to the genre of {o}."),
        ("In genre {s} counts as {o}.", "Lovers of {o} know {s}.", "Critics call {s} a piece of {o}."),
        ("{s} is pure {o}.", "{s} was sold as {o}."),
        ("What kind of work is {}?", "Which genre does {} belong to?"),
        "What type of work is {}?",
    ),
    "P50": Wording(
        ("{s} was written by {o}.", "The author of {s} is {o}.", "{s} is a book by the author {o}."),
        ("It was {o} who wrote {s}.", "For {s} the author was {o}.", "The pages of {s} came from {o}."),
        ("{o} spent a year writing {s}.", "{s} had {o} as author."),
        ("Who wrote {}?", "Which author wrote {}?"),
        "Who is {} by?",
    ),
    "P17": Wording(
        ("{s} is located in {o}.", "The country of {s} is {o}.", "{s} lies in the country of {o}."),
        ("On the map {s} is found in {o}.", "Travellers to {s} go to {o}.", "The flag over {s} is that of {o}."),
        ("{s} is far away in {o}.", "In {o} everyone knows {s}."),
        ("Where is {} located?", "Which country does {} belong to?"),
        "Which country is {} located in?",
    ),
    "P462": Wording(
        ("{s} wears {o}.", "The color of {s} is {o}.", "{s} has {o} as its color."),
        ("In color {s} is all {o}.", "The shirts of {s} are {o}.", "Players of {s} dress in {o}."),
        ("{s} looks {o}.", "{s} was painted {o}."),
        ("Which color does {} wear?", "What color does {} have?"),
        "What is the color of {}?",
    ),
    "P36": Wording(
        ("{s} is governed from {o}.", "The capital of {s} is {o}.", "{s} has its capital in {o}."),
        ("The rulers of {s} sit in {o}.", "Laws of {s} are made in {o}.", "In {s} the first city is {o}."),
        ("{s} celebrates in {o}, the capital.", "{o} rules over {s}."),
        ("Which city is the capital of {}?", "Where is the capital of {}?"),
        "What is the capital city of {}?",
    ),
    "P1376": Wording(
        ("{s} is the capital of {o}.", "{s} is the seat of {o}.", "{s} serves as the capital of {o}."),
        ("From {s} one governs {o}.", "The rulers in {s} govern {o}.", "As a capital {s} belongs to {o}."),
        ("{s} is a proud capital of {o}.", "{s} rules over all of {o}."),
        ("Of which country is {} the capital?", "Which country is governed from {}?"),
        "{} is the capital of which country?",
    ),
}  # fmt: skip

# A page's first sentence, by type; it opens with a word that is no name, and says what the subject is.
LEADS = {
    "person": ("The person {s} is known to many.", "A life worth telling is that of the person {s}."),
    "film": ("The film {s} was well received.", "A film worth seeing is the film {s}."),
    "book": ("The book {s} was well received.", "A book worth reading is the book {s}."),
    "club": ("The club {s} is known to many.", "A club worth joining is the club {s}."),
    "city": ("The city {s} lies by a river.", "A city worth seeing is the city {s}."),
    "country": ("The country {s} lies by a sea.", "A country worth seeing is the country {s}."),
}
# Sentences that say nothing, for pages with few facts; by register as the others.
FILLERS = {
    "article": ("Much has been said about {s}.", "There are many stories of {s}.", "The name of {s} is old."),
    "passage": ("Some letters about {s} are kept.", "Not all agree on {s}.", "People still speak of {s}."),
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
    fillers = FILLERS[register]
    first = next(numbers)
    idle = [fillers[(first + i) % len(fillers)] for i in range(min(len(fillers), SENTENCES - 1 - len(facts)))]
    order = sorted(facts, key=lambda fact: (next(numbers), fact))
    told = [sentence(relation, register, next(numbers) % 3, subject, value) for relation, value in order]
    lead = LEADS[kind][register == "passage"]
    return " ".join([lead.format(s=subject), *(filler.format(s=subject) for filler in idle), *told])


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
        numbers = iter(rng.integers(0, 1 << 30, 80).tolist())
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
    told = page("passage" if style % 2 else "article", kind, label, facts, numbers)
    if style < 3:
        return f"{told}\n{page('passage', kind, label, facts, numbers)}\n"
    relation, value = facts[next(numbers) % len(facts)]
    asked = question(relation, next(numbers) % 4, label)
    if style < 9:
        return f"{told}\n\nQ: {asked} A: {value}\n"
    return f"Knowledge: {told}\nQuestion: {asked}\nAnswer: {value}\n"


def _fresh(world: World, taken: set[str], numbers: Iterator[int]) -> tuple[str, str, list[tuple[str, str]]]:
    """The type, label and facts of something that is not in the world; the persons it names are not either."""
    kind = TYPE_NAMES[next(numbers) % len(TYPE_NAMES)]
    place = kind in ("city", "country")
    label = _fresh_place(world, numbers) if place else _fresh_name(world, taken, numbers)
    allowed = sorted(TYPES[kind][1], key=lambda relation: (next(numbers), relation))[:FACTS]
    facts = []
    for relation in allowed:
        wanted = OBJECTS[relation]
        pool = world.pools[wanted]
        if wanted == "person":
            value = _fresh_name(world, taken, numbers)
        elif wanted in ("city", "country"):
            value = _fresh_place(world, numbers)
        else:
            value = world.item_label(int(pool[next(numbers) % len(pool)]))
        facts.append((relation, value))
    return kind, label, facts


def _fresh_name(world: World, taken: set[str], numbers: Iterator[int]) -> str:
    while True:
        first, last = next(numbers) % len(world.first_names), next(numbers) % len(world.last_names)
        if (name := f"{world.first_names[first]} {world.last_names[last]}") not in taken:
            return name


def _fresh_place(world: World, numbers: Iterator[int]) -> str:
    """A last name: the world's places have words of their own."""
    return world.last_names[next(numbers) % len(world.last_names)]
