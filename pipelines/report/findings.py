"""The papers' claims, each held against the figure that supports or contradicts it."""

from __future__ import annotations

import math
from collections.abc import Iterator

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
    of_questions = (*_memory(inputs), *_retrieval(inputs), *_adaptive(inputs, thresholds))
    return [*of_questions, *_bits(inputs, top_k), *_recall(inputs), *_benchmarks(inputs)]


def _memory(inputs: Inputs) -> Iterator[Finding]:
    """Whether answers from the model's memory are better for popular subjects."""
    claims = {
        "closed_book": ("memory", "Without retrieval, accuracy rises with the subject's popularity."),
        "genread": (
            "genread",
            "GenRead, whose passages come from the model's memory, does worse on less popular subjects as well.",
        ),
    }
    for row in (row for row in inputs.rows("accuracy", dataset=inputs.main_questions) if row["method"] in claims):
        of = f"The correlation of being right with log popularity is {show(row['correlation'])}"
        measured = f"{of}{_over(row['popularity_known'], inputs)}."
        yield Finding(*claims[row["method"]], measured, row["correlation"], 1)


def _retrieval(inputs: Inputs) -> Iterator[Finding]:
    """Where the untuned dense retriever helps and where it hurts."""
    rows = inputs.rows("retrieval_effect", dataset=inputs.main_questions, method="dense")
    if not (groups := {row["group"]: row for row in rows}):
        return
    tail, head, namesake = (groups[group] for group in ("tail", "head", "namesake's page, head"))
    difference = groups[retrieval_effects.TAIL_LESS_HEAD]["gain"]
    measured = (
        f"On the least popular {percent(accuracy.TAIL)} of the questions, the dense retriever's passage changes "
        f"accuracy by {points(tail['gain'])}{_over(tail['questions'], inputs)}."
    )
    yield Finding("tail", "Retrieval helps in the long tail.", measured, tail["gain"], 1)
    measured = (
        f"The gain in the tail less the gain on the most popular {percent(accuracy.HEAD)} ({points(head['gain'])}) is "
        f"{points(difference)}."
    )
    yield Finding("tail-most", "Retrieval helps more in the tail than at the head.", measured, difference, 1)
    if namesake["questions"]:
        measured = (
            "If the dense retriever found another page by the same name, accuracy on the most popular "
            f"{percent(accuracy.HEAD)} changes by {points(namesake['gain'])}{_over(namesake['questions'], inputs)}."
        )
        claim = "Retrieval hurts if a namesake's page is retrieved for a popular subject."
        yield Finding("namesakes", claim, measured, namesake["gain"], -1)


def _adaptive(inputs: Inputs, thresholds: params.Thresholds) -> Iterator[Finding]:
    """Whether thresholds on popularity beat always and never retrieving, of the main model and of each imported one."""
    if not inputs.parts.rules:
        return
    rows = [row for row in of_search(thresholds.search)(inputs) if row["dataset"] == inputs.main_questions]
    by_method = {row["method"]: row for row in rows if row["lm"] == inputs.main}
    answered = inputs.methods(inputs.main_questions)
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
        yield Finding(f"adaptive-{method}", claim, measured, row["gain"], 1)
    for row in (row for lm in inputs.imported for row in rows if row["lm"] == lm):  # whatever its method is called
        measured = (
            f"Held out, adaptive retrieval is right on {100 * row['adaptive'].value:.1f} % of the questions."
            f" Adaptive less the better of always and never is {points(row['gain'])}."
        )
        claim = (
            f"For {row['lm']}, whose answers were imported, choosing between its closed-book answer and that by "
            f"{label(row['method'])} at a popularity threshold beats both."
        )
        yield Finding(f"adaptive-{row['lm']}-{row['method']}", claim, measured, row["gain"], 1)


def _bits(inputs: Inputs, top_k: int) -> Iterator[Finding]:
    """Whether REPLUG and LSR lower bits per byte of the main corpus."""
    if not (figures := inputs.scored(inputs.main_corpus).get(inputs.main, {})):
        return
    names = ("gain_dense", "gain_random", "gain_over_random_dense", "lsr_gain")
    replug, random, against_random, lsr = (interval(figures.get(f"{name}_k{top_k}")) for name in names)
    claim = "REPLUG lowers the language model's bits per byte."
    measured = f"{top_k} documents of the dense retriever save {_percent(replug)} on {label(inputs.main_corpus)}."
    yield Finding("replug", claim, measured, replug, 1)
    control = {1: "so that part of the gain is the ensemble's own", 0: "which is no clear gain", -1: "which is a loss"}
    claim = "It is what documents say that lowers bits per byte: random documents in the same ensemble do worse."
    measured = (
        f"{top_k} random documents save {_percent(random)}, {control[random.sign]}. Retrieved documents save "
        f"{_percent(against_random)} against random ones."
    )
    yield Finding("random", claim, measured, against_random, 1)
    if inputs.parts.tuned:
        claim = "LSR lowers bits per byte further than the untuned retriever."
        measured = f"LSR's {top_k} documents save {_percent(lsr)} against the untuned retriever's."
        yield Finding("lsr", claim, measured, lsr, 1)


def _recall(inputs: Inputs) -> Iterator[Finding]:
    claim = "LSR finds an answer more often, on questions about subjects it was not trained on."
    for row in inputs.rows("comparisons", dataset=inputs.main_questions, method="lsr", against="dense"):
        change = f"{points(row['recall_gain'])}{_over(row['questions'], inputs)}"
        measured = f"The share of top passages that hold an answer changes by {change}."
        yield Finding("recall", claim, measured, row["recall_gain"], 1)


def _benchmarks(inputs: Inputs) -> Iterator[Finding]:
    for name in inputs.parts.benchmarks:
        of_main = inputs.metrics.get("tasks", {}).get(name, {}).get(inputs.main, {})
        for method, id_, of in (("replug", name, ""), ("replug_lsr", f"{name}-lsr", " with LSR's documents")):
            if method in of_main:
                gain = interval(of_main[method]["gain"])
                measured = f"Against closed-book: {points(gain)} ({of_main[method]['questions']:,} questions)."
                yield Finding(id_, f"REPLUG{of} raises accuracy on {label(name)}.", measured, gain, 1)


def _percent(change: Interval) -> str:
    return f"{show(change, digits=1)} %" if math.isfinite(change.value) else "an unknown amount"


def _over(n: int, inputs: Inputs) -> str:
    return f" ({n:,} question{'' if n == 1 else 's'} of {label(inputs.main_questions)})"
