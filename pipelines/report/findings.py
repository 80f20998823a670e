"""The papers' claims, each held against the figure that bears it out or does not."""

from __future__ import annotations

import math

from pipelines import catalogue
from pipelines.evaluation import accuracy, retrieval_effects
from pipelines.intervals import Interval, interval
from pipelines.report.inputs import Inputs
from pipelines.report.page import Finding, label, percent, show


def findings(inputs: Inputs, search: str, top_k: int) -> list[Finding]:
    """All findings, of the main language model, questions being PopQA's; `search` is the threshold search in use,
    `top_k` REPLUG's documents."""
    found = _popqa(inputs) + _adaptive(inputs, search) + _bits(inputs, top_k)
    return found + _recall(inputs) + _tasks(inputs.metrics.get("tasks", {}))


def _popqa(inputs: Inputs) -> list[Finding]:
    correlation = {row["method"]: row for row in inputs.rows("accuracy", dataset="popqa")}
    effect = {row["group"]: row for row in inputs.rows("retrieval_effect", dataset="popqa", method="dense")}
    found = []
    if "closed_book" in correlation:
        rise = correlation["closed_book"]["correlation"]
        found.append(
            Finding(
                "memory",
                "Without retrieval, accuracy rises with the subject's popularity.",
                f"The correlation of closed-book correctness with log popularity is {show(rise)}"
                f"{_over(correlation['closed_book']['popularity_known'], 'question')}.",
                rise,
                1,
            )
        )
    if "genread" in correlation:
        rise = correlation["genread"]["correlation"]
        found.append(
            Finding(
                "genread",
                "GenRead, whose passages come from the model's memory, does worse on less popular subjects as well.",
                f"The correlation of its correctness with log popularity is {show(rise)}"
                f"{_over(correlation['genread']['popularity_known'], 'question')}.",
                rise,
                1,
            )
        )
    if not effect:
        return found
    tail, head, named, apart = (
        effect[group] for group in ("tail", "head", "namesake's page, head", retrieval_effects.TAIL_LESS_HEAD)
    )
    return [
        *found,
        Finding(
            "tail",
            "Retrieval helps in the long tail.",
            f"On the least popular {percent(accuracy.TAIL)} of the questions the passage of the dense retriever "
            f"changes accuracy by {_points(tail['gain'])}{_over(tail['questions'], 'question')}.",
            tail["gain"],
            1,
        ),
        Finding(
            "tail-most",
            "It helps more in the tail than at the head.",
            f"The gain in the tail less the gain on the most popular {percent(accuracy.HEAD)} "
            f"({_points(head['gain'])}) is {_points(apart['gain'])}.",
            apart["gain"],
            1,
        ),
        Finding(
            "namesakes",
            "It hurts where a namesake's page is retrieved for a popular subject.",
            f"Where the dense retriever brought another page by the same name, accuracy on the most popular "
            f"{percent(accuracy.HEAD)} changes by {_points(named['gain'])}{_over(named['questions'], 'question')}.",
            named["gain"],
            -1,
        ),
    ]


def _adaptive(inputs: Inputs, search: str) -> list[Finding]:
    found = []
    for method, words in (("dense", "the untuned retriever"), ("lsr", "the tuned retriever (LSR)")):
        of_lm = inputs.metrics.get("adaptive", {}).get("popqa", {}).get(inputs.main, {})
        figures = of_lm.get(method, {}).get(search)
        gain = interval(figures and figures["gain"])
        measured = "There were too few questions with a known popularity."
        if figures:
            numbers = {name: 100 * figures[name]["value"] for name in ("adaptive", "always", "never", "oracle")}
            measured = (
                f"Held out, adaptive retrieval is right on {numbers['adaptive']:.1f} % of the questions, always "
                f"retrieving on {numbers['always']:.1f} %, never on {numbers['never']:.1f} %, an oracle on "
                f"{numbers['oracle']:.1f} %; adaptive less the better of always and never: {_points(gain)}."
            )
        claim = f"With {words}, retrieving below a popularity threshold beats both always and never retrieving."
        found.append(Finding(f"adaptive-{method}", claim, measured, gain, 1))
    return found


def _bits(inputs: Inputs, top_k: int) -> list[Finding]:
    """Of the main language model on the Pile."""
    figures = inputs.metrics.get("language_modelling", {}).get(inputs.main_corpus, {}).get(inputs.main, {})
    replug, random = (interval(figures.get(f"gain_{name}_k{top_k}")) for name in ("dense", "random"))
    lsr = interval(figures.get(f"lsr_gain_k{top_k}"))
    apart = interval(figures.get(f"gain_over_random_dense_k{top_k}"))
    control = {1: "so that part of the gain is the ensemble's own", 0: "which is no clear gain", -1: "which is a loss"}
    return [
        Finding(
            "replug",
            "REPLUG lowers the language model's bits per byte.",
            f"{top_k} documents of the dense retriever save {_percent(replug)} of them.",
            replug,
            1,
        ),
        Finding(
            "random",
            "What lowers them is what the documents say: random ones, ensembled the same way, do worse.",
            f"{top_k} random documents save {_percent(random)}, {control[random.sign]}; retrieved documents save "
            f"{_percent(apart)} against random ones.",
            apart,
            1,
        ),
        Finding(
            "lsr",
            "LSR lowers bits per byte further than the untuned retriever.",
            f"LSR's {top_k} documents save {_percent(lsr)} against the untuned retriever's.",
            lsr,
            1,
        ),
    ]


def _recall(inputs: Inputs) -> list[Finding]:
    return [
        Finding(
            "recall",
            "LSR finds an answer more often, on questions about subjects it was not trained on.",
            "The share of top passages that hold an answer changes by "
            f"{_points(row['recall_gain'])}{_over(row['questions'], 'question')}.",
            row["recall_gain"],
            1,
        )
        for row in inputs.rows("comparisons", dataset="popqa", method="lsr", against="dense")
    ]


def _tasks(tasks: dict) -> list[Finding]:
    found = []
    for task in catalogue.names("benchmark"):
        if task in tasks:
            gain = interval(tasks[task]["replug"]["gain"])
            lsr = interval(tasks[task]["replug_lsr"]["gain"])
            found.append(
                Finding(
                    task,
                    f"REPLUG raises accuracy on {label(task)}.",
                    f"Against closed-book: {_points(gain)}, with LSR {_points(lsr)}"
                    f"{_over(tasks[task]['replug']['questions'], 'question')}.",
                    gain,
                    1,
                )
            )
    return found


def _points(change: Interval) -> str:
    return (
        f"{show(change.times(100), signed=True, digits=1)} points"
        if math.isfinite(change.value)
        else "an unknown amount"
    )


def _percent(change: Interval) -> str:
    return f"{show(change, digits=1)} %" if math.isfinite(change.value) else "an unknown amount"


def _over(n: int, what: str) -> str:
    return f" ({n:,} {what}{'' if n == 1 else 's'})"
