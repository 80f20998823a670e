"""The report's sections on language modelling, rare words, retrievers and benchmarks (REPLUG, 4, 6 and 7)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from pipelines import catalogue, database, methods
from pipelines.evaluation.recall import AT
from pipelines.evaluation.stage_metrics import by_setting, retrievers_of
from pipelines.intervals import interval
from pipelines.report import attribution_page, entries
from pipelines.report.entries import Drawn, Entry, Row, Rows, Shown, table_of, where
from pipelines.report.inputs import Inputs
from pipelines.report.page import Link, Percent, Share, Table, label, points, show

# language modelling with REPLUG

MOST = 6  # subsets in the figure; the table has all


def _bits(inputs: Inputs) -> list[Row]:
    """Bits per byte of the main corpus, without documents and with the documents in use, of each language model."""
    top_k = inputs.chosen.replug.top_k
    return [
        row | {"parameters": inputs.sizes.get(row["lm"])}
        for row in inputs.tables["bits_per_byte"]
        if row["corpus"] == inputs.main_corpus and row["k"] in (0, top_k)
    ]


def _by_k(inputs: Inputs) -> list[Row]:
    """Bits per byte by the number of documents, of each language model (Figure 4)."""
    rows = [row for row in inputs.tables["bits_per_byte"] if row["corpus"] == inputs.main_corpus]
    return [row for row in rows if row["k"]]


def _drawn_by_k(inputs: Inputs) -> list[Row]:
    """Those of the main language model, with the line of no document."""
    rows = [row for row in _by_k(inputs) if row["lm"] == inputs.main]
    most = max((row["k"] for row in rows), default=0)
    none = [row | {"k": k} for k in {1, most} for row in _bits(inputs) if row["lm"] == inputs.main and not row["k"]]
    return [*none, *rows] if rows else []


def _saved_by_lm(inputs: Inputs) -> list[Row]:
    """The bits that documents save, of several language models, the smaller ones first (Table 1)."""
    rows = [row for row in _bits(inputs) if row["k"]]
    rows.sort(key=lambda row: row["parameters"] or math.inf)
    return rows if len({row["lm"] for row in rows}) > 1 else []


def _by_temperature(inputs: Inputs) -> list[Row]:
    """Bits per byte by the temperature of lambda; nothing if it was not varied."""
    names, rows = re.compile(r"bpb_([\w-]+?)_k(\d+)_t([\d.]+)"), []
    for lm, found in inputs.scored(inputs.main_corpus).items():
        matches = [match for key in found if (match := names.fullmatch(key))]
        for match in sorted(matches, key=lambda match: (methods.ordered([match[1]]), -float(match[3]))):
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
        for share, of in sorted(found.get("datastore", {}).items(), key=lambda item: (item[0] == "queries", item[0]))
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
            ["retriever", "lm", "parameters", "k", "bits_per_byte", "saved", "saved_over_dense"],
            lambda inputs, rows: f"{label(inputs.main_corpus)}: bits per byte without documents and with "
            f"{inputs.chosen.replug.top_k}, and the bits saved in per cent.",
        ),
        Drawn(
            entries.bars, "saved-by-lm", _saved_by_lm, "lm", "saved",
            lambda inputs, rows: f"{label(inputs.main_corpus)}: bits saved by {inputs.chosen.replug.top_k} documents, "
            "by language model. Smaller models come first; those of unknown size come last.",
            {"y": "bits saved, %"}, series="retriever",
        ),
        Shown(
            "bits-per-byte-by-k", _by_k, ["k", "lm", "retriever", "bits_per_byte", "saved", "saved_over_random"],
            lambda inputs, rows: f"{label(inputs.main_corpus)}: bits per byte by the number of documents, and what "
            "retrieved documents save against none and against as many random ones, in per cent.",
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

# the retrievers compared, and how LSR learned

MEASURES = {  # column of the table `retrievers` -> head
    "bits_per_byte": "bits per byte",
    "saved": "saved, %",
    **{
        f"{name}_{end}": f"{label(name)}, {words}"
        for name in catalogue.names("answered")
        for end, words in (("recall_at_1", "recall@1"), ("word", "accuracy"))
    },
    "real_recall_at_1": "real questions, recall@1",
    "real_recall_at_10": "real questions, recall@10",
}
BITS = ("bits_per_byte", "saved")  # the other measures are shares
WHOLE = "Both are by whole words (word), whichever rule is chosen for the other figures."


def _measures(inputs: Inputs) -> list[str]:
    rows = inputs.tables["retrievers"]
    return [name for name in MEASURES if any(math.isfinite(row[name].value) for row in rows)]


def _shares(inputs: Inputs) -> tuple[list[str], list[Row]]:
    """The measures that are shares and that two retrievers have, and the rows of retrievers with one."""
    rows = inputs.tables["retrievers"]
    names = [name for name in MEASURES if name not in BITS and sum(math.isfinite(row[name].value) for row in rows) > 1]
    return names, [row for row in rows if any(math.isfinite(row[name].value) for name in names)]


def _drawn_retrievers(inputs: Inputs) -> list[Row]:
    names, rows = _shares(inputs)
    return [
        {"retriever": row["retriever"], "measure": MEASURES[name], "accuracy": row[name]}
        for row in rows
        for name in names
    ]


def _retrievers(inputs: Inputs) -> list[Table]:
    names = _measures(inputs)
    rows = [
        [label(row["retriever"]), *(row[name] if name in BITS else Percent(row[name]) for name in names)]
        for row in inputs.tables["retrievers"]
    ]
    caption = (
        f"The retrievers by each measure, with {inputs.main} as language model: bits per byte and what documents save, "
        "recall and accuracy with the top passage (always whole words) in per cent. To compare another encoder, such "
        "as DPR or BERT, describe it under retriever and list it in retrievers."
    )
    return [Table("retrievers", caption, ["retriever", *(MEASURES[name] for name in names)], rows)] if names else []


def recalls(inputs: Inputs) -> list[Row]:
    """Recall@k on questions that come with passages, by data set and retriever."""
    return [
        {"set": "all" if of == "all" else label(of), "retriever": retriever}
        | {"questions": found["questions"], "answerable": found["answerable"]}
        | {f"recall@{k}": Percent(interval(found[retriever][f"recall_at_{k}"])) for k in AT}
        for name in inputs.parts.passages
        for of, found in inputs.metrics.get(name, {}).get("sets", {}).items()
        for retriever in retrievers_of(inputs.metrics[name]["sets"]["all"])
    ]


def _drawn_recalls(inputs: Inputs) -> list[Row]:
    rows = [row for row in recalls(inputs) if row["set"] == "all"]
    return [row | {"k": f"recall@{k}", "accuracy": row[f"recall@{k}"].interval} for row in rows for k in AT]


def _searched(inputs: Inputs, rows: Sequence[Row]) -> str:
    found = inputs.metrics[inputs.parts.passages[0]]
    return (
        "Recall@k in per cent, with Wilson's intervals: the share of answerable questions that have a gold passage "
        f"among the first k. Searched are the {found['passages']:,} passages that came with the "
        f"{found['questions']:,} questions and {found['distractors']:,} documents of {label(inputs.parts.datastore)}. "
        "A question's gold passages are its own passages that hold an answer as whole words; with any, it is "
        "answerable."
    )


def _best(inputs: Inputs, rule: str) -> str:
    """The best two retrievers by recall on the main question set, or by the first share that was measured."""
    names, rows = _shares(inputs)
    if not rows:
        return ""
    main = f"{inputs.main_questions}_recall_at_1"
    name = main if main in names else names[0]
    ranked = sorted((row for row in rows if math.isfinite(row[name].value)), key=lambda row: -row[name].value)
    shares = [f"{label(row['retriever'])} with {show(Percent(row[name]))} %" for row in ranked[:2]]
    return f"The best retriever by “{MEASURES[name]}” is {'; next is '.join(shares)}."


RECALL = Entry(
    "recall",
    "The retrievers compared",
    [
        Drawn(
            entries.bars, "retrievers", _drawn_retrievers, "measure", "accuracy",
            lambda inputs, rows: "Recall, and accuracy with the top passage, by retriever; "
            f"{inputs.main} answers. {WHOLE}",
            {"y": "share of the questions, %"}, series="retriever",
        ),
        _retrievers,
        Drawn(
            entries.bars, "recall", _drawn_recalls, "k", "accuracy",
            "Recall of a gold passage among the first k, over all questions.", {"y": "answerable questions, %"},
            series="retriever",
        ),
        Shown(
            "recall-of-passages", recalls,
            ["set", "retriever", "questions", "answerable", *(f"recall@{k}" for k in AT)], _searched,
            {"set": "questions of", "retriever": "retriever"},
        ),
    ],
    _best,
)  # fmt: skip


MARKS = 60  # of a curve at most


def _trained(inputs: Inputs) -> dict[str, dict]:
    found = inputs.metrics.get("lsr", {})
    return {name: found[name] for name in inputs.parts.tuned if found.get(name, {}).get("curve")}


def _validation(inputs: Inputs) -> list[Row]:
    return [{"retriever": name} | row for name, of in _trained(inputs).items() for row in of.get("validation", [])]


def _judged(rows: Sequence[Row]) -> list[str]:
    return sorted({key for row in rows for key in row} - {"step", "retriever"})


def _curves(**series: str) -> Rows:
    """These columns of the curves by step, at most MARKS points of each."""
    return lambda inputs: [
        {"retriever": name, "step": row["step"], "series": words, "value": row[key]}
        for name, found in _trained(inputs).items()
        for row in found["curve"][:: math.ceil(len(found["curve"]) / MARKS)]
        for key, words in series.items()
    ]


def _judgements(kind: str) -> Rows:
    """One kind of figure of the validations by step."""
    return lambda inputs: [
        {"retriever": row["retriever"], "step": row["step"], "series": _words(key), "value": row[key]}
        for row in _validation(inputs)
        for key in _judged(_validation(inputs))
        if key.startswith(kind) and row.get(key) is not None
    ]


def _validated(inputs: Inputs) -> list[Table]:
    rows = _validation(inputs)
    heads = {key: _words(key) for key in _judged(rows)}
    return [table_of("lsr-validation", "LSR's validation.", rows, ["step", "retriever", *heads], heads)] if rows else []


def _words(key: str) -> str:
    return key.replace("recall_at_", "recall@").replace("bpb_k", "bits per byte, k = ").replace("_", " ")


def _learned(inputs: Inputs, rule: str) -> str:
    """What training changed: the divergence, the mean over a tenth of the steps, and validation."""
    sentences = []
    for name, found in _trained(inputs).items():
        curve = [row["kl"] for row in found["curve"]]
        tenth = max(1, len(curve) // 10)
        first, last = (show(fmean(part)) for part in (curve[:tenth], curve[-tenth:]))
        words = (
            f"Tuning {name}, the divergence is {first} on average in the first tenth of the steps and {last} in the "
            "last"
        )
        validation = [row for row in found.get("validation", []) if row.get("recall_at_1") is not None]
        if len(validation) > 1:
            start, end = (show(Share(validation[i]["recall_at_1"])) for i in (0, -1))
            words += f"; recall@1 in validation goes from {start} to {end} %"
        sentences.append(f"{words}.")
    return " ".join(sentences)


TRAINING = Entry(
    "training",
    "How LSR learned",
    [
        Drawn(
            entries.lines, "lsr-training", _curves(kl="KL"), "step", "value", "the divergence of P and Q by step.",
            {"x": "step", "y": "divergence"}, each="retriever",
        ),
        "The retriever learns to give each document the probability (P) that follows from the frozen language model's "
        "likelihood (Q). If Q is uniform, there is nothing to learn. Validation is on queries that training never "
        "sees, each time the corpora were embedded again.",
        Drawn(
            entries.lines, "lsr-entropy", _curves(entropy_lm="Q, language model", entropy_retriever="P, retriever"),
            "step", "value", "entropy of both distributions by step.",
            {"x": "step", "y": "entropy, 1 = uniform"}, each="retriever",
        ),
        Drawn(
            entries.lines, "lsr-recall", _judgements("recall"), "step", "value", "recall in validation.",
            {"x": "step", "y": "recall"}, each="retriever",
        ),
        Drawn(
            entries.lines, "lsr-bits", _judgements("bpb"), "step", "value", "bits per byte in validation.",
            {"x": "step", "y": "bits per byte"}, each="retriever",
        ),
        _validated,
    ],
    _learned,
)  # fmt: skip

# benchmarks

METHODS = ("closed_book", "replug_random", "replug_bm25", "replug", "replug_lsr")


def _tasks(inputs: Inputs) -> list[Row]:
    """Accuracy by benchmark, language model, method and category, of models with closed-book answers."""
    solved = {(row["task"], row["lm"]) for row in inputs.tables["tasks"] if row["method"] == "closed_book"}
    rows = [row for row in inputs.tables["tasks"] if (row["task"], row["lm"]) in solved and row["method"] in METHODS]
    return sorted(rows, key=lambda row: (inputs.parts.benchmarks.index(row["task"]), inputs.models.index(row["lm"])))


def _drawn_tasks(inputs: Inputs) -> list[Row]:
    rows = [row for row in _tasks(inputs) if row["category"] == "all"]
    first = next((lm for lm in inputs.models if any(row["lm"] == lm for row in rows)), "")
    return [row for row in rows if row["lm"] == first]


def _odd(inputs: Inputs) -> Iterator[str]:
    """What a language model could not be asked, as sentences."""
    found = inputs.metrics.get("tasks", {})
    for name, lm in dict.fromkeys((row["task"], row["lm"]) for row in _tasks(inputs)):
        if not any(method in found[name][lm] for method in METHODS[1:]):
            yield f"{lm} shows no log-probabilities of its answers to {label(name)}, so REPLUG was left out."
        if too_long := found[name][lm].get("too_long"):
            subjects = ", ".join(f"{subject or 'questions'} ({n:,})" for subject, n in too_long.items())
            yield f"{label(name)}, {lm}: prompts too long for the language model are left out: {subjects}."


def _raises(inputs: Inputs, rule: str) -> str:
    """What REPLUG changes on each benchmark, for its first language model."""
    parts: dict[str, str] = {}
    gains: dict[tuple, dict[str, Any]] = {}
    for row in (row for row in _tasks(inputs) if row["category"] == "all" and math.isfinite(row["gain"].value)):
        gains.setdefault((row["task"], row["lm"]), {})[row["method"]] = points(row["gain"])
    for (name, lm), of in gains.items():
        if "replug" in of:
            of_lsr = f", with LSR's documents by {of['replug_lsr']}" if "replug_lsr" in of else ""
            parts.setdefault(name, f"{of['replug']}{of_lsr} on {label(name)} ({lm})")
    if not parts:
        return "No ensemble answered a benchmark; the figure has the closed-book answers."
    return " ".join(
        [f"Against closed-book answers, REPLUG changes accuracy by {'; '.join(parts.values())}.", *_unmoved(inputs)]
    )


def _unmoved(inputs: Inputs) -> Iterator[str]:
    """Where a language model has but one answer to a multiple-choice benchmark, whatever it reads."""
    chosen = dict.fromkeys((row["task"], row["lm"]) for row in _tasks(inputs) if row["category"] != "all")
    for name, lm in chosen:
        file = inputs.data / "tasks" / name / lm / "predictions.parquet"
        query = "SELECT count(DISTINCT prediction), min(prediction), count(DISTINCT method) FROM predictions"
        if file.is_file():
            answers, only, ways = database.ask(query, predictions=file).fetchall()[0]
            if answers == 1 and ways > 1:
                yield f"{lm} answers {only} to every question of {label(name)}, so no document changes anything there."


def _unasked(inputs: Inputs) -> str:
    there: Mapping[str, Any] = {row["task"]: row for row in _tasks(inputs)}
    lacking = [label(name) for name in inputs.parts.benchmarks if name not in there]
    return f"There were no questions of {' or '.join(lacking)}." if lacking else ""


TASKS = Entry(
    "tasks",
    "Benchmarks",
    [
        Drawn(
            entries.bars, "tasks", _drawn_tasks, "task", "accuracy",
            lambda inputs, rows: f"{rows[0]['lm']}: accuracy by benchmark and method. Bars are Wilson's 95 % "
            "intervals.",
            {"y": "accuracy, %"}, series="method",
        ),
        "A multiple-choice question is answered by the likeliest of its four letters; guessing is right on 25 %. Other "
        "questions are answered by generation; an answer is right if it equals a gold answer after normalisation. "
        "REPLUG's ensembles answer by the mixture of probabilities where the language model shows them, else by a vote "
        "over an answer with each document. Random and BM25's documents are in ensembles of the same size.",
        Shown(
            "tasks", _tasks, ["task", "lm", "method", "answered_by", "category", "questions", "accuracy", "gain"],
            "Accuracy in per cent (Wilson's intervals), and the change against closed-book in points (bootstrap over "
            "questions), over all questions and by category.",
        ),
        lambda inputs: [*_odd(inputs)],
    ],
    _raises,
    _unasked,
)  # fmt: skip
