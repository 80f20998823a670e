"""WikiText's perplexity in the report's section on language modelling: by language model and its size (REPLUG §7.1)."""

from __future__ import annotations

from pipelines.evaluation.replug_tables import RETRIEVERS
from pipelines.intervals import Interval, interval
from pipelines.report import figures
from pipelines.report.page import Figure, Table, label

ORDER = ("none", *RETRIEVERS)


def perplexity(
    by_lm: dict[str, dict], parameters: dict[str, int | None], families: dict[str, str | None], top_k: int
) -> list[str | Table | Figure]:
    """WikiText's perplexity by language model, its size and the retriever (REPLUG, Figure 5)."""
    if not by_lm:
        return []
    labels = {name: f"{name}_k{top_k}" if name != "none" else name for name in ORDER}
    words = {
        name: [interval(own.get(f"word_perplexity_{known}")) for own in by_lm.values()]
        for name, known in labels.items()
    }
    said = "; ".join(
        f"{lm} {words['none'][i].value:,.1f} without documents, {words['dense'][i].value:,.1f} with dense retrieval"
        for i, lm in enumerate(by_lm)
    )
    return [
        "WikiText: its test split is read with documents of its training split. No token is predicted twice, "
        "each from the context before it, and an article's first context is not. Perplexity by word is comparable "
        "between language models, by token it is not; lower is better. A model that has never read text as WikiText "
        "spells it (punctuation standing apart, rare words replaced by <unk>), as the sample's, can make little of it, "
        "with documents or without.",
        figures.bars(
            "wikitext-perplexity",
            list(by_lm),
            words,
            y="perplexity by word",
            caption=f"WikiText: perplexity by language model, without documents and with {top_k}.",
            alt=f"Bar chart of WikiText perplexity by word: {said}.",
        ),
        *_by_size(words, list(by_lm), parameters, families, top_k),
        Table(
            "wikitext-perplexity",
            f"WikiText: perplexity by language model, without documents and with {top_k}.",
            [
                "language model",
                "parameters",
                "documents",
                "queries",
                "by word",
                "by token",
                "bits per byte",
                "saved against none, %",
            ],
            [
                [lm, parameters.get(lm), label(name), own["queries"]]
                + [interval(own.get(f"{kind}_{known}")) for kind in ("word_perplexity", "perplexity", "bpb", "gain")]
                for lm, own in by_lm.items()
                for name, known in labels.items()
            ],
        ),
    ]


def _by_size(
    words: dict[str, list[Interval]],
    lms: list[str],
    parameters: dict[str, int | None],
    families: dict[str, str | None],
    top_k: int,
) -> list[Figure]:
    """WikiText's perplexity by the size of the language model, a figure for each family with two of known size."""
    sized = sorted((size, i) for i, lm in enumerate(lms) if (size := parameters.get(lm)))
    several, drawn = len({families.get(lm) for lm in lms}) > 1, []
    for family in dict.fromkeys(families.get(lm) for lm in lms):
        own = [(size, i) for size, i in sized if families.get(lms[i]) == family]
        if len(own) < 2:
            continue
        sizes, order = [size for size, _ in own], [i for _, i in own]
        said = "; ".join(f"{lms[i]} {words['none'][i].value:,.1f}, {words['dense'][i].value:,.1f}" for i in order)
        of = f"{family or 'unnamed'} family, " if several else ""
        drawn.append(
            figures.lines(
                "wikitext-perplexity-by-size" + (f"-{family}" if several else ""),
                {name: (sizes, [found[i] for i in order]) for name, found in words.items()},
                x="parameters of the language model",
                y="perplexity by word",
                log_x=True,
                caption=f"WikiText: perplexity by the size of the language model, {of}without documents and with "
                f"{top_k}.",
                alt=f"Line chart of WikiText perplexity by word, {of}smaller language models first, without documents "
                f"and with dense retrieval: {said}.",
            )
        )
    return drawn
