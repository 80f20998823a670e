"""The sample world's question sets, as EntityQuestions, MMLU and Natural Questions are laid out."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pipelines import draws
from sample.make.facts import ALIASES, MMLU_SUBJECTS, OBJECTS, RELATION_IDS, World
from sample.make.text_corpora import WORDINGS, question

MMLU_DEMONSTRATIONS = 5  # questions of a subject that are not tested
MMLU_OPTIONS = 4
CANDIDATES = 12  # values of an answer's class that wrong options are taken from
NQ_WORDING = 0  # see `question`
MMLU_WORDING = 0
ENTITYQUESTIONS_WORDING = 3


class Fact(NamedTuple):
    entity: int
    relation: str
    item: int  # the object


def question_sets(world: World, per_set: int) -> Iterator[tuple[str, str]]:
    """Yield (path, content) of each file; a set has about `per_set` questions."""
    rng = draws.generator(world.seed, "world/questions")
    drawn = rng.permutation(len(world.objects))[: 8 * per_set]
    entities = np.searchsorted(world.offsets, drawn, side="right") - 1
    facts = []
    for entity, place in zip(entities.tolist(), drawn.tolist(), strict=True):
        relation = RELATION_IDS[world.relations[place]]
        item = int(world.objects[place])
        facts.append(Fact(entity, relation, item))

    yield from _entityquestions(world, facts, per_set)
    yield from _mmlu(world, rng, facts, per_set)
    nq_facts = facts[per_set : 2 * per_set]
    yield "nq/test.jsonl", _open_questions(world, nq_facts, NQ_WORDING)


def _question_on(world: World, fact: Fact, wording: int) -> str:
    return question(fact.relation, wording, world.labels[fact.entity])


def _entityquestions(world: World, facts: list[Fact], per_set: int) -> Iterator[tuple[str, str]]:
    """The names of four fifths of the subjects belong to no other entity."""
    entities_by_label = Counter(world.labels)

    def is_unambiguous(fact: Fact) -> bool:
        return entities_by_label[world.labels[fact.entity]] == 1

    unambiguous = list(filter(is_unambiguous, facts))
    facts_asked = unambiguous[: per_set * 4 // 5]
    facts_asked += facts[: per_set - len(facts_asked)]

    rows_by_relation: dict[str, list[dict]] = {}
    for fact in facts_asked:
        text = _question_on(world, fact, ENTITYQUESTIONS_WORDING)
        row = {"question": text, "answers": [world.item_label(fact.item)]}
        rows_by_relation.setdefault(fact.relation, []).append(row)

    for relation, rows in sorted(rows_by_relation.items()):
        yield f"entityquestions/{relation}.test.json", json.dumps(rows, indent=4)

    templates = {}
    for relation in RELATION_IDS:
        template = WORDINGS[relation]["entityquestions"]
        templates[relation] = template.replace("{}", "[X]")
    yield "entityquestions/relation_query_templates.json", json.dumps(templates, indent=4)


def _mmlu(
    world: World, rng: np.random.Generator, facts: list[Fact], per_set: int
) -> Iterator[tuple[str, str]]:
    per_subject = per_set // len(MMLU_SUBJECTS) + MMLU_DEMONSTRATIONS
    for subject, relations in MMLU_SUBJECTS.items():
        facts_of_subject = [fact for fact in facts if fact.relation in relations]
        rows = [_multiple_choice(world, rng, fact) for fact in facts_of_subject[:per_subject]]
        splits = {"dev": rows[:MMLU_DEMONSTRATIONS], "test": rows[MMLU_DEMONSTRATIONS:]}
        for split, split_rows in splits.items():
            table = io.StringIO()
            csv.writer(table, lineterminator="\n").writerows(split_rows)
            yield f"mmlu/{split}/{subject}_{split}.csv", table.getvalue()


def _multiple_choice(world: World, rng: np.random.Generator, fact: Fact) -> list[str]:
    """A row of MMLU: question, four options, the letter of the right one."""
    answer = world.item_label(fact.item)
    pool = world.pools[OBJECTS[fact.relation]]
    candidates = rng.permutation(pool)[:CANDIDATES]
    labels = [world.item_label(item) for item in candidates.tolist()]
    # a small world may have less than four labels of the class
    labels += world.labels[:8]
    options = list(dict.fromkeys([answer, *labels]))[:MMLU_OPTIONS]  # each once, in order

    order = rng.permutation(len(options)).tolist()
    row = [_question_on(world, fact, MMLU_WORDING)]
    row += [options[i] for i in order]
    row.append("ABCD"[order.index(0)])
    return row


def _open_questions(world: World, facts: list[Fact], wording: int) -> str:
    """JSON lines; Natural Questions are in lower case without a question mark, as people type."""
    lines = ""
    for number, fact in enumerate(facts):
        text = _question_on(world, fact, wording)
        if wording == NQ_WORDING:
            text = text[0].lower() + text[1:-1]
        label = world.item_label(fact.item)
        answers = [label, *ALIASES.get(label, [])]
        row = {"id": f"test_{number}", "question": text, "golden_answers": answers}
        lines += json.dumps(row) + "\n"
    return lines
