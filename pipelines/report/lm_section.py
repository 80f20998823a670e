"""The report's section on language modelling: bits per byte of the Pile, by every setting (REPLUG §6)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from pipelines.evaluation.replug_tables import RETRIEVERS
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.report import figures, wikitext_section
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, Section, Table, label

ORDER = ("none", *RETRIEVERS)
DRAWN = 6  # subsets in the figure; the table has all


def language_modelling(inputs: Inputs, top_k: int) -> Section:
    """REPLUG's Table 1, bits per byte by k, temperature, subset and size of the corpus, and its Figure 5."""
    title, pile, of_wikitext = (
        "Language modelling with REPLUG",
        _of(inputs, inputs.main_corpus),
        _of(inputs, "wikitext"),
    )
    if not pile:
        return Section("replug", title, missing="No query was scored.")
    blocks = [
        "Bits per byte of the held-out continuations: fewer are better. Documents are put in front of the context "
        "one by one and the model's predictions are averaged, weighted by similarity. Intervals are bootstraps over "
        "source documents.",
        Table(
            "bits-per-byte",
            f"{label(inputs.main_corpus)}: bits per byte without documents and with {top_k}, and the bits saved in per cent.",
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
        *_by_lm(pile, inputs.sizes, top_k),
        *_by_k(pile),
        *_sharpened(pile),
        *_subsets(pile, top_k),
        *_datastore(pile, top_k),
    ]
    missing = "" if of_wikitext else "This run has no WikiText."
    blocks += wikitext_section.perplexity(of_wikitext, inputs.sizes, inputs.families, top_k)
    return Section("replug", title, blocks, missing)


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


def _of_lms(
    pile: dict[str, dict], name: str, caption: str, head: Sequence[str], rows: Callable[[dict], list[list]]
) -> Table:
    """A table of what `rows` makes of each language model's metrics; where there are several, it names them."""
    if len(pile) == 1:
        ((lm, own),) = pile.items()
        return Table(name, f"{lm} on the Pile: {caption}", head, rows(own))
    every = [[lm, *row] for lm, own in pile.items() for row in rows(own)]
    return Table(name, f"The Pile: {caption}", ["language model", *head], every)


def _by_lm(pile: dict[str, dict], parameters: dict[str, int | None], top_k: int) -> list[Figure]:
    """Table 1's gains, where there are several language models."""
    lms = sorted(pile, key=lambda lm: parameters.get(lm) or math.inf)
    known = {name: f"gain_{name}_k{top_k}" for name in ORDER[1:]}
    known = {name: key for name, key in known.items() if all(key in own for own in pile.values())}
    if len(pile) < 2 or not known:
        return []
    drawn = {name: [interval(pile[lm][key]) for lm in lms] for name, key in known.items()}
    said = "; ".join(
        f"{lm} " + ", ".join(f"{label(name)} {own[i].value:+.1f} %" for name, own in drawn.items())
        for i, lm in enumerate(lms)
    )
    return [
        figures.bars(
            "saved-by-lm",
            lms,
            drawn,
            y="bits saved, %",
            caption=f"The Pile: bits per byte saved by {top_k} documents, by language model, smaller ones first where "
            "sizes are known.",
            alt=f"Bar chart of the bits per byte that documents save by language model: {said}.",
        )
    ]


def _by_k(pile: dict[str, dict]) -> list[Table | Figure]:
    """Retrieved against random documents as their number grows (Figure 4)."""
    lm, bits = next((lm, _by_setting(own)) for lm, own in pile.items())
    by_k = {
        name: (ks, [bits[name, k] for k in ks])
        for name in ORDER[1:]
        for ks in [sorted(k for found, k in bits if found == name)]
        if ks
    }
    none, top = bits.get(("none", 0), NOTHING), max(k for _, k in bits)
    drawn = {"none": ([1, top], [none, none])} | by_k
    said = "; ".join(f"{label(name)} {own[-1].value:.3f}" for name, (_, own) in drawn.items())

    def rows(metrics: dict) -> list[list]:
        own = _by_setting(metrics)
        return [
            [k, *(own.get((name, k), NOTHING) for name in by_k)]
            + [interval(metrics.get(f"gain_over_random_{name}_k{k}")) for name in by_k if name != "random"]
            for k in sorted({k for _, k in own} - {0})
        ]

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
        _of_lms(
            pile,
            "bits-per-byte-by-k",
            "bits per byte by the number of documents, and in per cent what as many retrieved ones save against random "
            "ones.",
            ["k", *map(label, by_k), *(f"{label(name)} against random, %" for name in by_k if name != "random")],
            rows,
        ),
    ]


def _sharpened(pile: dict[str, dict]) -> list[Table]:
    """The sweep of lambda's temperature, where the metrics have it."""

    def swept(metrics: dict) -> dict[tuple[str, float], Interval]:
        matches = {key: re.fullmatch(r"bpb_(\w+?)_k(\d+)_t([\d.]+)", key) for key in metrics}
        return {(m[1], float(m[3])): interval(metrics[key]) for key, m in matches.items() if m}

    cells = swept(next(iter(pile.values())))
    temperatures = sorted({temperature for _, temperature in cells}, reverse=True)

    def rows(metrics: dict) -> list[list]:
        own = swept(metrics)
        return [
            [label(name), *(own.get((name, temperature), NOTHING) for temperature in temperatures)]
            for name in ORDER
            if any(found == name for found, _ in own)
        ]

    head = ["documents", *(f"temperature {temperature:g}" for temperature in temperatures)]
    caption = (
        "bits per byte by the temperature of lambda. The paper's 1 weighs documents almost alike, a lower one favours "
        "the most similar."
    )
    return [_of_lms(pile, "bits-per-byte-by-temperature", caption, head, rows)] if cells else []


def _subsets(pile: dict[str, dict], top_k: int) -> list[Table | Figure]:
    """Bits per byte by subset of the Pile, the largest first; nothing where there is but one."""

    def ordered(metrics: dict) -> list[tuple[str, dict]]:
        return sorted(metrics.get("subsets", {}).items(), key=lambda item: (-item[1]["queries"], item[0]))

    def rows(metrics: dict) -> list[list]:
        return [
            [subset, own["queries"], own["source_documents"], *(interval(own[name]["bpb"]) for name in names)]
            for subset, own in ordered(metrics)
        ]

    lm, subsets = next((lm, ordered(own)) for lm, own in pile.items())
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
        _of_lms(
            pile,
            "bits-per-byte-by-subset",
            f"bits per byte by subset, without documents and with {top_k}. An interval over few source documents is "
            "too narrow, over one it has no width.",
            ["subset", "queries", "source documents", *map(label, names)],
            rows,
        ),
    ]


def _datastore(pile: dict[str, dict], top_k: int) -> list[Table | Figure]:
    """Bits per byte by the share of the corpus that is searched."""
    lm, curve = next((lm, dict(own.get("datastore", {}))) for lm, own in pile.items())
    queries, none = curve.pop("queries", 0), interval(curve.pop("0", {}).get("bpb"))
    if not curve:
        return []
    shares = sorted(curve, key=float)
    percent = [100 * float(share) for share in shares]
    bits = [interval(curve[share]["bpb"]) for share in shares]

    def rows(metrics: dict) -> list[list]:
        own = metrics["datastore"]
        bits, gains = ([interval(own[share][kind]) for share in shares] for kind in ("bpb", "gain"))
        return [[0, interval(own["0"]["bpb"]), NOTHING], *map(list, zip(percent, bits, gains, strict=True))]

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
        _of_lms(
            pile,
            "bits-per-byte-by-datastore",
            "bits per byte by the size of the datastore.",
            ["share of the documents, %", "bits per byte", "saved against none, %"],
            rows,
        ),
    ]
