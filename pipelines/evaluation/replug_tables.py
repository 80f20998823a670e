"""REPLUG's tables from the stages' figures: Tables 1 to 3, random documents by k, rare words, retrievers compared.

Every function takes the content of files under data/metrics and gives rows (dicts) of a table of `tables`.
"""

from __future__ import annotations

import re

from pipelines import catalogue
from pipelines.intervals import NOTHING, interval

RETRIEVERS = ("random", "bm25", "dense", "lsr")


def bits_per_byte(language_modelling: dict, lms: list[str]) -> list[dict]:
    """Bits per byte and perplexity by corpus, language model, retriever and k (Table 1, Figures 4 and 5)."""
    rows = []
    for corpus, of_lms in language_modelling.items():
        for lm in lms:
            own = of_lms.get(lm, {})
            labels = [("none", 0, "none")] if "bpb_none" in own else []
            found = [match for key in own if (match := re.fullmatch(r"bpb_(\w+?)_k(\d+)", key))]
            labels += sorted((match[1], int(match[2]), f"{match[1]}_k{match[2]}") for match in found)
            rows += [
                {"corpus": corpus, "lm": lm, "retriever": retriever, "k": k}
                | {"bits_per_byte": interval(own[f"bpb_{label}"]), "saved": interval(own.get(f"gain_{label}"))}
                | {"saved_over_random": interval(own.get(f"gain_over_random_{label}"))}
                | {"saved_over_dense": interval(own.get(f"lsr_gain_k{k}")) if retriever == "lsr" else NOTHING}
                | {name: interval(own.get(f"{name}_{label}")) for name in ("perplexity", "word_perplexity")}
                for retriever, k, label in labels
            ]
    return rows


def rare_words(attribution: dict) -> list[dict]:
    """What documents save by how often the corpus has a token's word (section 6, Figure 6)."""
    return [
        {"retriever": retriever, "least": row["least"], "most": row["most"], "tokens": row["tokens"]}
        | {"bits_without": interval(row["none"]), "bits_saved": interval(row["gain"])}
        | {"memory": interval(row["memory"])}
        for retriever in RETRIEVERS
        for row in attribution.get(retriever, {}).get("by_frequency", [])
    ]


def tasks(metrics: dict) -> list[dict]:
    """Accuracy by task and method, MMLU also by category (Tables 2 and 3); "all" is of all questions."""
    rows = []
    for task, methods in metrics.items():
        for method, own in methods.items():
            if not isinstance(own, dict) or "accuracy" not in own:
                continue
            name = {"task": task, "method": method}
            gain = interval(own.get("gain"))
            everything = {"category": "all", "questions": own["questions"], "accuracy": interval(own["accuracy"])}
            rows.append(name | everything | {"gain": gain})
            rows += [
                name
                | {"category": category, "questions": figure["questions"], "accuracy": interval(figure)}
                | {"gain": interval(figure.get("gain"))}
                for category, figure in own.get("categories", {}).items()
            ]
    return rows


def retrievers(
    bits: list[dict], recalls: dict[str, list[dict]], accuracies: dict[str, list[dict]], retrieval: dict, top_k: int
) -> list[dict]:
    """Every retriever by each measure there is: bits per byte (k = top_k), recall and accuracy on questions.

    `bits` are rows of one language model and corpus; `recalls` and `accuracies` are its rows of those tables by question set;
    `retrieval` is the recall of gold passages of real questions.
    """
    saved = {row["retriever"]: row for row in bits if row["k"] == top_k}
    real = retrieval.get("sets", {}).get("all", {})
    rows = []
    for name in RETRIEVERS:
        row = {"retriever": name, "bits_per_byte": NOTHING, "saved": NOTHING}
        if name in saved:
            row |= {column: saved[name][column] for column in ("bits_per_byte", "saved")}
        for dataset in catalogue.names("answered"):
            of = [one for one in recalls.get(dataset, []) if (one["method"], one["answers"]) == (name, "all")]
            right = [one for one in accuracies.get(dataset, []) if one["method"] == name]
            row[f"{dataset}_recall_at_1"] = of[0]["recall"] if of else NOTHING
            row[f"{dataset}_word"] = right[0]["word"] if right else NOTHING
        for k in (1, 10):
            row[f"real_recall_at_{k}"] = interval(real.get(name, {}).get(f"recall_at_{k}"))
        rows.append(row)
    return rows
