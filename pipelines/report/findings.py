"""The papers' claims, each held against the figure that supports or contradicts it."""

from __future__ import annotations

import math

from pipelines.evaluation import accuracy, retrieval_effects
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.params import params
from pipelines.report.adaptive_section import of_search, too_few
from pipelines.report.inputs import Inputs
from pipelines.report.page import Finding, label, percent, points, show


def findings(inputs: Inputs, thresholds: params.Thresholds, top_k: int) -> list[Finding]:
    """All findings that this run has figures for, of the main language model, question set and corpus.

    `thresholds` are the params of that name, `top_k` the number of REPLUG's documents.
    """
    of_questions = _memory(inputs) + _retrieval(inputs) + _adaptive(inputs, thresholds)
    return of_questions + _bits(inputs, top_k) + _recall(inputs) + _benchmarks(inputs)


def _memory(inputs: Inputs) -> list[Finding]:
    """Whether answers from the model's memory are better for popular subjects."""
    claims = {
        "closed_book": ("memory", "Without retrieval, accuracy rises with the subject's popularity."),
        "genread": (
            "genread",
            "GenRead, whose passages come from the model's memory, does worse on less popular subjects as well.",
        ),
    }
    rows = {row["method"]: row for row in inputs.rows("accuracy", dataset=inputs.main_questions)}
    return [
        Finding(
            id_,
            claim,
            f"The correlation of being right with log popularity is {show(rows[method]['correlation'])}"
            f"{_over(rows[method]['popularity_known'], inputs)}.",
            rows[method]["correlation"],
            1,
        )
        for method, (id_, claim) in claims.items()
        if method in rows
    ]


def _retrieval(inputs: Inputs) -> list[Finding]:
    """Where the untuned dense retriever helps and where it hurts."""
    rows = inputs.rows("retrieval_effect", dataset=inputs.main_questions, method="dense")
    groups = {row["group"]: row for row in rows}
    if not groups:
        return []
    tail, head, namesake, difference = (
        groups[group] for group in ("tail", "head", "namesake's page, head", retrieval_effects.TAIL_LESS_HEAD)
    )
    found = [
        Finding(
            "tail",
            "Retrieval helps in the long tail.",
            f"On the least popular {percent(accuracy.TAIL)} of the questions, the dense retriever's passage changes "
            f"accuracy by {points(tail['gain'])}{_over(tail['questions'], inputs)}.",
            tail["gain"],
            1,
        ),
        Finding(
            "tail-most",
            "Retrieval helps more in the tail than at the head.",
            f"The gain in the tail less the gain on the most popular {percent(accuracy.HEAD)} "
            f"({points(head['gain'])}) is {points(difference['gain'])}.",
            difference["gain"],
            1,
        ),
    ]
    if namesake["questions"]:
        measured = (
            "If the dense retriever found another page by the same name, accuracy on the most popular "
            f"{percent(accuracy.HEAD)} changes by {points(namesake['gain'])}{_over(namesake['questions'], inputs)}."
        )
        claim = "Retrieval hurts if a namesake's page is retrieved for a popular subject."
        found.append(Finding("namesakes", claim, measured, namesake["gain"], -1))
    return found


def _adaptive(inputs: Inputs, thresholds: params.Thresholds) -> list[Finding]:
    """Whether thresholds on popularity beat always and never retrieving, of the main model and of each imported one."""
    if not inputs.parts.rules:
        return []
    rows = [row for row in of_search(thresholds.search)(inputs) if row["dataset"] == inputs.main_questions]
    by_method = {row["method"]: row for row in rows if row["lm"] == inputs.main}
    answered, found = inputs.methods(inputs.main_questions), []
    for method, words in (("dense", "the untuned retriever"), ("lsr", "the tuned retriever (LSR)")):
        if method not in answered:
            continue
        row = by_method.get(method, {"gain": NOTHING})
        of_lm = inputs.metrics.get("adaptive", {}).get(inputs.main_questions, {}).get(inputs.main, {})
        measured = too_few(inputs.main_questions, of_lm, thresholds.min_questions)
        if method in by_method:
            shares = {name: f"{100 * row[name].value:.1f} %" for name in ("adaptive", "always", "never", "oracle")}
            measured = (
                f"Held out, adaptive retrieval is right on {shares['adaptive']} of the questions, always retrieving on "
                f"{shares['always']}, never on {shares['never']}, and an oracle on {shares['oracle']}. Adaptive less "
                f"the better of always and never is {points(row['gain'])}."
            )
        claim = f"With {words}, retrieving below a popularity threshold beats both always and never retrieving."
        found.append(Finding(f"adaptive-{method}", claim, measured, row["gain"], 1))
    return found + [_of_imported(row) for lm in inputs.imported for row in rows if row["lm"] == lm]


def _of_imported(row: dict) -> Finding:
    """Whether thresholds are worth it for an imported model, whatever its method is called."""
    measured = (
        f"Held out, adaptive retrieval is right on {100 * row['adaptive'].value:.1f} % of the questions."
        f" Adaptive less the better of always and never is {points(row['gain'])}."
    )
    claim = (
        f"For {row['lm']}, whose answers were imported, choosing between its closed-book answer and that by "
        f"{label(row['method'])} at a popularity threshold beats both."
    )
    return Finding(f"adaptive-{row['lm']}-{row['method']}", claim, measured, row["gain"], 1)


def _bits(inputs: Inputs, top_k: int) -> list[Finding]:
    """Whether REPLUG and LSR lower bits per byte of the main corpus."""
    figures = inputs.scored(inputs.main_corpus).get(inputs.main, {})
    if not figures:
        return []
    replug, random = (interval(figures.get(f"gain_{name}_k{top_k}")) for name in ("dense", "random"))
    against_random = interval(figures.get(f"gain_over_random_dense_k{top_k}"))
    control = {1: "so that part of the gain is the ensemble's own", 0: "which is no clear gain", -1: "which is a loss"}
    found = [
        Finding(
            "replug",
            "REPLUG lowers the language model's bits per byte.",
            f"{top_k} documents of the dense retriever save {_percent(replug)} on {label(inputs.main_corpus)}.",
            replug,
            1,
        ),
        Finding(
            "random",
            "It is what documents say that lowers bits per byte: random documents in the same ensemble do worse.",
            f"{top_k} random documents save {_percent(random)}, {control[random.sign]}. Retrieved documents save "
            f"{_percent(against_random)} against random ones.",
            against_random,
            1,
        ),
    ]
    if inputs.parts.tuned:
        lsr = interval(figures.get(f"lsr_gain_k{top_k}"))
        claim = "LSR lowers bits per byte further than the untuned retriever."
        measured = f"LSR's {top_k} documents save {_percent(lsr)} against the untuned retriever's."
        found.append(Finding("lsr", claim, measured, lsr, 1))
    return found


def _recall(inputs: Inputs) -> list[Finding]:
    return [
        Finding(
            "recall",
            "LSR finds an answer more often, on questions about subjects it was not trained on.",
            "The share of top passages that hold an answer changes by "
            f"{points(row['recall_gain'])}{_over(row['questions'], inputs)}.",
            row["recall_gain"],
            1,
        )
        for row in inputs.rows("comparisons", dataset=inputs.main_questions, method="lsr", against="dense")
    ]


def _benchmarks(inputs: Inputs) -> list[Finding]:
    metrics, found = inputs.metrics.get("tasks", {}), []
    for name in inputs.parts.benchmarks:
        of_main = metrics.get(name, {}).get(inputs.main, {})
        for method, id_, of in (("replug", name, ""), ("replug_lsr", f"{name}-lsr", " with LSR's documents")):
            if method in of_main:
                gain = interval(of_main[method]["gain"])
                measured = f"Against closed-book: {points(gain)} ({of_main[method]['questions']:,} questions)."
                found.append(Finding(id_, f"REPLUG{of} raises accuracy on {label(name)}.", measured, gain, 1))
    return found


def _percent(change: Interval) -> str:
    return f"{show(change, digits=1)} %" if math.isfinite(change.value) else "an unknown amount"


def _over(n: int, inputs: Inputs) -> str:
    return f" ({n:,} question{'' if n == 1 else 's'} of {label(inputs.main_questions)})"
