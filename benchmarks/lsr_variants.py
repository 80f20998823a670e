"""LSR's variants over several worlds: both directions of the divergence, three likelihoods, and what no tuning gives.

    .venv/bin/python -m benchmarks.lsr_variants --seeds 0 1 2 > docs/lsr.md
    .venv/bin/python -m benchmarks.lsr_variants --profile excerpt --seeds 0

A seed changes the world, the models and every draw. Each takes a clean copy of the committed project into a temporary
folder (or --folder, where a stopped run goes on); there the pipeline runs as far as LSR needs it, then again for each
variant, with the language model's scores kept between trainings. Figures are of test queries and questions that no
training saw, with 95 % bootstrap intervals: bits per byte over source documents, recall over subjects.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
VARIANTS = list(itertools.product(("q_p", "p_q"), ("mean_logprob", "sum_logprob", "prob")))
SWEEP = (1, 2, 3, 5, 10)  # documents in the ensemble
STAGES = {"dense": "answer@popqa-{}-dense", "lsr": "answer_lsr@popqa-{}-lsr"}  # by method
ANSWERS = "data/predictions/popqa/{lm}/{method}.parquet"
READ = """
import json
from pathlib import Path
from types import SimpleNamespace
import duckdb
import numpy as np
from pipelines import draws, params_file
from pipelines.evaluation import intervals, language_modelling
from pipelines.replug import bits
p = params_file.load("seed", "lms", "report", "replug")
measured = bits.measure(Path("data/logprobs/pile", p.lms[0]), p.replug)
texts = language_modelling.describe(Path("data/corpus/pile/queries.parquet"), measured.ids)
found = language_modelling.figures(measured, texts, p)
rows = duckdb.sql('''
    SELECT coalesce(CAST(s_uri AS VARCHAR), subj, question_id) AS subject, d.doc_has_answer AS dense,
           l.doc_has_answer AS lsr
    FROM read_parquet('data/questions/popqa/popqa.parquet') JOIN read_parquet('{dense}') d USING (question_id)
    JOIN read_parquet('{lsr}') l USING (question_id) ORDER BY question_id''').fetchnumpy()
columns = {name: np.ma.getdata(rows[name]).astype(float) for name in ("dense", "lsr")}
columns["recall_gain"] = columns["lsr"] - columns["dense"]
for name, values in columns.items():
    drawn = draws.generator(p.seed, "lsr variants")
    found[name] = intervals.mean(values, drawn, p.report.bootstrap, rows["subject"].astype(str)).as_json()
found["questions"] = len(rows["subject"])
found["training"] = {name: value for name, value in json.loads(Path("data/metrics/lsr.json").read_text()).items()
                     if isinstance(value, (int, float))}
print(json.dumps(found))
"""


def run(seed: int, profile: str, folder: Path) -> list[dict]:
    """The figures of each of VARIANTS, in their order, in the world of one seed."""
    copy = folder / f"{profile}-{seed}"
    if not copy.exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        (copy / ".venv").symlink_to(ROOT / ".venv")
        subprocess.run([ROOT / ".venv/bin/python", "-m", "flows.cli", "profile", profile], cwd=copy, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
    found = []
    for kl, likelihood in VARIANTS:
        done = copy / f"variant-{kl}-{likelihood}.json"
        if not done.exists():
            print(f"{profile}, seed {seed}: {kl}, {likelihood}", file=sys.stderr, flush=True)
            done.write_text(_figures(copy, seed, kl, likelihood), encoding="utf-8")
        found.append(json.loads(done.read_text(encoding="utf-8")))
    return found


def _figures(copy: Path, seed: int, kl: str, likelihood: str) -> str:
    params = yaml.safe_load((copy / "params.yaml").read_text(encoding="utf-8"))
    params["seed"] = seed
    params["compute"]["threads"] = 1
    params["lsr"] |= {"kl": kl, "likelihood": likelihood, "keep_scores": True}
    with (copy / "params.yaml").open("w", encoding="utf-8") as stream:
        yaml.safe_dump(params, stream, sort_keys=False)
    python, lm = copy / ".venv/bin/python", params["lms"][0]
    trained = subprocess.run([python, "-m", "dvc", "repro", "train_lsr"], cwd=copy, capture_output=True, text=True)
    if trained.returncode:  # as where the language model's distribution is uniform
        errors = [line for line in trained.stderr.splitlines() if line.startswith("error: ")]
        if not errors or "uniform" not in errors[0]:
            raise SystemExit(trained.stdout + trained.stderr)
        return json.dumps({"stopped": errors[0].removeprefix("error: ")})
    wanted = [f"score_lm@pile-{lm}", *(stage.format(lm) for stage in STAGES.values())]
    subprocess.run([python, "-m", "dvc", "repro", *wanted], cwd=copy, check=True, stdout=sys.stderr,
                   stderr=subprocess.DEVNULL)  # fmt: skip
    script = READ
    for method in STAGES:
        script = script.replace(f"{{{method}}}", ANSWERS.format(lm=lm, method=method))
    return subprocess.run([python, "-c", script], cwd=copy, check=True, stdout=subprocess.PIPE, text=True).stdout


def controls(seeds: list[int], found: list[list[dict]]) -> str:
    """What the same documents' number gives without tuning: by seed."""
    rows = [["", *(f"seed {seed}" for seed in seeds)]]
    labels = {
        "bpb_none": "no document",
        "bpb_random_k10": "10 random documents",
        "bpb_bm25_k10": "10 documents of BM25",
        "bpb_dense_k10": "10 of the untuned retriever (no LSR)",
    }
    rows += [
        [f"bits per byte, {text}", *(_cell(own[0][name], ".4f") for own in found)] for name, text in labels.items()
    ]
    rows.append(["recall@1, untuned retriever", *(_cell(own[0]["dense"], ".3f") for own in found)])
    rows.append(["test queries; questions", *(f"{own[0]['queries']:,}; {own[0]['questions']:,}" for own in found)])
    return _table(rows)


def variants(seeds: list[int], found: list[list[dict]], cell: Callable[[dict], str]) -> str:
    """A row for each variant, a column for each seed."""
    rows = [["`lsr.kl`", "`lsr.likelihood`", *(f"seed {seed}" for seed in seeds)]]
    for place, (kl, likelihood) in enumerate(VARIANTS):
        rows.append([kl, likelihood, *("Q uniform" if "stopped" in own[place] else cell(own[place]) for own in found)])
    return _table(rows)


def sweep(seeds: list[int], found: list[list[dict]]) -> str:
    """Bits per byte saved by the first of VARIANTS, against the untuned retriever, as documents are added."""
    rows = [["k", *(f"seed {seed}" for seed in seeds)]]
    rows += [[str(k), *(_cell(own[0][f"lsr_gain_k{k}"], "+.2f") for own in found)] for k in SWEEP]
    return _table(rows)


def page(profile: str, seeds: list[int], found: list[list[dict]]) -> str:
    """All tables of a profile, as Markdown."""

    def trained(one: dict) -> str:
        of = one["training"]
        return (
            f"{of['entropy_lm_last']:.2f}; {of['entropy_retriever_last']:.2f}; {of['kl_last']:.2f}; "
            f"{of['lm_gain_last']:+.2f}"
        )

    parts = {
        f"Profile {profile}: without LSR": controls(seeds, found),
        "LSR: % fewer bits per byte than the untuned retriever's 10 documents": variants(
            seeds, found, lambda one: _cell(one["lsr_gain_k10"], "+.2f")
        ),
        "LSR: recall@1 more than the untuned retriever's, points": variants(
            seeds, found, lambda one: _cell(one["recall_gain"], "+.1f", 100)
        ),
        "LSR: at the end of training, entropy of Q; of P_R (1: uniform); divergence; nats a token that P_R's "
        "documents gain": variants(seeds, found, trained),
        f"LSR ({', '.join(VARIANTS[0])}): % fewer bits per byte than the untuned retriever's k documents": sweep(
            seeds, found
        ),
    }
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in parts.items())


def _cell(figure: dict, form: str, times: float = 1) -> str:
    value, low, high = (format(figure[name] * times, form) for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _table(rows: list[list[str]]) -> str:
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--profile", default="sample")
    parser.add_argument("--folder", type=Path, help="Where the copies lie, and stay.")
    given = parser.parse_args()
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        found = [run(seed, given.profile, folder.resolve()) for seed in given.seeds]
    print(page(given.profile, given.seeds, found))


if __name__ == "__main__":
    main()
