"""The sample world's wordings, from sentences.yaml: sentences, questions and pages about one subject.

The three registers share no sentence: `article` is Wikipedia's, `passage` the Pile's, `chatter` C4's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from pipelines.language.relations import RELATIONS

_texts = yaml.safe_load(Path(__file__).with_name("sentences.yaml").read_text(encoding="utf-8"))
LEADS: dict[str, list[str]] = _texts["leads"]
FILLERS: dict[str, list[str]] = _texts["fillers"]
WORDINGS: dict[str, dict] = _texts["relations"]  # relation -> register, or kind of question -> wordings
SENTENCES = 6  # on a page, including the lead


def sentence(relation: str, register: str, variant: int, subject: str, value: str) -> str:
    """A fact in one of the register's wordings."""
    return WORDINGS[relation][register][variant].format(s=subject, o=value)


def question(relation: str, wording: int, subject: str) -> str:
    """A question in wording 0 or 1 (C4's own), 2 (PopQA's) or 3 (EntityQuestions')."""
    wordings = WORDINGS[relation]
    templates = (*wordings["questions"], RELATIONS[relation].template, wordings["entityquestions"])
    return templates[wording].format(subject)


def page(register: str, kind: str, subject: str, facts: list[tuple[str, str]], numbers: Iterator[int]) -> str:
    """A page about a subject of type `kind`: a lead, fillers that state no fact, then the (relation, value) facts.

    The page has SENTENCES sentences. `numbers` yields non-negative draws, which decide the wordings and the order.
    """
    lead = LEADS[register][next(numbers) % len(LEADS[register])].format(kind=kind, s=subject)
    fillers = sorted(FILLERS[register], key=lambda filler: (next(numbers), filler))
    fillers = [filler.format(s=subject) for filler in fillers[: SENTENCES - 1 - len(facts)]]
    ordered = sorted(facts, key=lambda fact: (next(numbers), fact))
    stated = [sentence(relation, register, next(numbers) % 3, subject, value) for relation, value in ordered]
    return " ".join([lead, *fillers, *stated])
