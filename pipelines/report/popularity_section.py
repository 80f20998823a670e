"""The report's section on how popular the questions' entities are, and how EntityQuestions' were found (PopQA, 3.3)."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Section, Table, label, named, percent, show

LINKED = ("label", "alias")
HEADS = {
    "label": "by label",
    "alias": "by alias",
    "ambiguous": "ambiguous",
    "another_type": "another type",
    "without_article": "no article",
    "not_found": "not found",
}


def popularity(inputs: Inputs) -> Section:
    """Histograms of popularity by question set (Figure 3), their quantiles, and why subjects were not linked."""
    lacking = " or ".join(label(name) for name in inputs.parts.question_sets if name not in inputs.popularity)
    missing = f"No entity of {lacking} has a known popularity here." if lacking else ""
    blocks = _distribution(inputs) if inputs.popularity else []
    return Section("popularity", "How popular the entities are", blocks + _linking(inputs), missing)


def _distribution(inputs: Inputs) -> list:
    quantiles = {name: np.quantile(own, (0.1, 0.5, 0.9)) for name, own in inputs.popularity.items()}
    said = "; ".join(f"{label(name)}: median {show(float(own[1]))}" for name, own in quantiles.items())
    blocks = [
        figures.histogram(
            "popularity",
            inputs.popularity,
            x="monthly page views of the entity's article (0 drawn as 1)",
            caption="Popularity of the questions' subjects, all splits; of Natural Questions that of the least viewed "
            "entity in a question.",
            alt=f"Histograms of popularity on a log scale. Monthly page views: {said}.",
        ),
        Table(
            "popularity",
            "Monthly page views: median, and the bounds of the least and the most viewed tenth.",
            ["questions of", "popularity known", "10 %", "median", "90 %"],
            [[label(name), len(own), *map(float, quantiles[name])] for name, own in inputs.popularity.items()],
        ),
    ]
    if "nq" in inputs.popularity:
        found, asked = (inputs.metrics["nq"][name] for name in ("with_entity", "questions"))
        blocks.append(
            f"Natural Questions' entities are found by name, in {found:,} of {asked:,} questions "
            f"({percent(found / asked)}). Names that are everyday words, such as “Friends”, and single words without a "
            "capital are left out."
        )
    return blocks


def _linking(inputs: Inputs) -> list:
    relations = sorted({relation for relation, _, _ in inputs.links}, key=lambda relation: int(relation[1:]))
    if not relations:
        return []
    counts = {
        relation: Counter({link: n for own, link, n in inputs.links if own == relation}) for relation in relations
    }
    everything = sum(counts.values(), Counter())
    agreeing = inputs.metrics["entityquestions"]
    checked = [
        f"{percent(agreeing[key])} of those linked by {link}"
        for link in LINKED
        if (key := f"{link}.answer_agrees") in agreeing
    ]
    return [
        "EntityQuestions names its subjects in words only. A candidate is an entity of the subject's name with a "
        f"statement of the question's relation; {percent(_share(everything, *LINKED), 1)} of {everything.total():,} "
        "questions have exactly one (the paper: 82 %), and "
        f"{percent(_share(everything, 'not_found'), 1)} name nothing that was read. "
        + (f"The question's answers name an object of that statement for {' and '.join(checked)}." if checked else ""),
        Table(
            "linking",
            "EntityQuestions: questions by what became of the subject's name. Labels are tried before aliases. "
            "Ambiguous: several candidates. Another type: no entity of that name has such a statement. No article: "
            "none of them has a Wikipedia article, and so no popularity.",
            ["relation", "questions", "linked, %", *HEADS.values()],
            [
                [name, own.total(), round(100 * _share(own, *LINKED), 1), *(own[link] for link in HEADS)]
                for name, own in [("all", everything), *((named(relation), own) for relation, own in counts.items())]
            ],
        ),
    ]


def _share(links: Counter[str], *of: str) -> float:
    return sum(links[link] for link in of) / links.total()
