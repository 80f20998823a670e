"""The papers' claims, each held against the figure that bears it out or does not."""

from __future__ import annotations

import math

import numpy as np

from pipelines import draws
from pipelines.evaluation import intervals, popqa
from pipelines.evaluation.intervals import Interval
from pipelines.release.inputs import Inputs, interval
from pipelines.release.page import Finding, show


def findings(inputs: Inputs, search: str, top_k: int) -> list[Finding]:
    """All findings, questions being PopQA's; `search` is the threshold search in use, `top_k` REPLUG's documents."""
    answers = inputs.answers.get("popqa")
    found = [] if answers is None else _popqa(answers, inputs.seed, inputs.resamples)
    found += _adaptive(inputs, search)
    found += _bits(inputs, top_k)
    if answers is not None:
        found.append(_recall(answers, inputs.seed, inputs.resamples))
    return found + _tasks(inputs.metrics.get("tasks", {}))


def _popqa(answers: popqa.Answers, seed: int, resamples: int) -> list[Finding]:
    ranks = answers.ranks()
    tail, head = ranks < popqa.TAIL, ranks >= 1 - popqa.HEAD
    gain = popqa.gain(answers, "dense")
    rise = popqa.correlation(answers, "closed_book", seed, resamples)
    in_tail = answers.bootstrap(gain, tail, seed, resamples)
    in_head = answers.bootstrap(gain, head, seed, resamples)
    named = (answers.is_namesake["dense"] == 1) & head
    misled = answers.bootstrap(gain, named, seed, resamples)
    tail_over_head = _difference_of_means(answers, gain, tail, head, seed, resamples)
    return [
        Finding(
            "memory",
            "Without retrieval, accuracy rises with the subject's popularity.",
            f"The correlation of closed-book correctness with log popularity is {show(rise)}"
            f"{_over(int(np.isfinite(answers.popularity).sum()), 'question')}.",
            rise,
            1,
        ),
        Finding(
            "tail",
            "Retrieval helps in the long tail.",
            f"On the least popular {popqa.TAIL:.0%} of the questions the passage of the dense retriever changes "
            f"accuracy by {_points(in_tail)}{_over(int(tail.sum()), 'question')}.",
            in_tail,
            1,
        ),
        Finding(
            "tail-most",
            "It helps more in the tail than at the head.",
            f"The gain in the tail less the gain on the most popular {popqa.HEAD:.0%} ({_points(in_head)}) is "
            f"{_points(tail_over_head)}.",
            tail_over_head,
            1,
        ),
        Finding(
            "namesakes",
            "It hurts where a namesake's page is retrieved for a popular subject.",
            f"Where the dense retriever brought another page by the same name, accuracy on the most popular "
            f"{popqa.HEAD:.0%} changes by {_points(misled)}{_over(int(named.sum()), 'question')}.",
            misled,
            -1,
        ),
    ]


def _adaptive(inputs: Inputs, search: str) -> list[Finding]:
    found = []
    for method, words in (("dense", "the untuned retriever"), ("lsr", "the tuned retriever (LSR)")):
        figures = inputs.metrics.get("adaptive", {}).get("popqa", {}).get(method, {}).get(search)
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
    figures = inputs.metrics.get("language_modelling", {}).get("pile", {}).get(inputs.models[0], {})
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


def _recall(answers: popqa.Answers, seed: int, resamples: int) -> Finding:
    everyone = np.ones(len(answers.ids), dtype=bool)
    more = answers.bootstrap(
        answers.has_answer["lsr"].astype(float) - answers.has_answer["dense"], everyone, seed, resamples
    )
    return Finding(
        "recall",
        "LSR finds an answer more often, on questions about subjects it was not trained on.",
        "The share of top passages that hold an answer changes by "
        f"{_points(more)}{_over(len(answers.ids), 'question')}.",
        more,
        1,
    )


def _tasks(tasks: dict) -> list[Finding]:
    names = {"mmlu": "MMLU", "nq": "Natural Questions", "triviaqa": "TriviaQA"}
    found = []
    for task, name in names.items():
        if task in tasks:
            gain = interval(tasks[task]["replug"]["gain"])
            lsr = interval(tasks[task]["replug_lsr"]["gain"])
            found.append(
                Finding(
                    task,
                    f"REPLUG raises accuracy on {name}.",
                    f"Against closed-book: {_points(gain)}, with LSR {_points(lsr)}"
                    f"{_over(tasks[task]['replug']['questions'], 'question')}.",
                    gain,
                    1,
                )
            )
    return found


def _difference_of_means(
    answers: popqa.Answers, values: np.ndarray, one: np.ndarray, other: np.ndarray, seed: int, resamples: int
) -> Interval:
    columns = np.stack([values * one, one, values * other, other], axis=1).astype(float)
    sums = intervals.cluster_sums(columns, answers.subjects)
    generator = draws.generator(seed, "popqa bootstrap")
    return intervals.bootstrap(sums, lambda s: s[:, 0] / s[:, 1] - s[:, 2] / s[:, 3], generator, resamples)


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
