"""The report's section on language modelling: bits per byte, WikiText's perplexity, the datastore curve (REPLUG §6)."""

from __future__ import annotations

import re

from pipelines.evaluation.intervals import NOTHING, Interval
from pipelines.report import figures
from pipelines.report.inputs import Inputs, interval
from pipelines.report.page import Figure, Section, Table, label

ORDER = ("none", "random", "bm25", "dense", "lsr")
DRAWN = 6  # subsets in the figure; the table has all


def language_modelling(inputs: Inputs, top_k: int) -> Section:
    """REPLUG's Table 1, bits per byte by k, temperature, subset and size of the corpus, and its Figure 5."""
    title, pile, wikitext = "Language modelling with REPLUG", _of(inputs, "pile"), _of(inputs, "wikitext")
    if not pile:
        return Section("replug", title, missing="No query was scored.")
    main, own = next(iter(pile.items()))
    bits = _by_setting(own)
    blocks = [
        "Bits per byte of the held-out continuations: fewer are better. Documents are put in front of the context "
        "one by one and the model's predictions are averaged, weighted by similarity. Intervals are bootstraps over "
        "source documents.",
        Table(
            "bits-per-byte",
            f"The Pile: bits per byte without documents and with {top_k}, and the bits saved in per cent.",
            [
                "language model",
                "parameters",
                "documents",
                "k",
                "bits per byte",
                "saved against none, %",
                "saved against dense, %",
            ],
            [
                [lm, inputs.sizes.get(lm), label(name), k, _by_setting(of_lm)[name, k], *_gains(of_lm, name, k)]
                for lm, of_lm in pile.items()
                for name, k in _settings(_by_setting(of_lm), top_k)
            ],
        ),
        *_by_k(main, own, bits),
        *_sharpened(main, own),
        *_subsets(main, own, top_k),
        *_datastore(main, own, top_k),
    ]
    missing = "" if wikitext else "This run has no WikiText."
    return Section("replug", title, blocks + _wikitext(wikitext, inputs.sizes, top_k), missing)


def _of(inputs: Inputs, corpus: str) -> dict[str, dict]:
    """A corpus's metrics by language model, the main one first; only those with some."""
    found = inputs.metrics.get("language_modelling", {}).get(corpus, {})
    return {lm: found[lm] for lm in inputs.models if "bpb_none" in found.get(lm, {})}


def _settings(bits: dict[tuple[str, int], Interval], top_k: int) -> list[tuple[str, int]]:
    return [(name, k) for name in ORDER for k in (0 if name == "none" else top_k,) if (name, k) in bits]


def _gains(metrics: dict, name: str, k: int) -> list[Interval]:
    none = interval(metrics.get(f"gain_{name}_k{k}"))
    return [none, interval(metrics.get(f"lsr_gain_k{k}")) if name == "lsr" else NOTHING]


def _by_setting(metrics: dict) -> dict[tuple[str, int], Interval]:
    found = {("none", 0): interval(metrics["bpb_none"])} if "bpb_none" in metrics else {}
    for key, figure in metrics.items():
        if match := re.fullmatch(r"bpb_(\w+?)_k(\d+)", key):
            found[match[1], int(match[2])] = interval(figure)
    return found


def _by_k(lm: str, metrics: dict, bits: dict[tuple[str, int], Interval]) -> list[Table | Figure]:
    """Retrieved against random documents as their number grows (Figure 4)."""
    by_k = {
        name: (ks, [bits[name, k] for k in ks])
        for name in ORDER[1:]
        for ks in [sorted(k for found, k in bits if found == name)]
        if ks
    }
    none, top = bits.get(("none", 0), NOTHING), max(k for _, k in bits)
    drawn = {"none": ([1, top], [none, none])} | by_k
    said = "; ".join(f"{label(name)} {own[-1].value:.3f}" for name, (_, own) in drawn.items())
    return [
        figures.lines(
            "bits-per-byte-by-k",
            drawn,
            x="documents in the ensemble, k",
            y="bits per byte",
            caption=f"{lm} on the Pile: bits per byte by the number of documents. Random documents are the control for "
            "the ensemble itself.",
            alt=f"Line chart of bits per byte by number of documents. With the most documents: {said}.",
        ),
        Table(
            "bits-per-byte-by-k",
            f"{lm} on the Pile: bits per byte by the number of documents, and in per cent what as many retrieved ones "
            "save against random ones.",
            ["k", *map(label, by_k), *(f"{label(name)} against random, %" for name in by_k if name != "random")],
            [
                [k, *(bits.get((name, k), NOTHING) for name in by_k)]
                + [interval(metrics.get(f"gain_over_random_{name}_k{k}")) for name in by_k if name != "random"]
                for k in sorted({k for _, k in bits} - {0})
            ],
        ),
    ]


def _sharpened(lm: str, metrics: dict) -> list[Table]:
    """The sweep of lambda's temperature, where the metrics have it."""
    matches = {key: re.fullmatch(r"bpb_(\w+?)_k(\d+)_t([\d.]+)", key) for key in metrics}
    cells = {(m[1], float(m[3])): interval(metrics[key]) for key, m in matches.items() if m}
    temperatures = sorted({temperature for _, temperature in cells}, reverse=True)
    if not cells:
        return []
    return [
        Table(
            "bits-per-byte-by-temperature",
            f"{lm} on the Pile: bits per byte by the temperature of lambda. The paper's 1 weighs documents almost "
            "alike, a lower one favours the most similar.",
            ["documents", *(f"temperature {temperature:g}" for temperature in temperatures)],
            [
                [label(name), *(cells.get((name, temperature), NOTHING) for temperature in temperatures)]
                for name in ORDER
                if any(found == name for found, _ in cells)
            ],
        )
    ]


def _subsets(lm: str, metrics: dict, top_k: int) -> list[Table | Figure]:
    """Bits per byte by subset of the Pile, the largest first; nothing where there is but one."""
    subsets = sorted(metrics.get("subsets", {}).items(), key=lambda item: (-item[1]["queries"], item[0]))
    names = [name for name in ORDER if all(name in own for _, own in subsets)]
    if len(subsets) < 2:
        return []
    drawn = {name: [interval(own[name]["gain"]) for _, own in subsets[:DRAWN]] for name in names if name != "none"}
    said = "; ".join(f"{subset} {interval(own['dense']['gain']).value:+.1f} %" for subset, own in subsets[:DRAWN])
    return [
        figures.bars(
            "saved-by-subset",
            [subset for subset, _ in subsets[:DRAWN]],
            drawn,
            y="bits saved, %",
            caption=f"{lm}: bits per byte saved by {top_k} documents, by subset of the Pile"
            f"{f' (the {DRAWN} with the most queries)' if len(subsets) > DRAWN else ''}.",
            alt=f"Bar chart of the bits per byte that documents save by subset. With the dense retriever: {said}.",
        ),
        Table(
            "bits-per-byte-by-subset",
            f"{lm}: bits per byte by subset of the Pile, without documents and with {top_k}.",
            ["subset", "queries", *map(label, names)],
            [[subset, own["queries"], *(interval(own[name]["bpb"]) for name in names)] for subset, own in subsets],
        ),
    ]


def _datastore(lm: str, metrics: dict, top_k: int) -> list[Table | Figure]:
    """Bits per byte by the share of the corpus that is searched."""
    curve = dict(metrics.get("datastore", {}))
    queries, none = curve.pop("queries", 0), interval(curve.pop("0", {}).get("bpb"))
    if not curve:
        return []
    shares = sorted(curve, key=float)
    percent = [100 * float(share) for share in shares]
    bits = [interval(curve[share]["bpb"]) for share in shares]
    return [
        figures.lines(
            "bits-per-byte-by-datastore",
            {"none": ([percent[0], percent[-1]], [none, none]), "dense": (percent, bits)},
            x="documents searched, % of the corpus",
            y="bits per byte",
            log_x=True,
            caption=f"{lm} on the Pile: bits per byte by the size of the datastore, {top_k} documents of the dense "
            f"retriever; {queries:,} queries. A share holds the documents of the smaller ones.",
            alt=f"Line chart of bits per byte by the share of the corpus that is searched: from {bits[0].value:.3f} "
            f"with {percent[0]:g} % of it to {bits[-1].value:.3f} with all, {none.value:.3f} without documents.",
        ),
        Table(
            "bits-per-byte-by-datastore",
            f"{lm} on the Pile: bits per byte by the size of the datastore.",
            ["share of the documents, %", "bits per byte", "saved against none, %"],
            [
                [0, none, NOTHING],
                *([p, b, interval(curve[s]["gain"])] for s, p, b in zip(shares, percent, bits, strict=True)),
            ],
        ),
    ]


def _wikitext(by_lm: dict[str, dict], parameters: dict[str, int | None], top_k: int) -> list[str | Table | Figure]:
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
        "WikiText: its test split is read with documents of its training split. Perplexity by word is comparable "
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
        *_by_size(words, list(by_lm), parameters, top_k),
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
    words: dict[str, list[Interval]], lms: list[str], parameters: dict[str, int | None], top_k: int
) -> list[Figure]:
    """WikiText's perplexity by the size of the language model, where there are two of known size."""
    sized = sorted((size, i) for i, lm in enumerate(lms) if (size := parameters.get(lm)))
    if len(sized) < 2:
        return []
    sizes, order = [size for size, _ in sized], [i for _, i in sized]
    said = "; ".join(f"{lms[i]} {words['none'][i].value:,.1f}, {words['dense'][i].value:,.1f}" for i in order)
    return [
        figures.lines(
            "wikitext-perplexity-by-size",
            {name: (sizes, [own[i] for i in order]) for name, own in words.items()},
            x="parameters of the language model",
            y="perplexity by word",
            log_x=True,
            caption=f"WikiText: perplexity by the size of the language model, without documents and with {top_k}.",
            alt=f"Line chart of WikiText perplexity by word, smaller language models first, without documents and with "
            f"dense retrieval: {said}.",
        )
    ]
