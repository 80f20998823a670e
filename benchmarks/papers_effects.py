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
from collections.abc import Iterator
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


def comparisons(read: Tables, search: str) -> dict[str, Interval]:
    """What is compared, of a run: accuracies in points, bits in %."""
    adaptive = read.metrics["adaptive"]["popqa"][read.lm]

    def of_table(table: str, figure: str, where: str) -> Interval:
        (row,) = read.rows(table, f"lm = $lm AND {where}")
        return row[figure]

    def gain(against: str) -> Interval:
        where = f"dataset = 'popqa' AND method = 'hybrid' AND against = '{against}'"
        return of_table("comparisons", "gain", f"against_lm = $lm AND {where}").times(100)

    def adaptive_gain(methods: str) -> Interval:
        figure = adaptive[methods][search]["gain"]
        return Interval(figure["value"], figure["low"], figure["high"]).times(100)

    def saved(figure: str, control: str) -> Interval:
        where = f"corpus = 'pile' AND retriever = 'dense' AND control = '{control}'"
        return of_table("lm_controls", figure, where)

    (copied,) = read.rows("copied", "corpus = 'pile' AND retriever = 'dense' AND least = 9")
    return {
        "Hybrid of BM25 and dense, less dense: accuracy": gain("dense"),
        "Hybrid less BM25: accuracy": gain("bm25"),
        "Thresholds between GenRead and dense, less the better of both": adaptive_gain(
            "dense_below_genread"
        ),
        "Thresholds between dense and BM25, less the better of both": adaptive_gain(
            "bm25_below_dense"
        ),
        "Bits saved by all documents in one prompt, less the ensemble's (Pile, dense)": saved(
            "saved_over_ensemble", "concatenated"
        ),
        "Bits saved by more of the text, less the best document's": saved(
            "saved_over_same", "longer_context"
        ),
        "Share of all bits saved in n-grams of 9 or more that a document has (dense)": copied[
            "share_of_saved"
        ].times(100),
    }


def run(
    seed: int, folder: Path, changes: dict[str, dict]
) -> tuple[list[Finding], dict[str, Interval]]:
    """A seed's findings and `comparisons`, of a run in a copy of the project."""
    copy = clone(folder / str(seed), "sample", seed=seed, **changes)
    subprocess.run(RUN, cwd=copy, check=True, stdout=sys.stderr, stderr=subprocess.DEVNULL)
    read, claims, settings = read_run(copy)
    return claims, comparisons(read, settings.thresholds.search)


def claim_rows(seeds: list[list[Finding]]) -> Iterator[list[str]]:
    """A row for each finding, whose order is another in each seed: its figure in each of the
    seeds, and in how many of them it is shown.
    """
    by_name = []
    for claims in seeds:
        by_name.append({f"{claim.claim} {claim.on}, {claim.method}": claim for claim in claims})
    for name in by_name[0]:
        claims = [claims_of_seed[name] for claims_of_seed in by_name]
        n_shown = sum(claim.verdict == "shown" for claim in claims)
        figures = [cell(claim.figure) for claim in claims]
        yield [name, *figures, f"{n_shown} of {len(claims)}"]


def comparison_rows(seeds: list[dict[str, Interval]]) -> Iterator[list[str]]:
    """A row for each comparison: its figure in each of the seeds."""
    for name in seeds[0]:
        yield [name, *(cell(comparisons_of_seed[name]) for comparisons_of_seed in seeds)]


def cell(figure: Interval) -> str:
    return f"{figure.value:+.3g} [{figure.low:.3g}, {figure.high:.3g}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.NAME=VALUE", help="another param"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the two CSV files")
    arguments = parser.parse_args()

    changes: dict[str, dict] = defaultdict(dict)
    for change in arguments.set:
        name, _, value = change.partition("=")
        section, _, param = name.partition(".")
        changes[section][param] = yaml.safe_load(value)

    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    claims = []
    compared = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            claims_of_seed, compared_of_seed = run(seed, Path(folder), changes)
            claims.append(claims_of_seed)
            compared.append(compared_of_seed)

    seeds = [f"seed {seed}" for seed in arguments.seeds]
    out = arguments.out
    write_csv(out / "effects.csv", ["claim", *seeds, "borne out"], claim_rows(claims))
    head = ["comparison", *seeds]
    write_csv(out / "effects-comparisons.csv", head, comparison_rows(compared))


if __name__ == "__main__":
    main()
