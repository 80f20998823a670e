"""Perplexity on a corpus by language model, its size and the retriever: part of the section on language modelling.

It is REPLUG's Figure 5 (section 7.1).
"""

from __future__ import annotations

import math

from pipelines.evaluation.stage_metrics import by_setting, retrievers_of
from pipelines.intervals import Interval, interval
from pipelines.report import figures
from pipelines.report.page import Figure, Table, label

NOTE = (
    "Perplexity by word can be compared between language models; perplexity by token cannot, because models cut texts "
    "into different tokens. Lower is better. A model that was not trained on text in a corpus's spelling, such as "
    "spaces around punctuation and <unk> for rare words, has a high perplexity with documents or without."
)


def perplexity(
    corpus: str, by_lm: dict[str, dict], parameters: dict[str, int | None], families: dict[str, str | None], top_k: int
) -> list[str | Table | Figure]:
    """Perplexity without documents and with those of each retriever; `by_lm` are a corpus's figures by model."""
    if not by_lm:
        return []
    retrieved = dict.fromkeys(name for metrics in by_lm.values() for name, k in by_setting(metrics) if k == top_k)
    labels = {"none": "none"} | {name: f"{name}_k{top_k}" for name in retrievers_of(retrieved)}
    by_word = {
        name: [interval(metrics.get(f"word_perplexity_{name_k}")) for metrics in by_lm.values()]
        for name, name_k in labels.items()
    }
    by_word = {name: row for name, row in by_word.items() if any(math.isfinite(one.value) for one in row)}
    caption = f"{label(corpus)}: perplexity by language model, without documents and with {top_k}."
    kinds = ("word_perplexity", "perplexity", "bpb", "gain")
    return [
        f"{label(corpus)}: its test queries are read with documents of the same corpus. {NOTE}",
        figures.bars(
            f"{corpus}-perplexity",
            list(by_lm),
            by_word,
            y="perplexity by word",
            caption=caption,
        ),
        *_by_size(corpus, by_word, list(by_lm), parameters, families, top_k),
        Table(
            f"{corpus}-perplexity",
            caption,
            [
                *("language model", "parameters", "documents", "queries"),
                *("by word", "by token", "bits per byte", "saved against none, %"),
            ],
            [
                [lm, parameters.get(lm), label(name), metrics["queries"]]
                + [interval(metrics.get(f"{kind}_{labels[name]}")) for kind in kinds]
                for lm, metrics in by_lm.items()
                for name in by_word
            ],
        ),
    ]


def _by_size(
    corpus: str,
    by_word: dict[str, list[Interval]],
    lms: list[str],
    parameters: dict[str, int | None],
    families: dict[str, str | None],
    top_k: int,
) -> list[Figure]:
    """Perplexity by the size of the language model: a figure for each family with two models of known size."""
    sized = sorted((size, i) for i, lm in enumerate(lms) if (size := parameters.get(lm)))
    several, drawn = len({families.get(lm) for lm in lms}) > 1, []
    for family in dict.fromkeys(families.get(lm) for lm in lms):
        of_family = [(size, i) for size, i in sized if families.get(lms[i]) == family]
        if len(of_family) < 2:
            continue
        sizes = [size for size, _ in of_family]
        title = f"{family or 'unnamed'} family, " if several else ""
        drawn.append(
            figures.lines(
                f"{corpus}-perplexity-by-size" + (f"-{family}" if several else ""),
                {name: (sizes, [row[i] for _, i in of_family]) for name, row in by_word.items()},
                x="parameters of the language model",
                y="perplexity by word",
                log_x=True,
                caption=f"{label(corpus)}: perplexity by the size of the language model, {title}without documents and "
                f"with {top_k}.",
            )
        )
    return drawn
