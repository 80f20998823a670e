"""What pretrained models say of the papers' claims on real texts, to stand beside what another run says.

real_claims.yaml has the figures. benchmarks/real_verdicts.py writes it after a run, which docs/measured/real.md
explains.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipelines.intervals import interval
from pipelines.report.page import label, show

FILE = Path(__file__).with_name("real_claims.yaml")


class Row(NamedTuple):
    """A method on a question set, corpus or benchmark, with its figures as `told` by each language model.

    A figure has the words `said`, `beside`, `verdict` and `lacking`, and `remains`, as page.py:Finding has them.
    """

    on: str
    method: str
    told: Mapping[str, Mapping[str, Any]]


class RealModels(NamedTuple):
    """The language models, the smallest first; what their files of weights hold; by claim, rows and what they are of.

    A claim is named by its sentence, as Finding.claim.
    """

    lms: Sequence[str]
    weights: str
    claims: Mapping[str, Sequence[Row]]
    measured: Mapping[str, str]

    def leading(self, claim: str) -> Row:
        """The row that stands for a claim: the dense retriever's on the first set, else the first."""
        rows = self.claims[claim]
        return next((row for row in rows if (row.on, row.method) == (rows[0].on, label("dense"))), rows[0])


def read_real(profile: str, path: Path = FILE) -> RealModels | None:
    """The content of real_claims.yaml; None for a run of the profile that it is of, which shows its own figures."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if content["profile"] == profile:
        return None
    lms = sorted(content["models"], key=lambda lm: (content["models"][lm]["parameters"] or 0, lm))
    claims: dict[str, list[Row]] = {}
    for entry in content["claims"]:
        rows: dict[tuple[str, str], dict] = {}
        for one in sorted(entry["figures"], key=lambda one: lms.index(one["lm"])):
            said = show(interval(one), signed=True, digits=1 if entry["unit"] else None)
            words = {"said": said, "beside": f"({show(one['n'])})", "lacking": one.get("lacking", "")}
            words |= {"verdict": one["verdict"], "remains": one.get("remains_after_holm", False)}
            rows.setdefault((one["set"], one["method"]), {})[one["lm"]] = words
        claims[entry["claim"]] = [Row(*names, told) for names, told in rows.items()]
    return RealModels(lms, content["weights"], claims, {one["claim"]: one["measured"] for one in content["claims"]})
