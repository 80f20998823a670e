"""What pretrained models say of the papers' claims on real texts, to stand beside what another run says.

real_claims.yaml has the figures. benchmarks/real_verdicts.py writes it after a run, which docs/measured/real.md
explains.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipelines.intervals import interval
from pipelines.report.drawing import number
from pipelines.report.page import label, show

FILE = Path(__file__).with_name("real_claims.yaml")


class Told(NamedTuple):
    """A figure of a language model, as page.py:Finding has it."""

    said: str
    beside: str  # how many questions or texts it is of
    verdict: str
    lacking: str
    remains: bool  # whether a clear effect remains after Holm's correction for all figures of the file


class Row(NamedTuple):
    """The figures of a method on a question set, corpus or benchmark, by language model, the smallest first."""

    on: str
    method: str
    told: dict[str, Told]


@dataclass(frozen=True)
class RealModels:
    """The language models with their sizes, such as 135M, the smallest first; and rows of figures by claim."""

    sizes: dict[str, str]
    listed: str  # the language models by name with their sizes, unless they are called by name
    weights: str  # what the files of weights hold
    claims: dict[str, list[Row]]  # a claim is named by its sentence, as Finding.claim
    measured: dict[str, str]  # claim -> what the figures are

    def leading(self, claim: str) -> Row:
        """The row that stands for a claim: the dense retriever's on the first set, else the first."""
        rows = self.claims[claim]
        return next((row for row in rows if (row.on, row.method) == (rows[0].on, label("dense"))), rows[0])

    def others(self, claim: str) -> list[Row]:
        """The rows that do not lead."""
        return [row for row in self.claims[claim] if row != self.leading(claim)]


def read_real(profile: str, path: Path = FILE) -> RealModels | None:
    """The content of real_claims.yaml; None for a run of the profile that it is of, which shows its own figures."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if content["profile"] == profile:
        return None
    models = sorted(content["models"].items(), key=lambda item: (item[1]["parameters"] or 0, item[0]))
    sizes = {lm: _size(of["parameters"]) for lm, of in models}
    listed = ", ".join(f"{of['folder']} ({sizes[lm]})" for lm, of in models)
    if "" in sizes.values() or len({*sizes.values()}) < len(sizes):
        sizes = {lm: lm for lm in sizes}
        listed = ", ".join(sizes)
    claims = {entry["claim"]: _rows(entry["figures"], entry["unit"], sizes) for entry in content["claims"]}
    measured = {entry["claim"]: entry["measured"] for entry in content["claims"]}
    return RealModels(sizes, listed, content["weights"], claims, measured)


def _rows(figures: Sequence[dict[str, Any]], unit: str, lms: Iterable[str]) -> list[Row]:
    rows: dict[tuple[str, str], dict[str, Told]] = defaultdict(dict)
    for one in figures:
        said = show(interval(one), signed=True, digits=1 if unit else None)
        about = one["verdict"], one.get("lacking", ""), one.get("remains_after_holm", False)
        rows[one["set"], one["method"]][one["lm"]] = Told(said, f"({show(one['n'])})", *about)
    return [Row(*names, {lm: told[lm] for lm in lms if lm in told}) for names, told in rows.items()]


def _size(parameters: int | None) -> str:
    return number(parameters, 10 ** (len(str(parameters)) - 2)) if parameters else ""
