"""The report's sections on language modelling, perplexity and rare words (REPLUG, 6 and 7)."""

from __future__ import annotations

import math

from pipelines import catalogue
from pipelines.evaluation.stage_metrics import retrievers_of
from pipelines.intervals import interval
from pipelines.report.entries import Drawn, Entry, Row, Shown
from pipelines.report.figures import bars, lines
from pipelines.report.inputs import Inputs
from pipelines.report.page import label, show

# language modelling with REPLUG


def _bits(inputs: Inputs) -> list[Row]:
    """Bits per byte of the main corpus, without documents and by their number, of each language model."""
    rows = [row for row in inputs.tables["bits_per_byte"] if row["corpus"] == inputs.main_corpus]
    return [row | {"parameters": inputs.sizes.get(row["lm"])} for row in rows]


def _drawn_by_k(inputs: Inputs) -> list[Row]:
    """Those of the main language model; no document is a line over all numbers (Figure 4)."""
    rows = [row for row in _bits(inputs) if row["lm"] == inputs.main]
    ends = {1, max((row["k"] for row in rows), default=0)} - {0}
    none = [row | {"k": k} for row in rows for k in sorted(ends) if not row["k"]]
    return [*none, *(row for row in rows if row["k"])]


def _saved_by_lm(inputs: Inputs) -> list[Row]:
    """The bits that documents save, of several language models, the smaller ones first (Table 1)."""
    rows = [row for row in _bits(inputs) if row["k"] == inputs.chosen.replug.top_k]
    return sorted(rows, key=lambda row: row["parameters"] or math.inf)


def _by_subset(inputs: Inputs) -> list[Row]:
    """Bits per byte by subset of the main corpus, the largest first; nothing if there is but one."""
    return [
        {"lm": lm, "subset": subset, "queries": of["queries"], "source_documents": of["source_documents"]}
        | {"retriever": name, "bits_per_byte": interval(of[name]["bpb"]), "saved": interval(of[name].get("gain"))}
        for lm, found in inputs.scored(inputs.main_corpus).items()
        for subset, of in sorted(found.get("subsets", {}).items(), key=lambda item: (-item[1]["queries"], item[0]))
        if len(found["subsets"]) > 1
        for name in ("none", *retrievers_of(of))
    ]


def _by_datastore(inputs: Inputs) -> list[Row]:
    """Bits per byte of the main language model by the share of the corpus that is searched.

    No document is a line over all shares.
    """
    found = inputs.scored(inputs.main_corpus).get(inputs.main, {}).get("datastore", {})
    bits = {float(share): interval(of["bpb"]) for share, of in found.items() if share != "queries"}
    none = bits.pop(0.0, None)
    if none is None or len(bits) < 2:
        return []
    points = [("none", share, none) for share in (min(bits), max(bits))] + [("dense", *one) for one in bits.items()]
    return [dict(zip(("retriever", "share", "bits_per_byte"), point, strict=True)) for point in points]


def _saves(inputs: Inputs, rule: str) -> str:
    """What the best retriever's documents save the main language model, and what random ones do."""
    top_k = inputs.chosen.replug.top_k
    rows = [row for row in _bits(inputs) if row["lm"] == inputs.main and math.isfinite(row["saved"].value)]
    in_use = [row for row in rows if row["k"] == top_k]
    if not in_use:
        return ""
    best = max(in_use, key=lambda row: row["saved"].value)
    shares = {row["retriever"]: f"{show(row['saved'], digits=1)} %" for row in in_use}
    others = shares.keys() - {best["retriever"]}
    random = f"; random documents save {shares['random']}" if "random" in others else ""
    of_best = [row for row in rows if row["retriever"] == best["retriever"]]
    most = max(of_best, key=lambda row: (row["saved"].value, row["k"] == top_k))
    other = f" The best number is {most['k']}, which saves {show(most['saved'], digits=1)} %." * (most is not best)
    return (
        f"With {top_k} documents of {label(best['retriever'])}, REPLUG saves {inputs.main} {shares[best['retriever']]} "
        f"of the bits per byte of {label(inputs.main_corpus)}{random}.{other}"
    )


REPLUG = Entry(
    "replug",
    "Language modelling with REPLUG",
    [
        Drawn(
            lines, "bits-per-byte-by-k", _drawn_by_k, "k", "bits_per_byte",
            lambda inputs, rows: f"{rows[0]['lm']} on {label(inputs.main_corpus)}: bits per byte by the number of "
            "documents. Random documents show what the ensemble alone does.",
            {"x": "documents in the ensemble, k", "y": "bits per byte"}, series="retriever",
        ),
        "Bits per byte of the held-out continuations; fewer are better. Each document is put in front of the context "
        "on its own, and the model's predictions are averaged, weighted by similarity. Intervals are bootstraps over "
        "source documents.",
        Shown(
            "bits-per-byte", _bits,
            ["retriever", "lm", "parameters", "k", "bits_per_byte", "saved", "saved_over_random", "saved_over_dense"],
            lambda inputs, rows: f"{label(inputs.main_corpus)}: bits per byte without documents and by their number, k "
            f"({inputs.chosen.replug.top_k} in use), and the bits saved in per cent, also against as many random ones.",
        ),
        Drawn(
            bars, "saved-by-lm", _saved_by_lm, "lm", "saved",
            lambda inputs, rows: f"{label(inputs.main_corpus)}: bits saved by {inputs.chosen.replug.top_k} documents, "
            "by language model. Smaller models come first; those of unknown size come last.",
            {"y": "bits saved, %"}, series="retriever",
        ),
        Shown(
            "bits-per-byte-by-subset", _by_subset,
            ["subset", "lm", "retriever", "queries", "source_documents", "bits_per_byte", "saved"],
            "Bits per byte by subset, without documents and with those in use. An interval over few source documents "
            "is too narrow; over a single one it has no width.",
        ),
        Drawn(
            lines, "bits-per-byte-by-datastore", _by_datastore, lambda row: 100 * row["share"],
            "bits_per_byte",
            lambda inputs, rows: f"{inputs.main} on {label(inputs.main_corpus)}: bits per byte by the size of the "
            "datastore, with documents of the dense retriever. Each share contains the smaller ones.",
            {"x": "documents searched, % of the corpus", "y": "bits per byte", "log_x": True}, series="retriever",
        ),
    ],
    _saves,
)  # fmt: skip

# perplexity by the size of the language model (Figure 5)

PERPLEXITY_NOTE = (
    "The test queries are read with documents of the same corpus. Perplexity by word can be compared between language "
    "models; perplexity by token cannot, because models cut texts into different tokens. Lower is better. A model that "
    "was not trained on text in a corpus's spelling, such as spaces around punctuation and <unk> for rare words, has a "
    "high perplexity with documents or without."
)


def _perplexity(inputs: Inputs) -> list[Row]:
    """Of the scored corpora but the main one, unless the main one only judges."""
    families = {row["lm"]: row["family"] for row in inputs.tables["models"]}
    judged = [of for of in inputs.parts.scored if of != inputs.main_corpus or not catalogue.DATASETS[of].learn]
    return [
        row | {"parameters": inputs.sizes.get(row["lm"]), "family": families.get(row["lm"]) or "unnamed"}
        for row in inputs.tables["bits_per_byte"]
        if row["corpus"] in judged and row["k"] in (0, inputs.chosen.replug.top_k)
    ]


def _by_family(inputs: Inputs) -> list[Row]:
    """Those of known size, by family and size."""
    rows = sorted((row for row in _perplexity(inputs) if row["parameters"]), key=lambda row: row["parameters"])
    return [row | {"of": f"{label(row['corpus'])}, {row['family']} family"} for row in rows]


PERPLEXITY = Entry(
    "perplexity",
    "Perplexity",
    [
        Drawn(
            bars, "perplexity", _perplexity, "lm", "word_perplexity",
            "perplexity by language model, without documents and with them.", {"y": "perplexity by word"},
            series="retriever", each="corpus",
        ),
        PERPLEXITY_NOTE,
        Drawn(
            lines, "perplexity-by-size", _by_family, "parameters", "word_perplexity",
            "perplexity by the size of the language model, without documents and with them.",
            {"x": "parameters of the language model", "y": "perplexity by word", "log_x": True},
            series="retriever", each="of", least=2,
        ),
        Shown(
            "perplexity", _perplexity,
            ["retriever", "corpus", "lm", "parameters", "word_perplexity", "perplexity", "bits_per_byte", "saved"],
            "Perplexity by language model, without documents and with them.",
            {"word_perplexity": "by word", "perplexity": "by token"},
        ),
    ],
)  # fmt: skip
