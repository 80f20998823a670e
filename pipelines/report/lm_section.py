"""The report's section on language modelling: bits per byte of the main corpus, by every setting (REPLUG, 6)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from pipelines import catalogue, methods
from pipelines.evaluation.stage_metrics import by_setting, retrievers_of
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.report import controls_section, figures, perplexity_section
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, Section, Table, label, show

DRAWN = 6  # subsets in the figure; the table has all


def language_modelling(inputs: Inputs, top_k: int) -> Section:
    """REPLUG's Table 1, bits per byte by k, temperature, subset and size of the corpus, and its Figure 5.

    These are of the main corpus. The other scored corpora have perplexity, and so has a main one that only judges.
    """
    corpus, title = inputs.main_corpus, "Language modelling with REPLUG"
    by_lm, blocks = inputs.scored(corpus), []
    if by_lm:
        blocks += [
            "Bits per byte of the held-out continuations; fewer are better. Each document is put in front of the "
            "context on its own, and the model's predictions are averaged, weighted by similarity. Intervals are "
            "bootstraps over source documents.",
            *_by_k(corpus, by_lm),
            _by_retriever(corpus, by_lm, inputs.sizes, top_k),
            *_by_lm(corpus, by_lm, inputs.sizes, top_k),
            *_by_temperature(corpus, by_lm),
            *controls_section.settings(corpus, by_lm),
            *controls_section.controls(corpus, by_lm),
            *_by_subset(corpus, by_lm, top_k),
            *_by_datastore(corpus, by_lm, top_k),
        ]
    for other in inputs.parts.scored:
        if other != corpus or not catalogue.DATASETS[other].learn:
            of_other = inputs.scored(other)
            blocks += perplexity_section.perplexity(other, of_other, inputs.sizes, inputs.families, top_k)
    return Section("replug", title, blocks, says=_says(corpus, by_lm, top_k))


def _says(corpus: str, by_lm: dict[str, dict], top_k: int) -> str:
    """What the best retriever's documents save the main language model, and what random ones do."""
    lm, metrics = next(iter(by_lm.items()), ("", {}))
    saved = {name: interval(metrics.get(f"gain_{name}_k{k}")) for name, k in by_setting(metrics) if k == top_k}
    saved = {name: gain for name, gain in saved.items() if math.isfinite(gain.value)}
    if not saved:
        return ""
    best = max(saved, key=lambda name: saved[name].value)
    random = (
        f"; random documents save {show(saved['random'], digits=1)} %" if "random" in saved and best != "random" else ""
    )
    by_k = {k: interval(metrics.get(f"gain_{best}_k{k}")) for name, k in by_setting(metrics) if name == best}
    most = max((k for k in by_k if math.isfinite(by_k[k].value)), key=lambda k: (by_k[k].value, k == top_k))
    other = f" The best number is {most}, which saves {show(by_k[most], digits=1)} %." if most != top_k else ""
    other = other and other + " More documents save less." * (most < top_k)
    return (
        f"With {top_k} documents of {label(best)}, REPLUG saves {lm} {show(saved[best], digits=1)} % of the bits per "
        f"byte of {label(corpus)}{random}.{other}"
    )


def _by_retriever(corpus: str, by_lm: dict[str, dict], parameters: dict[str, int | None], top_k: int) -> Table:
    rows = []
    for lm, metrics in by_lm.items():
        bits = by_setting(metrics)
        names = methods.ordered(dict.fromkeys(name for name, _ in bits))
        for name, k in [(name, 0 if name == "none" else top_k) for name in names]:
            if (name, k) in bits:
                saved = interval(metrics.get(f"gain_{name}_k{k}"))
                against_dense = interval(metrics.get(f"{name}_gain_k{k}"))  # of tuned retrievers alone
                rows.append([lm, parameters.get(lm), label(name), k, bits[name, k], saved, against_dense])
    return Table(
        "bits-per-byte",
        f"{label(corpus)}: bits per byte without documents and with {top_k}, and the bits saved in per cent.",
        [
            *("language model", "parameters", "documents", "k"),
            *("bits per byte", "saved against none, %", "saved against dense, %"),
        ],
        rows,
    )


def _table(
    corpus: str, by_lm: dict[str, dict], name: str, caption: str, head: Sequence[str], rows: Callable[[dict], list]
) -> Table:
    """A table of what `rows` makes of each language model's figures; with several models, it has a column for them."""
    if len(by_lm) == 1:
        ((lm, metrics),) = by_lm.items()
        return Table(name, f"{lm} on {label(corpus)}: {caption}", head, rows(metrics))
    of_all = [[lm, *row] for lm, metrics in by_lm.items() for row in rows(metrics)]
    return Table(name, f"{label(corpus)}: {caption}", ["language model", *head], of_all)


def _by_lm(corpus: str, by_lm: dict[str, dict], parameters: dict[str, int | None], top_k: int) -> list[Figure]:
    """The bits saved by language model (Table 1); nothing if there is but one."""
    lms = sorted(by_lm, key=lambda lm: parameters.get(lm) or math.inf)
    retrieved = retrievers_of(dict.fromkeys(name for metrics in by_lm.values() for name, _ in by_setting(metrics)))
    keys = {name: f"gain_{name}_k{top_k}" for name in retrieved}
    keys = {name: key for name, key in keys.items() if all(key in metrics for metrics in by_lm.values())}
    if len(by_lm) < 2 or not keys:
        return []
    saved = {name: [interval(by_lm[lm][key]) for lm in lms] for name, key in keys.items()}
    return [
        figures.bars(
            "saved-by-lm",
            lms,
            saved,
            y="bits saved, %",
            caption=f"{label(corpus)}: bits saved by {top_k} documents, by language model. Smaller models come first; "
            "those of unknown size come last.",
        )
    ]


def _by_k(corpus: str, by_lm: dict[str, dict]) -> list[Table | Figure]:
    """Retrieved against random documents as their number grows (Figure 4)."""
    lm, bits = next((lm, by_setting(metrics)) for lm, metrics in by_lm.items())
    retrieved = retrievers_of(dict.fromkeys(name for name, _ in bits))
    by_k = {name: {k: bits[name, k] for other, k in sorted(bits) if other == name} for name in retrieved}
    if not by_k:
        return []
    none, most = bits["none", 0], max(k for _, k in bits)
    drawn = {"none": ([1, most], [none, none])} | {name: ([*row], [*row.values()]) for name, row in by_k.items()}

    def rows(metrics: dict) -> list[list]:
        bits = by_setting(metrics)
        return [
            [k, *(bits.get((name, k), NOTHING) for name in by_k)]
            + [interval(metrics.get(f"gain_over_random_{name}_k{k}")) for name in by_k if name != "random"]
            for k in sorted({k for _, k in bits} - {0})
        ]

    return [
        figures.lines(
            "bits-per-byte-by-k",
            drawn,
            x="documents in the ensemble, k",
            y="bits per byte",
            caption=f"{lm} on {label(corpus)}: bits per byte by the number of documents. Random documents show what "
            "the ensemble alone does.",
        ),
        _table(
            corpus,
            by_lm,
            "bits-per-byte-by-k",
            "bits per byte by the number of documents, and what retrieved documents save against as many random ones, "
            "in per cent.",
            ["k", *map(label, by_k), *(f"{label(name)} against random, %" for name in by_k if name != "random")],
            rows,
        ),
    ]


def _by_temperature(corpus: str, by_lm: dict[str, dict]) -> list[Table]:
    """Bits per byte by the temperature of lambda; nothing if it was not varied."""

    def by_temperature(metrics: dict) -> dict[tuple[str, float], Interval]:
        matches = {key: re.fullmatch(r"bpb_([\w-]+?)_k(\d+)_t([\d.]+)", key) for key in metrics}
        return {(match[1], float(match[3])): interval(metrics[key]) for key, match in matches.items() if match}

    first = by_temperature(next(iter(by_lm.values())))
    temperatures = sorted({temperature for _, temperature in first}, reverse=True)

    def rows(metrics: dict) -> list[list]:
        bits = by_temperature(metrics)
        return [
            [label(name), *(bits.get((name, temperature), NOTHING) for temperature in temperatures)]
            for name in methods.ordered(dict.fromkeys(name for name, _ in bits))
        ]

    head = ["documents", *(f"temperature {temperature:g}" for temperature in temperatures)]
    caption = (
        "bits per byte by the temperature of lambda. The paper's temperature, 1, weighs documents almost alike; a "
        "lower one favours the most similar."
    )
    return [_table(corpus, by_lm, "bits-per-byte-by-temperature", caption, head, rows)] if first else []


def _by_subset(corpus: str, by_lm: dict[str, dict], top_k: int) -> list[Table | Figure]:
    """Bits per byte by subset of the corpus, the largest first; nothing if there is but one."""

    def ordered(metrics: dict) -> list[tuple[str, dict]]:
        return sorted(metrics.get("subsets", {}).items(), key=lambda item: (-item[1]["queries"], item[0]))

    def rows(metrics: dict) -> list[list]:
        return [
            [name, subset["queries"], subset["source_documents"], *(interval(subset[one]["bpb"]) for one in retrievers)]
            for name, subset in ordered(metrics)
        ]

    lm, subsets = next((lm, ordered(metrics)) for lm, metrics in by_lm.items())
    if len(subsets) < 2:
        return []
    names = ["none", *retrievers_of(subsets[0][1])]
    retrievers = [name for name in names if all(name in subset for _, subset in subsets)]
    largest = subsets[:DRAWN]
    saved = {name: [interval(subset[name]["gain"]) for _, subset in largest] for name in retrievers if name != "none"}
    return [
        figures.bars(
            "saved-by-subset",
            [name for name, _ in largest],
            saved,
            y="bits saved, %",
            caption=f"{lm}: bits per byte saved by {top_k} documents, by subset of {label(corpus)}"
            f"{f' (the {DRAWN} with the most queries)' if len(subsets) > DRAWN else ''}.",
        ),
        _table(
            corpus,
            by_lm,
            "bits-per-byte-by-subset",
            f"bits per byte by subset, without documents and with {top_k}. An interval over few source documents is "
            "too narrow; over a single one it has no width.",
            ["subset", "queries", "source documents", *map(label, retrievers)],
            rows,
        ),
    ]


def _by_datastore(corpus: str, by_lm: dict[str, dict], top_k: int) -> list[Table | Figure]:
    """Bits per byte by the share of the corpus that is searched."""
    lm, curve = next((lm, dict(metrics.get("datastore", {}))) for lm, metrics in by_lm.items())
    queries, none = curve.pop("queries", 0), interval(curve.pop("0", {}).get("bpb"))
    if not curve:
        return []
    shares = sorted(curve, key=float)
    percent = [100 * float(share) for share in shares]
    bits = [interval(curve[share]["bpb"]) for share in shares]

    def rows(metrics: dict) -> list[list]:
        datastore = metrics["datastore"]
        bits, gains = ([interval(datastore[share][kind]) for share in shares] for kind in ("bpb", "gain"))
        return [[0, interval(datastore["0"]["bpb"]), NOTHING], *map(list, zip(percent, bits, gains, strict=True))]

    return [
        figures.lines(
            "bits-per-byte-by-datastore",
            {"none": ([percent[0], percent[-1]], [none, none]), "dense": (percent, bits)},
            x="documents searched, % of the corpus",
            y="bits per byte",
            log_x=True,
            caption=f"{lm} on {label(corpus)}: bits per byte by the size of the datastore, with {top_k} documents of "
            f"the dense retriever; {queries:,} queries. Each share contains the smaller ones.",
        ),
        _table(
            corpus,
            by_lm,
            "bits-per-byte-by-datastore",
            "bits per byte by the size of the datastore.",
            ["share of the documents, %", "bits per byte", "saved against none, %"],
            rows,
        ),
    ]
