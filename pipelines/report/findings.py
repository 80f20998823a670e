"""The findings: every claim of the papers, held against every figure of this run that bears on it.

findings.yaml has the claims. A claim's figures are those of all methods, retrievers or benchmarks that the run has, on
each question set or corpus, the best one first.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from pipelines import methods
from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.evaluation.answer_sets import FEWEST
from pipelines.evaluation.retrieval_effects import TAIL_LESS_HEAD
from pipelines.evaluation.task_items import LETTERS
from pipelines.intervals import LEVEL, NOTHING, Interval, interval
from pipelines.pages.section import Finding
from pipelines.pages.values import Percent, label, percent, show
from pipelines.report.entries import JINJA, Row, answered
from pipelines.report.inputs import Inputs
from pipelines.report.question_sections import in_use, too_few
from pipelines.storage import database

FILE = Path(__file__).parent / "findings.yaml"
SAME = 0.95  # share of the questions from which on a model gives always the same answer
SINGLE = {
    "replug": "dense",
    "replug_lsr": "lsr",
    "replug_given": "given",
}  # ensemble -> what it is compared with
UNTUNED = {"lsr": "dense", "replug_lsr": "replug"}
SHOWN = {  # unit -> how a figure is shown
    "points": lambda figure: show(Percent(figure, signed=True)),
    "%": lambda figure: show(figure, signed=True, digits=1),
    "": lambda figure: show(figure, signed=True),
}


@dataclass(frozen=True)
class Measured:
    """A figure of a method or retriever on a question set, corpus or benchmark.

    `groups` are the questions that it is of: how many, and the shares right without and with what the claim is about.
    """

    on: str
    method: str
    figure: Interval
    rank: float  # how good the method is, more is better
    groups: Sequence[Sequence[float]]
    of: str = "questions"
    right: str = "answered right"
    lm: str = ""  # if it is not the main one
    lacking: str = ""  # why the figure can show no effect
    beside: Row | None = None  # figures to show with it


def findings(inputs: Inputs) -> list[Finding]:
    """All findings of the main language model and the imported ones, with what Holm's correction leaves of them."""
    words: dict[str, Any] = {"HEAD": HEAD, "TAIL": TAIL, "TAIL_LESS_HEAD": TAIL_LESS_HEAD}
    words |= {"top_k": inputs.chosen.replug.top_k, "percent": percent, "show": show, "label": label}
    words |= {"SINGLE": SINGLE, "UNTUNED": UNTUNED}
    rows = (correlations, effects, compared, adaptive, bits, benchmarks)
    words |= {of.__name__: partial(of, inputs) for of in rows}
    found = []
    for paper in yaml.safe_load(FILE.read_text(encoding="utf-8")):
        for claim in paper["claims"]:
            texts = [JINJA.from_string(claim[key]).render(words) for key in ("claim", "measured")]
            measured = [*JINJA.compile_expression(claim["rows"], undefined_to_none=False)(words)]
            places = list(dict.fromkeys(row.on for row in measured))
            for row in sorted(measured, key=lambda row: (places.index(row.on), -row.rank)):
                id_ = "-".join(filter(None, (claim["id"], row.on, row.lm, row.method)))
                expected, lacking = (
                    claim.get("expected", 1),
                    row.lacking or hindrance(row, claim.get("expected", 1)),
                )
                beside = (
                    "" if lacking else JINJA.from_string(claim["beside"]).render(words, row=row)
                )
                name = ", ".join(
                    filter(None, (label(row.method) if row.method else "every method", row.lm))
                )
                of = (
                    paper["paper"],
                    *texts,
                    label(row.on),
                    name,
                    SHOWN[claim["unit"]](row.figure),
                    beside,
                )
                n = sum(round(group[0]) for group in row.groups)
                found.append(
                    Finding(id_, *of, row.figure, expected, lacking, unit=claim["unit"], n=n)
                )
    return holm(found)


def hindrance(row: Measured, expected: int) -> str:
    """Why a figure could show no effect of this sign even if there were one; "" if it could."""
    for n, *shares in row.groups:
        counts = [round(share * n) for share in shares if math.isfinite(share)]
        if n < FEWEST:
            return (
                f"There are only {n} {row.of}, and a figure takes {FEWEST}."
                if n
                else f"There are no such {row.of}."
            )
        if counts and max(counts) < FEWEST:
            return f"At most {max(counts)} of {n:,} {row.of} are {row.right}."
        if (
            len(counts) > 1
            and len(row.groups) == 1
            and (counts[0] if expected < 0 else n - counts[0]) < FEWEST
        ):
            change = "lost" if expected < 0 else "won"
            return f"Without it, {counts[0]} of {n:,} {row.of} are {row.right}: hardly any can be {change}."
    if not math.isfinite(row.figure.value):
        return "There is no figure."
    return f"Nothing changes on any of the {row.of}." if row.figure.low == row.figure.high else ""


def holm(found: Sequence[Finding]) -> list[Finding]:
    """The findings, marked if they remain after Holm's correction for all that are tested.

    The smallest of n p-values is multiplied by n, the next one by n - 1, and so on, until one is above 5 %.
    """
    tested, remaining = (
        sorted((one for one in found if not one.lacking), key=lambda one: one.p),
        set(),
    )
    for i, one in enumerate(tested):
        if one.p * (len(tested) - i) > 1 - LEVEL:
            break
        remaining.add(one.id)
    return [replace(one, remains=one.id in remaining) for one in found]


# the figures of a claim


def correlations(inputs: Inputs, kind: str) -> Iterator[Measured]:
    """How being right is correlated with popularity, for methods of a kind."""
    for row in answered("accuracy")(inputs):
        if methods.split(row["method"])[0] == kind:
            n, right = row["popularity_known"], row["substring"].value
            wrong = round((1 - right) * n)
            all_right = (
                f"All but {wrong} of {n:,} questions are answered right."
                if wrong < FEWEST <= n
                else ""
            )
            yield _measured(
                inputs, row, "correlation", [(n, right)], right, lacking=all_right, beside=row
            )


def effects(inputs: Inputs, group: str) -> Iterator[Measured]:
    """What retrieved passages change in a group of questions, by every method that retrieves."""
    by_method: dict[tuple, dict[str, Row]] = defaultdict(dict)
    for row in answered("retrieval_effect")(inputs):
        if methods.split(row["method"])[0] != "genread":
            by_method[row["dataset"], row["lm"], row["method"]][row["group"]] = row
    for rows in by_method.values():
        beside = {
            end: rows[end] for end in (("tail", "head") if group == TAIL_LESS_HEAD else (group,))
        }
        groups = [
            (row["questions"], row["closed_book"].value, row["augmented"].value)
            for row in beside.values()
        ]
        yield _measured(
            inputs, rows[group], "gain", groups, rows["all"]["augmented"].value, beside=beside
        )


def compared(inputs: Inputs, against: Mapping[str, str], column: str) -> Iterator[Measured]:
    """Methods less those of another kind with the same retriever: REPLUG less one prompt, LSR less no tuning."""
    table, share = ("recall", "recall") if column == "recall_gain" else ("accuracy", "substring")
    rows = [row for row in answered(table)(inputs) if row.get("answers", "all") == "all"]
    shares = {(row["dataset"], row["lm"], row["method"]): row[share].value for row in rows}
    for row in answered("comparisons")(inputs):
        kind, retriever = methods.split(row["method"])
        other = methods.named(against[kind], retriever) if kind in against else ""
        if row["lm"] == row["against_lm"] and row["against"] == other:
            both = [
                shares.get((row["dataset"], row["lm"], one), math.nan)
                for one in (other, row["method"])
            ]
            right = {"right": "given a passage that holds an answer"} if table == "recall" else {}
            yield _measured(
                inputs,
                row,
                column,
                [(row["questions"], *both)],
                both[1],
                beside={"other": other},
                **right,
            )


def adaptive(inputs: Inputs) -> Iterator[Measured]:
    """What thresholds are worth with each method and pair; if a question set has none, why it has none."""
    searched, least = in_use(inputs), inputs.chosen.thresholds.min_questions
    for dataset in inputs.asked if inputs.parts.rules else ():
        of_set = inputs.metrics.get("adaptive", {}).get(dataset, {})
        rows = [
            row
            for row in searched
            if row["dataset"] == dataset and row["lm"] in (inputs.main, *inputs.imported)
        ]
        if inputs.main not in {row["lm"] for row in rows}:
            lacking = too_few(dataset, of_set.get(inputs.main, {}), least)
            yield Measured(dataset, "", NOTHING, 0.0, [], lacking=lacking)
        for row in rows:
            n, better = of_set[row["lm"]]["questions"], max(row["always"].value, row["never"].value)
            won = round((row["oracle"].value - better) * n)
            few = f"An oracle would win only {won} of {n:,} questions." if won < FEWEST else ""
            yield _measured(inputs, row, "gain", [(n, better)], row["adaptive"].value, lacking=few)


def bits(inputs: Inputs, column: str) -> Iterator[Measured]:
    """What documents save of the bits per byte with each retriever; of `saved_over_dense` with each tuned one."""
    for corpus in inputs.parts.scored:
        figures = inputs.scored(corpus).get(inputs.main, {})
        rows = {
            (row["retriever"], row["k"]): row for row in inputs.rows("bits_per_byte", corpus=corpus)
        }
        for name, k in [
            key for key in rows if key[1] == inputs.chosen.replug.top_k and key[0] != "random"
        ]:
            row, (kind, retriever) = rows[name, k], methods.split(name)
            before = {
                "saved": ("none", 0),
                "saved_over_one": (name, 1),
                "saved_over_random": ("random", k),
            }
            before |= (
                {"saved_over_dense": (methods.named("dense", retriever), k)}
                if kind == "lsr"
                else {}
            )
            if before.get(column, (name, k)) in rows.keys() - {(name, k)}:
                one = {"saved_over_one": interval(figures.get(f"gain_over_one_{name}_k{k}"))}
                row = row | one | {"dataset": corpus, "method": name}
                texts, beside = (
                    [(figures["source_documents"],)],
                    {"before": rows[before[column]], "after": row},
                )
                yield _measured(
                    inputs, row, column, texts, row["saved"].value, of="texts", beside=beside
                )


def benchmarks(inputs: Inputs) -> Iterator[Measured]:
    """What REPLUG changes on each benchmark; one at chance, or always answered the same, shows nothing."""
    for task in inputs.parts.benchmarks:
        found = inputs.metrics.get("tasks", {}).get(task, {}).get(inputs.main, {})
        for method in methods.ordered(
            found.keys() & {*methods.ENSEMBLES} if "closed_book" in found else ()
        ):
            accuracies = [found[name]["accuracy"] for name in ("closed_book", method)]
            n, shares = found[method]["questions"], [accuracy["value"] for accuracy in accuracies]
            answers = inputs.data / "tasks" / task / inputs.main / "predictions.parquet"
            lacking = (
                _floor(answers, method, max(accuracy["low"] for accuracy in accuracies))
                if n
                else ""
            )
            row = {
                "dataset": task,
                "lm": inputs.main,
                "method": method,
                "gain": interval(found[method]["gain"]),
            }
            yield _measured(inputs, row, "gain", [(n, *shares)], shares[1], lacking=lacking)


def _floor(predictions: Path, method: str, least: float) -> str:
    """Why a benchmark's answers show nothing; `least` is the lower end of the better accuracy's interval."""
    query, same = "SELECT method, prediction, answers[1] FROM predictions", []
    rows = database.ask(query, predictions=predictions).fetchall()
    for name in ("closed_book", method):
        counts = Counter(prediction for of, prediction, _ in rows if of == name)
        answer, most = counts.most_common(1)[0]
        same += (
            [f"{answer} to {most:,} of {counts.total():,} questions"]
            if most >= SAME * counts.total()
            else []
        )
    if len(same) > 1:
        return f"The model answers {' and '.join(dict.fromkeys(same))}."
    guessed = {gold for *_, gold in rows} <= {*LETTERS} and least <= 1 / len(LETTERS)
    return f"No accuracy is clearly above chance, {percent(1 / len(LETTERS))}." if guessed else ""


def _measured(
    inputs: Inputs,
    row: Row,
    column: str,
    groups: Sequence[Sequence[float]],
    rank: float,
    **more: Any,
) -> Measured:
    lm = "" if row["lm"] == inputs.main else row["lm"]
    return Measured(row["dataset"], row["method"], row[column], rank, groups, lm=lm, **more)
