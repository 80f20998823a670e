"""What the report's sections on retrievers, language modelling, LSR and benchmarks say and show (REPLUG, 4 to 7)."""

import math
from statistics import fmean

from pipelines import catalogue
from pipelines.evaluation.recall import AT
from pipelines.evaluation.stage_metrics import retrievers_of
from pipelines.intervals import interval
from pipelines.pages.values import Percent, label
from pipelines.report.entries import Row, known, spread
from pipelines.report.inputs import Inputs

ENDS = {"recall_at_1": "recall@1", "word": "accuracy"}  # of columns of a question set
MEASURES = {  # column of the table `retrievers` -> head
    "retriever": "retriever",
    "bits_per_byte": "bits per byte",
    "saved": "saved, %",
    **{
        f"{name}_{end}": f"{label(name)}, {ENDS[end]}"
        for name in catalogue.names("answered")
        for end in ENDS
    },
    "real_recall_at_1": "real questions, recall@1",
    "real_recall_at_10": "real questions, recall@10",
}
MARKS = 60  # of a curve at most
METHODS = ("closed_book", "dense", "replug", "replug_lsr")  # of benchmarks
LOOK = {  # columns of data/metrics/lsr_<name>.json's `look` -> heads
    "retriever": "retriever",
    "corpus": "queries of",
    "queries": "queries",
    "auc_lm": "AUC, language model",
    "auc_retriever": "AUC, retriever",
    "auc_gain": "difference",
    "best_lm": "first holds an answer, language model",
    "best_retriever": "first holds an answer, retriever",
    "gain_first": "nats saved by the retriever's first",
    "gain_mean": "by the mean",
    "gain_best": "by the best",
    "documents": "documents of each",
    "uniform": "share with all equal",
    "entropy": "entropy of Q",
    "beta": "beta",
}


# the retrievers compared


def measured_retrievers(inputs: Inputs) -> list[Row]:
    """Recall and accuracy of each retriever on the main question set."""
    names = {f"{inputs.main_questions}_{end}": words for end, words in ENDS.items()}
    return spread(inputs.tables["retrievers"], names) if inputs.main_questions else []


def recalls(inputs: Inputs) -> list[Row]:
    """Recall@k on questions that come with passages, by data set and retriever."""
    return [
        {"set": "all" if of == "all" else label(of), "retriever": retriever}
        | {"questions": found["questions"], "answerable": found["answerable"]}
        | {f"recall_at_{k}": interval(found[retriever][f"recall_at_{k}"]) for k in AT}
        for name in inputs.parts.passages
        for of, found in inputs.metrics.get(name, {}).get("sets", {}).items()
        for retriever in retrievers_of(inputs.metrics[name]["sets"]["all"])
    ]


def best_retrievers(inputs: Inputs) -> list[Row]:
    """The best two retrievers by recall on the main question set."""
    rows = [row for row in measured_retrievers(inputs) if row["series"] == ENDS["recall_at_1"]]
    rows = [row for row in rows if known(row["accuracy"])]
    return sorted(rows, key=lambda row: -row["accuracy"].value)[:2]


# language modelling with REPLUG


def bits_per_byte(inputs: Inputs) -> list[Row]:
    """Bits per byte of the main corpus, without documents and by their number, smaller language models first."""
    rows = [row for row in inputs.tables["bits_per_byte"] if row["corpus"] == inputs.main_corpus]
    rows = [row | {"parameters": inputs.sizes.get(row["lm"])} for row in rows]
    return sorted(rows, key=lambda row: row["parameters"] or math.inf)


def bits_by_k(inputs: Inputs) -> list[Row]:
    """Those of the main language model; no document is a line over all numbers (Figure 4)."""
    rows = [row for row in bits_per_byte(inputs) if row["lm"] == inputs.main]
    ends = {1, max((row["k"] for row in rows), default=0)} - {0}
    none = [row | {"k": k} for row in rows for k in sorted(ends) if not row["k"]]
    return [*none, *(row for row in rows if row["k"])]


def bits_by_subset(inputs: Inputs) -> list[Row]:
    """Bits per byte by subset of the main corpus, the largest first; nothing if there is but one."""
    return [
        {
            "lm": lm,
            "subset": subset,
            "queries": of["queries"],
            "source_documents": of["source_documents"],
        }
        | {
            "retriever": name,
            "bits_per_byte": interval(of[name]["bpb"]),
            "saved": interval(of[name].get("gain")),
        }
        for lm, found in inputs.scored(inputs.main_corpus).items()
        for subset, of in sorted(
            found.get("subsets", {}).items(), key=lambda item: (-item[1]["queries"], item[0])
        )
        if len(found["subsets"]) > 1
        for name in ("none", *retrievers_of(of))
    ]


def bits_by_datastore(inputs: Inputs) -> list[Row]:
    """Bits per byte of the main language model by the share of the corpus that is searched, in per cent.

    No document is a line over all shares.
    """
    found = inputs.scored(inputs.main_corpus).get(inputs.main, {}).get("datastore", {})
    bits = {
        100 * float(share): interval(of["bpb"]) for share, of in found.items() if share != "queries"
    }
    none = bits.pop(0.0, None)
    if none is None or len(bits) < 2:
        return []
    points = [("none", share, none) for share in (min(bits), max(bits))] + [
        ("dense", *one) for one in bits.items()
    ]
    return [
        dict(zip(("retriever", "percent", "bits_per_byte"), point, strict=True)) for point in points
    ]


def saved_by_documents(inputs: Inputs) -> dict[str, Row | None]:
    """What the main model saves: with the best retriever, with random documents, and with that retriever's best k."""
    top_k = inputs.chosen.replug.top_k
    rows = [
        row for row in bits_per_byte(inputs) if row["lm"] == inputs.main and known(row["saved"])
    ]
    in_use = [row for row in rows if row["k"] == top_k]
    if not in_use:
        return {}
    best = max(in_use, key=lambda row: row["saved"].value)
    of_best = [row for row in rows if row["retriever"] == best["retriever"]]
    most = max(of_best, key=lambda row: (row["saved"].value, row["k"] == top_k))
    random = next((row for row in in_use if row["retriever"] == "random" and row is not best), None)
    return {"best": best, "random": random, "most": most}


# perplexity by the size of the language model (Figure 5)


def perplexities(inputs: Inputs) -> list[Row]:
    """Of the scored corpora but the main one, unless the main one only judges; smaller language models first."""
    families = {row["lm"]: row["family"] or "unnamed" for row in inputs.tables["models"]}
    judged = [
        of
        for of in inputs.parts.scored
        if of != inputs.main_corpus or not catalogue.DATASETS[of].learn
    ]
    rows = [
        row | {"parameters": inputs.sizes.get(row["lm"])} for row in inputs.tables["bits_per_byte"]
    ]
    return [
        row | {"of": f"{label(row['corpus'])}, {families.get(row['lm'], 'unnamed')} family"}
        for row in sorted(rows, key=lambda row: row["parameters"] or math.inf)
        if row["corpus"] in judged and row["k"] in (0, inputs.chosen.replug.top_k)
    ]


# how LSR learned


def _trained(inputs: Inputs) -> dict[str, dict]:
    found = inputs.metrics.get("lsr", {})
    return {name: found[name] for name in inputs.parts.tuned if found.get(name, {}).get("curve")}


def lsr_curves(inputs: Inputs) -> list[Row]:
    """The divergence and both entropies by step, at most MARKS points of each curve."""
    names = {"kl": "KL", "entropy_lm": "Q, language model", "entropy_retriever": "P, retriever"}
    return [
        {"retriever": name, "step": row["step"], "key": key, "series": words, "value": row[key]}
        for name, found in _trained(inputs).items()
        for row in found["curve"][:: math.ceil(len(found["curve"]) / MARKS)]
        for key, words in names.items()
    ]


def lsr_look(inputs: Inputs) -> list[Row]:
    """Whether the language model could teach each retriever, as measured on training queries before training."""
    return [
        {"retriever": name} | {key: _looked(key, value) for key, value in row.items()}
        for name, of in _trained(inputs).items()
        for row in of.get("look", [])
        if row["queries"]
    ]


def _looked(key: str, value: object) -> object:
    of = interval(value) if isinstance(value, dict) else value
    return Percent(of) if key.startswith("best_") else of


def mean_divergences(inputs: Inputs) -> list[Row]:
    """The mean divergence over the first and over the last tenth of the steps, by retriever."""
    curves = {
        name: [row["kl"] for row in found["curve"]] for name, found in _trained(inputs).items()
    }
    tenths = {name: max(1, len(curve) // 10) for name, curve in curves.items()}
    return [
        {
            "retriever": name,
            "first": fmean(curve[: tenths[name]]),
            "last": fmean(curve[-tenths[name] :]),
        }
        for name, curve in curves.items()
    ]


# benchmarks


def solved_tasks(inputs: Inputs) -> list[Row]:
    """Accuracy by benchmark, language model, method and category, of models with closed-book answers."""
    solved = {
        (row["task"], row["lm"]) for row in inputs.tables["tasks"] if row["method"] == "closed_book"
    }
    rows = [row for row in inputs.tables["tasks"] if row["method"] in METHODS]
    return [row for row in rows if (row["task"], row["lm"]) in solved]


def largest_effect(inputs: Inputs) -> list[Row]:
    """The benchmark and the ensemble that change accuracy most, in a row, of the main language model if it has any."""
    rows = [
        row
        for row in solved_tasks(inputs)
        if row["category"] == "all" and row["method"].startswith("replug")
    ]
    rows = [row for row in rows if known(row["gain"])]
    of = inputs.main if any(row["lm"] == inputs.main for row in rows) else rows and rows[0]["lm"]
    return sorted(
        (row for row in rows if row["lm"] == of), key=lambda row: -abs(row["gain"].value)
    )[:1]
