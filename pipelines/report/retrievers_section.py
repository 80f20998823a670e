"""The report's sections on the retrievers: each by every measure, and how LSR learned (REPLUG, sections 4 and 6)."""

from __future__ import annotations

import math
from statistics import fmean

from pipelines import catalogue
from pipelines.evaluation.recall import AT
from pipelines.evaluation.stage_metrics import retrievers_of
from pipelines.intervals import interval
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, Percent, Section, Share, Table, label, show

MEASURES = {  # column of the table `retrievers` -> head
    "bits_per_byte": "bits per byte",
    "saved": "saved, %",
    **{
        f"{name}_{column}": f"{label(name)}, {words}"
        for name in catalogue.names("answered")
        for column, words in (("recall_at_1", "recall@1"), ("word", "accuracy"))
    },
    "real_recall_at_1": "real questions, recall@1",
    "real_recall_at_10": "real questions, recall@10",
}
WHOLE = "Both are by whole words (word), whichever rule is chosen for the other figures."
BITS = ("bits_per_byte", "saved")  # the other measures are shares


def retrievers(inputs: Inputs, top_k: int) -> Section:
    """Every retriever by each measure of this run, and recall@k on questions that come with passages."""
    rows = inputs.tables["retrievers"]
    measured = [name for name in MEASURES if any(math.isfinite(row[name].value) for row in rows)]
    blocks: list = []
    blocks += _drawn(inputs)
    if measured:
        corpus = label(inputs.main_corpus)
        explained = {
            f"bits per byte of {corpus} with {top_k} documents, and what they save": "bits_per_byte" in measured,
            "recall@1 and accuracy with the top passage (always whole words), in per cent": bool(inputs.asked),
            "recall of gold passages on real questions, in per cent": "real_recall_at_1" in measured,
        }
        blocks.append(
            Table(
                "retrievers",
                f"The retrievers by each measure, with {inputs.main} as language model: "
                f"{'; '.join(words for words, applies in explained.items() if applies)}. To compare another encoder, "
                "such as DPR or BERT, describe it under retriever and list it in retrievers.",
                ["retriever", *(MEASURES[name] for name in measured)],
                [
                    [label(row["retriever"]), *(row[name] if name in BITS else Percent(row[name]) for name in measured)]
                    for row in rows
                ],
            )
        )
    for name in inputs.parts.passages:
        blocks += recall(name, inputs.metrics.get(name, {}), label(inputs.parts.datastore))
    return Section("recall", "The retrievers compared", blocks, says=_says(inputs))


def _shares(inputs: Inputs) -> tuple[list[str], list[dict]]:
    """The measures that are shares and that two retrievers have, and the rows of retrievers with one."""
    rows = inputs.tables["retrievers"]
    names = [name for name in MEASURES if name not in BITS and sum(math.isfinite(row[name].value) for row in rows) > 1]
    return names, [row for row in rows if any(math.isfinite(row[name].value) for name in names)]


def _drawn(inputs: Inputs) -> list[Figure]:
    """Recall and accuracy by retriever."""
    names, rows = _shares(inputs)
    if not rows:
        return []
    return [
        figures.bars(
            "retrievers",
            [MEASURES[name] for name in names],
            {row["retriever"]: [row[name].times(100) for name in names] for row in rows},
            y="share of the questions, %",
            caption=f"Recall, and accuracy with the top passage, by retriever; {inputs.main} answers. {WHOLE}",
        )
    ]


def _says(inputs: Inputs) -> str:
    """The best two retrievers by recall on the main question set, or by the first share that was measured."""
    names, rows = _shares(inputs)
    if not rows:
        return ""
    main = f"{inputs.main_questions}_recall_at_1"
    name = main if main in names else names[0]
    ranked = sorted((row for row in rows if math.isfinite(row[name].value)), key=lambda row: -row[name].value)
    shares = [f"{label(row['retriever'])} with {show(Percent(row[name]))} %" for row in ranked[:2]]
    return f"The best retriever by “{MEASURES[name]}” is {'; next is '.join(shares)}."


def recall(name: str, metrics: dict, datastore: str) -> list[Table | Figure]:
    """Recall@k on a set of questions that come with passages, by data set and retriever."""
    sets = metrics.get("sets", {})
    if not sets:
        return []
    retrievers = retrievers_of(sets["all"])
    shares = {r: [interval(sets["all"][r][f"recall_at_{k}"]).times(100) for k in AT] for r in retrievers}
    return [
        Table(
            f"{name}-recall",
            "Recall@k in per cent, with Wilson's intervals: the share of answerable questions that have a gold passage "
            f"among the first k. Searched are the {metrics['passages']:,} passages that came with the "
            f"{metrics['questions']:,} questions and {metrics['distractors']:,} documents of {datastore}. A question's "
            "gold passages are its own passages that hold an answer as whole words; with any, it is answerable.",
            ["questions of", "retriever", "questions", "answerable", *(f"recall@{k}" for k in AT)],
            [
                ["all" if dataset == "all" else label(dataset), label(retriever)]
                + [figures_of_set["questions"], figures_of_set["answerable"]]
                + [Percent(interval(figures_of_set[retriever][f"recall_at_{k}"])) for k in AT]
                for dataset, figures_of_set in sets.items()
                for retriever in retrievers
            ],
        ),
        figures.bars(
            f"{name}-recall",
            [f"recall@{k}" for k in AT],
            shares,
            y="answerable questions, %",
            caption="Recall of a gold passage among the first k, over all questions.",
        ),
    ]


def training(inputs: Inputs) -> Section:
    """LSR's training curves, of each tuned retriever: divergence, entropies of both distributions, validation."""
    by_retriever, title = inputs.metrics.get("lsr", {}), "How LSR learned"
    metrics = {name: by_retriever[name] for name in inputs.parts.tuned if by_retriever.get(name, {}).get("curve")}
    if not metrics:
        return Section("training", title)
    intro = (
        "The retriever learns to give each document the probability (P) that follows from the frozen language "
        "model's likelihood (Q). If Q is uniform, there is nothing to learn. Validation is on queries that "
        "training never sees."
    )
    of_first, *of_others = [
        _trained(of_retriever, f"-{name}" * bool(i), f" of {name}" * (len(metrics) > 1))
        for i, (name, of_retriever) in enumerate(metrics.items())
    ]
    blocks = [intro, *of_first, *(block for blocks in of_others for block in blocks)]
    return Section("training", title, blocks, says=" ".join(_learned(name, of) for name, of in metrics.items()))


def _learned(name: str, metrics: dict) -> str:
    """What a retriever's training changed: its divergence, the mean over a tenth of the steps, and validation."""
    curve = [row["kl"] for row in metrics["curve"]]
    tenth = max(1, len(curve) // 10)
    first, last = (show(fmean(part)) for part in (curve[:tenth], curve[-tenth:]))
    said = f"Tuning {name}, the divergence is {first} on average in the first tenth of the steps and {last} in the last"
    validation = [row for row in metrics.get("validation", []) if row.get("recall_at_1") is not None]
    if len(validation) < 2:
        return f"{said}."
    start, end = (show(Share(validation[i]["recall_at_1"])) for i in (0, -1))
    return f"{said}; recall@1 in validation goes from {start} to {end} %."


def _trained(metrics: dict, suffix: str, of_retriever: str) -> list[Figure | Table]:
    """A retriever's curves and its validation; `suffix` ends the files' names, `of_retriever` is for the captions."""
    curve, validation = metrics["curve"], metrics.get("validation", [])
    judged = sorted({key for row in validation for key in row} - {"step"})
    recalls, bits = ([key for key in judged if key.startswith(start)] for start in ("recall", "bpb"))
    panels = [
        _panel("divergence", curve, {"kl": "KL"}),
        _panel("entropy, 1 = uniform", curve, {"entropy_lm": "Q, language model", "entropy_retriever": "P, retriever"}),
        *([_panel("validation: recall", validation, {key: _words(key) for key in recalls})] if recalls else []),
        *([_panel("validation: bits per byte", validation, {key: _words(key) for key in bits})] if bits else []),
    ]
    first, last = curve[0], curve[-1]
    return [
        figures.curves(
            f"lsr-training{suffix}",
            panels,
            x="step",
            caption=f"LSR's training{of_retriever} by step, and its validation each time the corpora were embedded "
            "again.",
            alt=f"Line charts of LSR's training: the divergence goes from {first['kl']:.3f} to {last['kl']:.3f}, "
            f"the entropy of Q from {first['entropy_lm']:.3f} to {last['entropy_lm']:.3f}. The table below has the "
            "validation.",
        ),
        Table(
            f"lsr-validation{suffix}",
            f"LSR's validation{of_retriever}.",
            ["step", *map(_words, judged)],
            [[row["step"], *(row.get(key) for key in judged)] for row in validation],
        ),
    ]


def _panel(title: str, rows: list[dict], names: dict[str, str]) -> tuple:
    series = {words: [math.nan if row.get(key) is None else row[key] for row in rows] for key, words in names.items()}
    return title, [row["step"] for row in rows], series


def _words(key: str) -> str:
    return key.replace("recall_at_", "recall@").replace("bpb_k", "bits per byte, k = ").replace("_", " ")
