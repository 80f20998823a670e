"""The papers' effects over several seeds: the sample pipeline run whole for each, and every finding with its interval.

    .venv/bin/python -m benchmarks.papers_effects --seeds 1 2 3 4 5 > docs/effects.md

A seed changes the world, the language model, the retriever and every draw. Each run takes a clean copy of the committed
project into a temporary folder; nothing of this checkout is touched.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READ = """
import json
from pathlib import Path
from pipelines import params_file
from pipelines.report import findings, inputs
p = params_file.load("lms", "thresholds", "replug", "parts")
read = inputs.read(Path("data"), p.lms, p.parts)
found = findings.findings(read, p.thresholds.search, p.replug.top_k)
print(json.dumps([[f.id, f.claim, f.expected, f.figure.value, f.figure.low, f.figure.high] for f in found]))
"""


def run(seed: int, profile: str, folder: Path) -> list[list]:
    """The findings of one seed: name, claim, expected sign, value and interval."""
    import json

    copy, python = folder / str(seed), ROOT / ".venv/bin/python"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    subprocess.run([python, "-m", "flows.cli", "profile", profile], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    text = (copy / "params.yaml").read_text(encoding="utf-8")
    assert "\nseed: " in f"\n{text}"
    lines = [f"seed: {seed}" if line.startswith("seed:") else line for line in text.splitlines()]
    (copy / "params.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    subprocess.run([python, "-m", "dvc", "repro"], cwd=copy, check=True, stdout=sys.stderr, stderr=subprocess.DEVNULL)
    read = subprocess.run([python, "-c", READ], cwd=copy, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(read.stdout)


def table(seeds: list[int], found: list[list[list]]) -> str:
    """A Markdown table: a row per claim, a column per seed, and in how many of the seeds the interval bears it out."""
    head = ["claim", *(f"seed {seed}" for seed in seeds), "borne out"]
    rows = [head, ["---"] * len(head)]
    for own in zip(*found, strict=True):
        cells = [f"{value:+.3g} [{low:.3g}, {high:.3g}]" for *_, value, low, high in own]
        sign = own[0][2]
        held = sum(sign * (low if sign > 0 else high) > 0 for *_, low, high in own)
        rows.append([own[0][1], *cells, f"{held} of {len(seeds)}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--profile", default="sample")
    given = parser.parse_args()
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    with tempfile.TemporaryDirectory() as folder:
        found = [run(seed, given.profile, Path(folder)) for seed in given.seeds]
    print(table(given.seeds, found))


if __name__ == "__main__":
    main()
