"""The report's section on how popular the questions' subjects are, and how subjects were linked (PopQA, 3.3)."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pipelines import catalogue
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Section, Share, Table, label, named, percent, show

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
    counts = inputs.metrics.get("popularity", {}) if inputs.parts.knowledge else {}
    if blocks and counts.get("files.pageviews") and not counts["files.redirects"]:
        blocks.append(
            "Views of redirects are not counted for the articles that they lead to, and an article that was moved "
            "after the month may be unknown: this run has no tables of redirects and pages (fetch.files.redirects)."
        )
    for dataset, links in inputs.links.items():
        blocks += _linking(dataset, links, inputs.metrics.get(dataset, {}))
    return Section("popularity", "How popular the questions' subjects are", blocks, missing, _says(inputs))


def _says(inputs: Inputs) -> str:
    quantiles = {name: np.quantile(views, (0.5, 0.9)).tolist() for name, views in inputs.popularity.items()}
    return " ".join(
        f"Half of the subjects of {label(name)} have fewer than {show(float(f'{median:.2g}'))} page views a month, and "
        f"a tenth have more than {show(float(f'{most:.2g}'))}."
        for name, (median, most) in quantiles.items()
        if name in inputs.parts.answered
    )


def _distribution(inputs: Inputs) -> list:
    quantiles = {name: np.quantile(views, (0.1, 0.5, 0.9)) for name, views in inputs.popularity.items()}
    medians = "; ".join(f"{label(name)}: median {show(float(median))}" for name, (_, median, _) in quantiles.items())
    without_subject = [label(name) for name in inputs.popularity if not catalogue.DATASETS[name].answered]
    least_viewed = f" A question of {' or '.join(without_subject)} counts as its least viewed entity."
    asked = {name: rows[0]["questions"] for name in inputs.asked if (rows := inputs.rows("accuracy", dataset=name))}
    fewer = [
        f" All {len(views):,} such questions of {label(name)} are shown; {inputs.main} was asked {asked[name]:,}."
        for name, views in inputs.popularity.items()
        if asked.get(name, len(views)) < len(views)
    ]
    blocks = [
        figures.histogram(
            "popularity",
            inputs.popularity,
            x="monthly page views of the entity's article",
            caption="Popularity of the questions' subjects, all splits, where it is known."
            f"{''.join(fewer)}{least_viewed if without_subject else ''}",
            alt=f"Histograms of popularity on a log scale. Monthly page views: {medians}.",
        ),
        "A popularity is not known if the month's data have no view of the article, or if the question's subject has "
        "no article or could not be linked to one. Unknown is not low: all figures by popularity leave these questions "
        "out.",
        Table(
            "popularity",
            "Monthly page views: the median, and the bounds of the least and of the most viewed tenth.",
            ["questions of", "popularity known", "not known", "10 %", "median", "90 %"],
            [
                [label(name), len(views), inputs.unknown[name], *map(float, quantiles[name])]
                for name, views in inputs.popularity.items()
            ],
        ),
    ]
    for name in inputs.popularity:
        metrics = inputs.metrics.get(name, {})
        if "with_entity" in metrics:
            with_entity, questions = metrics["with_entity"], metrics["questions"]
            blocks.append(
                f"Entities of {label(name)} are found by name, in {with_entity:,} of {questions:,} questions "
                f"({percent(with_entity / questions)}). Names that are everyday words, such as “Friends”, and single "
                "words without a capital are left out."
            )
    return blocks


def _linking(dataset: str, links: list[tuple[str, str, int]], metrics: dict) -> list:
    """What became of subjects that a question set names in words only; `links` are (relation, link, questions)."""
    if not links:
        return []
    relations = sorted({relation for relation, _, _ in links}, key=lambda relation: int(relation[1:]))
    counts = {r: Counter({link: n for relation, link, n in links if relation == r}) for r in relations}
    total = sum(counts.values(), Counter())
    checked = [
        f"{percent(metrics[key])} of those linked by {link}"
        for link in LINKED
        if (key := f"{link}.answer_agrees") in metrics
    ]
    return [
        f"{label(dataset)} names its subjects in words only. A candidate is an entity that has the subject's name and "
        f"a statement of the question's relation. {percent(_share(total, *LINKED), 1)} of {total.total():,} questions "
        "have exactly one candidate (the PopQA paper: 82 %); "
        f"{percent(_share(total, 'not_found'), 1)} name nothing that was read. "
        + (f"The question's answers name an object of that statement for {' and '.join(checked)}." if checked else ""),
        Table(
            f"linking-{dataset}",
            f"{label(dataset)}: questions by what became of the subject's name; linked is the share by label or alias, "
            "in per cent. Labels are tried before aliases. "
            "Ambiguous: several candidates. Another type: no entity of that name has such a statement. No article: no "
            "candidate has a Wikipedia article, so its popularity is not known.",
            ["relation", "questions", "linked", *HEADS.values()],
            [
                [name, count.total(), Share(round(_share(count, *LINKED), 3)), *(count[link] for link in HEADS)]
                for name, count in [("all", total), *((named(relation), count) for relation, count in counts.items())]
            ],
        ),
    ]


def _share(links: Counter[str], *kinds: str) -> float:
    return sum(links[kind] for kind in kinds) / links.total()
