"""The report's sections on language modelling, perplexity and rare words (REPLUG, 6 and 7)."""

from __future__ import annotations

import math
import re

from pipelines import catalogue, methods
from pipelines.evaluation.stage_metrics import by_setting, retrievers_of
from pipelines.intervals import interval
from pipelines.report import attribution_page, entries
from pipelines.report.entries import Drawn, Entry, Row, Shown, where
from pipelines.report.inputs import Inputs
from pipelines.report.page import Link, label, show

# language modelling with REPLUG

MOST = 6  # subsets in the figure; the table has all


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
    rows.sort(key=lambda row: row["parameters"] or math.inf)
    return rows if len({row["lm"] for row in rows}) > 1 else []


def _by_temperature(inputs: Inputs) -> list[Row]:
    """Bits per byte by the temperature of lambda; nothing if it was not varied."""
    names, rows = re.compile(r"bpb_([\w-]+?)_k(\d+)_t([\d.]+)"), []
    for lm, found in inputs.scored(inputs.main_corpus).items():
        matches = [match for key in found if (match := names.fullmatch(key))]
        order = methods.ordered({match[1] for match in matches})
        for match in sorted(matches, key=lambda match: (order.index(match[1]), -float(match[3]))):
            bits = interval(found[match[0]])
            rows.append({"lm": lm, "retriever": match[1], "temperature": float(match[3]), "bits_per_byte": bits})
    return rows


def _by_subset(inputs: Inputs) -> list[Row]:
    """Bits per byte by subset of the main corpus, the largest first; nothing if there is but one."""
    rows = []
    for lm, found in inputs.scored(inputs.main_corpus).items():
        subsets = sorted(found.get("subsets", {}).items(), key=lambda item: (-item[1]["queries"], item[0]))
        for subset, of in subsets if len(subsets) > 1 else ():
            rows += [
                {"lm": lm, "subset": subset, "queries": of["queries"], "source_documents": of["source_documents"]}
                | {"retriever": name}
                | {"bits_per_byte": interval(of[name]["bpb"]), "saved": interval(of[name].get("gain"))}
                for name in ("none", *retrievers_of(of))
            ]
    return rows


def _drawn_subsets(inputs: Inputs) -> list[Row]:
    rows = [row for row in _by_subset(inputs) if row["lm"] == inputs.main and row["retriever"] != "none"]
    kept = [*dict.fromkeys(row["subset"] for row in rows)][:MOST]
    return [row for row in rows if row["subset"] in kept]


def _by_datastore(inputs: Inputs) -> list[Row]:
    """Bits per byte by the share of the corpus that is searched."""
    return [
        {"lm": lm, "share": float(share), "retriever": "none" if share == "0" else "dense"}
        | {"bits_per_byte": interval(of["bpb"]), "saved": interval(of.get("gain"))}
        for lm, found in inputs.scored(inputs.main_corpus).items()
        for share, of in found.get("datastore", {}).items()
        if share != "queries" and len(found["datastore"]) > 2
    ]


def _drawn_datastore(inputs: Inputs) -> list[Row]:
    """Those of the main language model; no document is a line over all shares."""
    rows = [row for row in _by_datastore(inputs) if row["lm"] == inputs.main]
    shares = [row["share"] for row in rows if row["share"]]
    none = [row | {"share": share} for row in rows if not row["share"] for share in (min(shares), max(shares))]
    return [*none, *(row for row in rows if row["share"])] if rows else []


def _saves(inputs: Inputs, rule: str) -> str:
    """What the best retriever's documents save the main language model, and what random ones do."""
    corpus, top_k = inputs.main_corpus, inputs.chosen.replug.top_k
    lm, found = next(iter(inputs.scored(corpus).items()), ("", {}))
    saved = {name: interval(found.get(f"gain_{name}_k{k}")) for name, k in by_setting(found) if k == top_k}
    saved = {name: gain for name, gain in saved.items() if math.isfinite(gain.value)}
    if not saved:
        return ""
    best = max(saved, key=lambda name: saved[name].value)
    random = (
        f"; random documents save {show(saved['random'], digits=1)} %" if "random" in saved and best != "random" else ""
    )
    by_k = {k: interval(found.get(f"gain_{best}_k{k}")) for name, k in by_setting(found) if name == best}
    most = max((k for k in by_k if math.isfinite(by_k[k].value)), key=lambda k: (by_k[k].value, k == top_k))
    other = f" The best number is {most}, which saves {show(by_k[most], digits=1)} %." if most != top_k else ""
    other = other and other + " More documents save less." * (most < top_k)
    return (
        f"With {top_k} documents of {label(best)}, REPLUG saves {lm} {show(saved[best], digits=1)} % of the bits per "
        f"byte of {label(corpus)}{random}.{other}"
    )


REPLUG = Entry(
    "replug",
    "Language modelling with REPLUG",
    [
        Drawn(
            entries.lines, "bits-per-byte-by-k", _drawn_by_k, "k", "bits_per_byte",
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
            entries.bars, "saved-by-lm", _saved_by_lm, "lm", "saved",
            lambda inputs, rows: f"{label(inputs.main_corpus)}: bits saved by {inputs.chosen.replug.top_k} documents, "
            "by language model. Smaller models come first; those of unknown size come last.",
            {"y": "bits saved, %"}, series="retriever",
        ),
        Shown(
            "bits-per-byte-by-temperature", _by_temperature, ["retriever", "lm", "temperature", "bits_per_byte"],
            "Bits per byte by the temperature of lambda. The paper's temperature, 1, weighs documents almost alike; a "
            "lower one favours the most similar.",
        ),
        Drawn(
            entries.bars, "saved-by-subset", _drawn_subsets, "subset", "saved",
            lambda inputs, rows: f"{rows[0]['lm']}: bits per byte saved by {inputs.chosen.replug.top_k} documents, by "
            f"subset of {label(inputs.main_corpus)}, at most {MOST}, those with the most queries.",
            {"y": "bits saved, %"}, series="retriever",
        ),
        Shown(
            "bits-per-byte-by-subset", _by_subset,
            ["subset", "lm", "retriever", "queries", "source_documents", "bits_per_byte", "saved"],
            "Bits per byte by subset, without documents and with those in use. An interval over few source documents "
            "is too narrow; over a single one it has no width.",
        ),
        Drawn(
            entries.lines, "bits-per-byte-by-datastore", _drawn_datastore, lambda row: 100 * row["share"],
            "bits_per_byte",
            lambda inputs, rows: f"{rows[0]['lm']} on {label(inputs.main_corpus)}: bits per byte by the size of the "
            "datastore, with documents of the dense retriever. Each share contains the smaller ones.",
            {"x": "documents searched, % of the corpus", "y": "bits per byte", "log_x": True}, series="retriever",
        ),
        Shown(
            "bits-per-byte-by-datastore", _by_datastore, ["share", "lm", "bits_per_byte", "saved"],
            "Bits per byte by the share of the corpus that is searched, in per cent.",
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
    judged = [of for of in inputs.parts.scored if of != inputs.main_corpus or not catalogue.DATASETS[of].learn]
    return [
        row | {"parameters": inputs.sizes.get(row["lm"]), "family": inputs.families.get(row["lm"]) or "unnamed"}
        for row in inputs.tables["bits_per_byte"]
        if row["corpus"] in judged and row["k"] in (0, inputs.chosen.replug.top_k)
    ]


def _by_family(inputs: Inputs) -> list[Row]:
    """By size, of the families with two models of known size."""
    rows = sorted((row for row in _perplexity(inputs) if row["parameters"]), key=lambda row: row["parameters"])
    sizes: dict[tuple, set[int]] = {}
    for row in rows:
        sizes.setdefault((row["corpus"], row["family"]), set()).add(row["parameters"])
    return [
        row | {"of": f"{label(row['corpus'])}, {row['family']} family"}
        for row in rows
        if len(sizes[row["corpus"], row["family"]]) > 1
    ]


PERPLEXITY = Entry(
    "perplexity",
    "Perplexity",
    [
        Drawn(
            entries.bars, "perplexity", _perplexity, "lm", "word_perplexity",
            "perplexity by language model, without documents and with them.", {"y": "perplexity by word"},
            series="retriever", each="corpus",
        ),
        PERPLEXITY_NOTE,
        Drawn(
            entries.lines, "perplexity-by-size", _by_family, "parameters", "word_perplexity",
            "perplexity by the size of the language model, without documents and with them.",
            {"x": "parameters of the language model", "y": "perplexity by word", "log_x": True},
            series="retriever", each="of",
        ),
        Shown(
            "perplexity", _perplexity,
            ["retriever", "corpus", "lm", "parameters", "word_perplexity", "perplexity", "bits_per_byte", "saved"],
            "Perplexity by language model, without documents and with them.",
            {"word_perplexity": "by word", "perplexity": "by token"},
        ),
    ],
)  # fmt: skip

# whose knowledge: memory or documents


def _rarity(inputs: Inputs) -> list[Row]:
    """Tokens by how rare their word is, in every scored corpus."""
    return [
        row | {"frequency": f"{row['least']:,} to {row['most']:,}" if row["most"] else "never"}
        for row in inputs.tables["rare_words"]
    ]


def _of_shown(inputs: Inputs) -> list[Row]:
    """Those of the retriever that the page of texts has, on the main corpus."""
    rows = [row for row in _rarity(inputs) if row["corpus"] == inputs.main_corpus]
    shown = next((name for name in attribution_page.SHOWN if any(row["retriever"] == name for row in rows)), "")
    return [row for row in rows if row["retriever"] == shown]


def _gain(inputs: Inputs, rule: str) -> str:
    rows = _of_shown(inputs)
    if not rows:
        return ""
    first, last = rows[0], rows[-1]
    return (
        f"With the documents of {label(first['retriever'])}, the rarest words ({first['frequency']} times in "
        f"{label(first['counted_in'])}) gain {show(first['bits_saved'])} bits a token, the most frequent "
        f"({last['frequency']}) {show(last['bits_saved'])}."
    )


ATTRIBUTION = Entry(
    "attribution",
    "Whose knowledge, and which words gain",
    [
        Drawn(
            entries.bars, "gain-by-frequency",
            where(_rarity, lambda row: math.isfinite(row["bits_saved"].value)), "frequency", "bits_saved",
            lambda inputs, rows: "bits that documents save per token, by how often "
            f"{label(rows[0]['counted_in'])} has the token's word.",
            {"y": "bits saved per token"}, series="retriever", each="corpus",
        ),
        "A token's probability with documents is shared out. Memory has the share that the model gives the token "
        "without documents; a document has what it adds to that. How often C4, or the corpus where a run has no C4, "
        "has the token's word says how rare it is. The paper's example is a rare name, which the documents spell out "
        "and the model does not know.",
        lambda inputs: [
            Link(f"Texts of the test set, token by token, with each document's share ({attribution_page.NAME})",
                 attribution_page.NAME)
        ] if _of_shown(inputs) else [],
        Shown(
            "gain-by-frequency", _rarity,
            ["frequency", "corpus", "retriever", "counted_in", "tokens", "bits_without", "bits_saved", "memory"],
            "Tokens by how often their word occurs: bits without documents, bits saved, and memory's share of the "
            "probability.",
            {"frequency": "word's frequency", "bits_without": "bits without documents", "bits_saved": "saved"},
        ),
    ],
    _gain,
)  # fmt: skip
