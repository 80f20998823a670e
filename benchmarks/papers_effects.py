"""The papers' effects over several seeds: the sample pipeline run whole for each, and every finding
with its interval.

    .venv/bin/python -m benchmarks.papers_effects --seeds 0 1 2 --out docs/measured/tables
    .venv/bin/python -m benchmarks.papers_effects --set lsr.kl=p_q --set lsr.likelihood=sum_logprob --out OUT

effects.csv in OUT has the findings. effects-comparisons.csv has the controls and other comparisons, for which no paper says what to expect.

A seed changes the world, the language model, the retriever and every draw. Each run takes a clean
copy of the committed project into a temporary folder; nothing of this checkout is touched.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import yaml

from benchmarks.project_copy import RUN, clone, write_csv
from pipelines.intervals import Interval
from pipelines.pages.section import Finding
from pipelines.params import params_file
from pipelines.report import findings
from pipelines.report.run_tables import Settings, Tables


def read_run(project: Path) -> tuple[Tables, list[Finding], Settings]:
    """The tables of a finished run in a copy of the project, its findings, and its settings."""
    settings = params_file.load_settings(Settings, project / "params.yaml")
    tables = Tables(project / "data", settings)
    return tables, findings.findings(tables), settings


def comparisons(read: Tables, search: str) -> list[list]:
    """What is compared, value and interval, of a run: accuracies in points, bits in %."""
    adaptive = read.metrics["adaptive"]["popqa"][read.lm]

    def shown(table: str, figure: str, scale: float = 1, **key) -> Interval:
        (row,) = [
            row
            for row in read.rows(table)
            if all(row[name] == value for name, value in key.items())
        ]
        return row[figure].times(scale)

    def judged(method: str, kind: str, figure: str) -> Interval:
        figures = adaptive[method][kind][figure]
        return Interval(*(100 * figures[end] for end in ("value", "low", "high")))

    answers = {"dataset": "popqa", "lm": read.lm, "against_lm": read.lm, "method": "hybrid"}
    pile = {"corpus": "pile", "lm": read.lm}
    controls, copied = (
        pile | {"retriever": "dense"},
        {"corpus": "pile", "retriever": "dense", "least": 9},
    )
    rows = {
        "Hybrid of BM25 and dense, less dense: accuracy": shown(
            "comparisons", "gain", 100, against="dense", **answers
        ),
        "Hybrid less BM25: accuracy": shown("comparisons", "gain", 100, against="bm25", **answers),
        "Thresholds between GenRead and dense, less the better of both": judged(
            "dense_below_genread", search, "gain"
        ),
        "Thresholds between dense and BM25, less the better of both": judged(
            "bm25_below_dense", search, "gain"
        ),
        "Bits saved by all documents in one prompt, less the ensemble's (Pile, dense)": shown(
            "lm_controls", "saved_over_ensemble", control="concatenated", **controls
        ),
        "Bits saved by more of the text, less the best document's": shown(
            "lm_controls", "saved_over_same", control="longer_context", **controls
        ),
        "Share of all bits saved in n-grams of 9 or more that a document has (dense)": shown(
            "copied", "share_of_saved", 100, **copied
        ),
    }
    return [[name, figure.value, figure.low, figure.high] for name, figure in rows.items()]


def run(
    seed: int, profile: str, folder: Path, changes: dict[str, dict]
) -> tuple[list[list], list[list]]:
    """A seed's findings (what, value, interval, whether it is shown), and its `comparisons`."""
    copy = clone(folder / str(seed), profile, seed=seed, **changes)
    subprocess.run(RUN, cwd=copy, check=True, stdout=sys.stderr, stderr=subprocess.DEVNULL)
    read, claims, chosen = read_run(copy)
    rows = []
    for one in claims:
        figure = [one.figure.value, one.figure.low, one.figure.high]
        rows.append([f"{one.claim} {one.on}, {one.method}", *figure, one.verdict == "shown"])
    return rows, comparisons(read, chosen.thresholds.search)


def by_seed(
    head: str, seeds: list[int], found: list[list[list]]
) -> tuple[list[str], list[list[str]]]:
    """The head and rows of a table: a row for each finding or comparison, and a column for each seed.

    Findings, whose order is another in each seed, also have in how many of the seeds they are
    shown.
    """
    claims, rows = len(found[0][0]) == 5, []
    by_name = [{row[0]: row[1:] for row in of_seed} for of_seed in found]
    for name in by_name[0]:
        of_seeds = [of_seed[name] for of_seed in by_name]
        rows.append(
            [name, *(f"{value:+.3g} [{low:.3g}, {high:.3g}]" for value, low, high, *_ in of_seeds)]
        )
        if claims:
            rows[-1].append(f"{sum(shown for *_, shown in of_seeds)} of {len(seeds)}")
    return [head, *(f"seed {seed}" for seed in seeds), *["borne out"] * claims], rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--profile", default="sample")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.NAME=VALUE", help="another param"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the two CSV files")
    args = parser.parse_args()
    changes: dict[str, dict] = defaultdict(dict)
    for name, value in (one.split("=", 1) for one in args.set):
        section, _, key = name.partition(".")
        changes[section][key] = yaml.safe_load(value)
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    with tempfile.TemporaryDirectory() as folder:
        found = [run(seed, args.profile, Path(folder), changes) for seed in args.seeds]
    claims, compared = zip(*found, strict=True)
    write_csv(args.out / "effects.csv", *by_seed("claim", args.seeds, claims))
    comparisons_of_seeds = by_seed("comparison", args.seeds, compared)
    write_csv(args.out / "effects-comparisons.csv", *comparisons_of_seeds)


if __name__ == "__main__":
    main()
