"""The findings: the papers' claims as findings.yaml lists them, each held against a figure of this run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.params import params
from pipelines.report.adaptive_section import of_search, too_few
from pipelines.report.entries import JINJA, Row
from pipelines.report.inputs import Inputs
from pipelines.report.page import Finding, label, percent, points, show

FILE = Path(__file__).parent / "findings.yaml"
BITS = {"replug": "gain_dense", "random": "gain_random", "over_random": "gain_over_random_dense", "lsr": "lsr_gain"}


def findings(inputs: Inputs, thresholds: params.Thresholds, top_k: int) -> list[Finding]:
    """All findings that this run has figures for, of the main language model, question set and corpus.

    `thresholds` are the params of that name, `top_k` the number of REPLUG's documents.
    """
    main = inputs.main_questions
    bits = inputs.scored(inputs.main_corpus).get(inputs.main, {})
    groups = {row["group"]: row for row in inputs.rows("retrieval_effect", dataset=main, method="dense")}
    rows: dict[str, Sequence[Row]] = {
        "accuracy": inputs.rows("accuracy", dataset=main),
        "effect_groups": [groups] if groups else [],
        "adaptive": adaptive_rows(inputs, thresholds),
        "bits": [{name: interval(bits.get(f"{key}_k{top_k}")) for name, key in BITS.items()}] if bits else [],
        "recall": inputs.rows("comparisons", dataset=main, method="lsr", against="dense"),
        "benchmarks": [
            {"task": task, "method": method, "gain": interval(found["gain"]), "questions": found["questions"]}
            for task in inputs.parts.benchmarks
            for method in ("replug", "replug_lsr")
            if (found := inputs.metrics.get("tasks", {}).get(task, {}).get(inputs.main, {}).get(method))
        ],
    }
    return held_against(rows, inputs, top_k)


def held_against(rows: dict[str, Sequence[Row]], inputs: Inputs, top_k: int) -> list[Finding]:
    """A finding for each claim and row; claims whose rows are not there are left out."""
    words: dict[str, Any] = {"inputs": inputs, "top_k": top_k, "HEAD": HEAD, "TAIL": TAIL, "label": label, "show": show}
    words |= {"percent": percent, "points": points, "saved": _saved, "over": lambda n: _over(n, inputs)}
    found = []
    for claim in yaml.safe_load(FILE.read_text(encoding="utf-8")):
        holds, figure = (
            JINJA.compile_expression(claim.get(key, "true"), undefined_to_none=False) for key in ("where", "figure")
        )
        for row in rows.get(claim["rows"], ()):
            if holds(words, row=row):
                texts = [JINJA.from_string(claim[key]).render(words, row=row) for key in ("id", "claim", "measured")]
                found.append(Finding(*texts, figure(words, row=row), claim.get("expected", 1)))
    return found


def adaptive_rows(inputs: Inputs, thresholds: params.Thresholds) -> list[Row]:
    """What thresholds are worth to the main model with dense and LSR, then to each imported model.

    Where the main model has none, the row says what is `lacking`.
    """
    if not inputs.parts.rules:
        return []
    main = inputs.main_questions
    of_lm = inputs.metrics.get("adaptive", {}).get(main, {}).get(inputs.main, {})
    lacking = {"lm": inputs.main, "gain": NOTHING, "lacking": too_few(main, of_lm, thresholds.min_questions)}
    rows = [row for row in of_search(thresholds.search)(inputs) if row["dataset"] == main]
    by_method = {row["method"]: row for row in rows if row["lm"] == inputs.main}
    answered = [method for method in ("dense", "lsr") if method in inputs.methods(main)]
    of_main = [by_method.get(method, lacking | {"method": method}) for method in answered]
    return [*of_main, *(row for lm in inputs.imported for row in rows if row["lm"] == lm)]


def _saved(change: Interval) -> str:
    return f"{show(change, digits=1)} %" if math.isfinite(change.value) else "an unknown amount"


def _over(n: int, inputs: Inputs) -> str:
    return f" ({n:,} question{'' if n == 1 else 's'} of {label(inputs.main_questions)})"
