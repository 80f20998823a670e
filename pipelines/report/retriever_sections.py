"""The report's sections on the retrievers, how LSR learned, and on benchmarks (REPLUG, 4 and 6)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from pipelines import catalogue
from pipelines.evaluation.recall import AT
from pipelines.evaluation.stage_metrics import retrievers_of
from pipelines.intervals import interval
from pipelines.report.entries import Drawn, Entry, Row, Rows, Shown, every, spread, table_of, where
from pipelines.report.figures import bars, lines
from pipelines.report.inputs import Inputs
from pipelines.report.page import Percent, Table, label, points, show

# the retrievers compared, and how LSR learned

ENDS = {"recall_at_1": "recall@1", "word": "accuracy"}  # of columns of a question set
MEASURES = {  # column of the table `retrievers` -> head
    "bits_per_byte": "bits per byte",
    "saved": "saved, %",
    **{f"{name}_{end}": f"{label(name)}, {ENDS[end]}" for name in catalogue.names("answered") for end in ENDS},
    "real_recall_at_1": "real questions, recall@1",
    "real_recall_at_10": "real questions, recall@10",
}


def _drawn_retrievers(inputs: Inputs) -> list[Row]:
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


def _best(inputs: Inputs, rule: str) -> str:
    """The best two retrievers by recall on the main question set."""
    rows = [row for row in _drawn_retrievers(inputs) if row["series"] == ENDS["recall_at_1"]]
    ranked = sorted((row for row in rows if math.isfinite(row["accuracy"].value)), key=lambda r: -r["accuracy"].value)
    shares = [f"{label(row['retriever'])} with {show(Percent(row['accuracy']))} %" for row in ranked[:2]]
    of = f"“{label(inputs.main_questions)}, recall@1”"
    return f"The best retriever by {of} is {'; next is '.join(shares)}." if shares else ""


RECALL = Entry(
    "recall",
    "The retrievers compared",
    [
        Drawn(
            bars, "retrievers", _drawn_retrievers, "series", "accuracy",
            lambda inputs, rows: f"Recall on {label(inputs.main_questions)}, and accuracy with the top passage, by "
            f"retriever; {inputs.main} answers. Both are by whole words (word), whichever rule is chosen.",
            {"y": "share of the questions, %"}, series="retriever",
        ),
        Shown(
            "retrievers", every("retrievers"), ["retriever", *MEASURES],
            lambda inputs, rows: f"The retrievers by each measure, with {inputs.main} as language model: bits per byte "
            "and what documents save, recall and accuracy with the top passage (always whole words) in per cent. To "
            "compare another encoder, such as DPR or BERT, describe it under retriever and list it in retrievers.",
            MEASURES | {"retriever": "retriever"},
        ),
        Shown(
            "recall-of-passages", recalls,
            ["set", "retriever", "questions", "answerable", *(f"recall_at_{k}" for k in AT)],
            "Recall@k in per cent, with Wilson's intervals: the share of answerable questions that have a gold passage "
            "among the first k of the passages that came with all questions and of the datastore's documents. A "
            "question's gold passages are its own passages that hold an answer as whole words; with any, it is "
            "answerable.",
            {"set": "questions of", "retriever": "retriever"},
        ),
    ],
    _best,
)  # fmt: skip


MARKS = 60  # of a curve at most


def _trained(inputs: Inputs) -> dict[str, dict]:
    found = inputs.metrics.get("lsr", {})
    return {name: found[name] for name in inputs.parts.tuned if found.get(name, {}).get("curve")}


def _curves(**series: str) -> Rows:
    """These columns of the curves by step, at most MARKS points of each."""
    return lambda inputs: [
        {"retriever": name, "step": row["step"], "series": words, "value": row[key]}
        for name, found in _trained(inputs).items()
        for row in found["curve"][:: math.ceil(len(found["curve"]) / MARKS)]
        for key, words in series.items()
    ]


def _validated(inputs: Inputs) -> list[Table]:
    rows = [{"retriever": name} | row for name, of in _trained(inputs).items() for row in of.get("validation", [])]
    heads = {
        key: key.replace("recall_at_", "recall@").replace("bpb_k", "bits per byte, k = ").replace("_", " ")
        for key in sorted({key for row in rows for key in row} - {"step", "retriever"})
    }
    return [table_of("lsr-validation", "LSR's validation.", rows, ["step", "retriever", *heads], heads)] if rows else []


def _learned(inputs: Inputs, rule: str) -> str:
    """What training changed: the divergence, the mean over a tenth of the steps."""
    sentences = []
    for name, found in _trained(inputs).items():
        curve = [row["kl"] for row in found["curve"]]
        tenth = max(1, len(curve) // 10)
        first, last = (show(fmean(part)) for part in (curve[:tenth], curve[-tenth:]))
        sentences.append(
            f"Tuning {name}, the divergence is {first} on average in the first tenth of the steps and {last} in the "
            "last."
        )
    return " ".join(sentences)


TRAINING = Entry(
    "training",
    "How LSR learned",
    [
        Drawn(
            lines, "lsr-training", _curves(kl="KL"), "step", "value", "the divergence of P and Q by step.",
            {"x": "step", "y": "divergence"}, each="retriever",
        ),
        "The retriever learns to give each document the probability (P) that follows from the frozen language model's "
        "likelihood (Q). If Q is uniform, there is nothing to learn. Validation is on queries that training never "
        "sees, each time the corpora were embedded again.",
        Drawn(
            lines, "lsr-entropy", _curves(entropy_lm="Q, language model", entropy_retriever="P, retriever"),
            "step", "value", "entropy of both distributions by step.",
            {"x": "step", "y": "entropy, 1 = uniform"}, each="retriever",
        ),
        _validated,
    ],
    _learned,
)  # fmt: skip

# benchmarks

METHODS = ("closed_book", "replug", "replug_lsr")


def _tasks(inputs: Inputs) -> list[Row]:
    """Accuracy by benchmark, language model, method and category, of models with closed-book answers."""
    solved = {(row["task"], row["lm"]) for row in inputs.tables["tasks"] if row["method"] == "closed_book"}
    rows = [row for row in inputs.tables["tasks"] if row["method"] in METHODS]
    return [row for row in rows if (row["task"], row["lm"]) in solved]


def _odd(inputs: Inputs) -> Iterator[str]:
    """What a language model could not be asked, as sentences."""
    found = inputs.metrics.get("tasks", {})
    for name, lm in dict.fromkeys((row["task"], row["lm"]) for row in _tasks(inputs)):
        if too_long := found[name][lm].get("too_long"):
            subjects = ", ".join(f"{subject or 'questions'} ({n:,})" for subject, n in too_long.items())
            yield f"{label(name)}, {lm}: prompts too long for the language model are left out: {subjects}."


def _raises(inputs: Inputs, rule: str) -> str:
    """What REPLUG changes on each benchmark, for its first language model."""
    rows = [row for row in _tasks(inputs) if (row["method"], row["category"]) == ("replug", "all")]
    gains = {row["task"]: f"{points(row['gain'])} on {label(row['task'])} ({row['lm']})" for row in reversed(rows)}
    if not gains:
        return "No ensemble answered a benchmark; the figure has the closed-book answers."
    return f"Against closed-book answers, REPLUG changes accuracy by {'; '.join(reversed(gains.values()))}."


def _unasked(inputs: Inputs) -> str:
    there = {row["task"] for row in _tasks(inputs)}
    lacking = [label(name) for name in inputs.parts.benchmarks if name not in there]
    return f"There were no questions of {' or '.join(lacking)}." if lacking else ""


TASKS = Entry(
    "tasks",
    "Benchmarks",
    [
        Drawn(
            bars, "tasks", where(_tasks, lambda row: row["category"] == "all"), "task", "accuracy",
            "accuracy by benchmark and method. Bars are Wilson's 95 % intervals.", {"y": "accuracy, %"},
            series="method", each="lm",
        ),
        "A multiple-choice question is answered by the likeliest of its four letters; guessing is right on 25 %. Other "
        "questions are answered by generation; an answer is right if it equals a gold answer after normalisation. "
        "REPLUG's ensembles answer by the mixture of probabilities where the language model shows them, else by a vote "
        "over an answer with each document.",
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
