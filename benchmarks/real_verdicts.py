"""What a finished run of pretrained models says of the papers' claims, as the data file that all reports show.

`write` is called by benchmarks/real_models.py. The file is pipelines/report/real_claims.yaml.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks.papers_effects import read_run
from pipelines.params import params_file
from pipelines.report import findings, inputs
from pipelines.report.page import Finding
from pipelines.storage.atomic import atomic

HEAD = "# What pretrained models say of the papers' claims on real texts. benchmarks/real_verdicts.py writes this file.\n"
WEIGHTS = "4-bit weights expanded to bf16"  # what the language models' folders hold; no file in them says it
DIGITS = 8


def write(project: Path, target: Path) -> None:
    """Write what each language model of the run in a copy of the project measured, for each claim and method."""
    read, *_ = read_run(project)
    found = {lm: _findings(read, lm) for lm in read.models}
    tested = findings.holm(
        [replace(one, id=f"{lm} {one.id}") for lm, of_lm in found.items() for one in of_lm]
    )
    corrected = {one.id: one.remains for one in tested}
    found = {
        lm: [replace(one, remains=corrected[f"{lm} {one.id}"]) for one in of_lm]
        for lm, of_lm in found.items()
    }
    content = {**_about(project, read), "claims": [*_claims(found)]}
    text = yaml.safe_dump(
        content, sort_keys=False, default_flow_style=None, width=200, allow_unicode=True
    )
    with atomic(target) as file:
        file.write_text(HEAD + text, encoding="utf-8")


def _findings(read: inputs.Inputs, lm: str) -> list[Finding]:
    """The findings of a run whose only language model this is: those of `read` are of its main one."""
    alone = {"models": [row for row in read.tables["models"] if row["lm"] == lm]}
    return findings.findings(replace(read, models=[lm], tables=read.tables | alone))


def _about(project: Path, read: inputs.Inputs) -> dict[str, Any]:
    """What the figures are of: the code, the machine, the models and the data."""
    chosen = params_file.load_params(
        "profile", "lm", "retriever", "retrievers", path=project / "params.yaml"
    )
    commit = subprocess.check_output(
        ["git", "rev-parse", "--short", "HEAD"], cwd=project, text=True
    ).strip()
    latencies = (
        json.loads(file.read_text(encoding="utf-8"))
        for file in read.data.glob("latency/*/*/*.json")
    )
    files: dict[str, list[int]] = defaultdict(list)
    for row in read.manifest:
        files[row["dataset"]].append(row["bytes"])
    return {
        "profile": chosen.profile,
        "commit": commit,
        "machine": " and ".join(sorted({content["machine"] for content in latencies})),
        "weights": WEIGHTS,
        "models": {
            lm: {
                "parameters": read.sizes[lm],
                "dtype": chosen.lm[lm].dtype,
                "folder": _last(chosen.lm[lm].path),
            }
            for lm in read.models
        },
        "retrievers": {name: _last(chosen.retriever[name].path) for name in chosen.retrievers},
        "files": {
            dataset: {"files": len(sizes), "bytes": sum(sizes)}
            for dataset, sizes in sorted(files.items())
        },
        "documents": read.documents,
    }


def _claims(found: Mapping[str, Sequence[Finding]]) -> Iterator[dict[str, Any]]:
    """Claims with their figures: in the order of the first language model, and all models' of a method together."""
    claims: dict[str, dict[tuple[str, str], list[tuple[str, Finding]]]] = {}
    for lm, of_lm in found.items():
        for one in of_lm:
            claims.setdefault(one.claim, {}).setdefault((one.on, one.method), []).append((lm, one))
    for claim, rows in claims.items():
        figures = [(lm, one) for row in rows.values() for lm, one in row]
        _, first = figures[0]
        about = {
            "claim": claim,
            "measured": first.measured.partition(" Beside it")[0],
            "unit": first.unit,
        }
        yield about | {"figures": [_figure(lm, one) for lm, one in figures]}


def _figure(lm: str, one: Finding) -> dict[str, Any]:
    """A figure in its claim's unit. `n` is how many questions or texts it is of."""
    figure = one.figure.times(100) if one.unit == "points" else one.figure
    ends = {
        end: number and float(f"{number:.{DIGITS}g}") for end, number in figure.as_json().items()
    }
    row = {
        "set": one.on,
        "method": one.method,
        "lm": lm,
        **ends,
        "n": one.n,
        "verdict": one.verdict,
    }
    return row | ({"lacking": one.lacking} if one.lacking else {"remains_after_holm": one.remains})


def _last(path: str | None) -> str | None:
    return path and Path(path).name
