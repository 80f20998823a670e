"""The report's sections on the retrievers, how LSR learned, and on benchmarks (REPLUG, 4 and 6)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from pipelines import catalogue
from pipelines.evaluation.recall import AT
from pipelines.evaluation.stage_metrics import retrievers_of
from pipelines.intervals import interval
from pipelines.report import entries
from pipelines.report.entries import Drawn, Entry, Row, Rows, Shown, every, spread, table_of
from pipelines.report.inputs import Inputs
from pipelines.report.page import Percent, Share, Table, label, points, show
from pipelines.storage import database

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


def _shares(inputs: Inputs) -> tuple[list[str], list[Row]]:
    """The measures that are shares and that two retrievers have, and the rows of retrievers with one."""
    rows = inputs.tables["retrievers"]
    names = [name for name in MEASURES if name not in BITS and sum(math.isfinite(row[name].value) for row in rows) > 1]
    return names, [row for row in rows if any(math.isfinite(row[name].value) for name in names)]


def _drawn_retrievers(inputs: Inputs) -> list[Row]:
    names, rows = _shares(inputs)
    return [
        {"retriever": row["retriever"]} | one for row in rows for one in spread([row], {n: MEASURES[n] for n in names})
    ]


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


def _drawn_recalls(inputs: Inputs) -> list[Row]:
    return spread(
        [row for row in recalls(inputs) if row["set"] == "all"], {f"recall_at_{k}": f"recall@{k}" for k in AT}
    )


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
            entries.bars, "retrievers", _drawn_retrievers, "series", "accuracy",
            lambda inputs, rows: "Recall, and accuracy with the top passage, by retriever; "
            f"{inputs.main} answers. {WHOLE}",
            {"y": "share of the questions, %"}, series="retriever",
        ),
        Shown(
            "retrievers", every("retrievers"), ["retriever", *MEASURES],
            lambda inputs, rows: f"The retrievers by each measure, with {inputs.main} as language model: bits per byte "
            "and what documents save, recall and accuracy with the top passage (always whole words) in per cent. To "
            "compare another encoder, such as DPR or BERT, describe it under retriever and list it in retrievers.",
            MEASURES | {"retriever": "retriever"},
        ),
        Drawn(
            entries.bars, "recall", _drawn_recalls, "series", "accuracy",
            "Recall of a gold passage among the first k, over all questions.", {"y": "answerable questions, %"},
            series="retriever",
        ),
        Shown(
            "recall-of-passages", recalls,
            ["set", "retriever", "questions", "answerable", *(f"recall_at_{k}" for k in AT)], _searched,
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

METHODS = ("closed_book", "replug", "replug_lsr")


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
