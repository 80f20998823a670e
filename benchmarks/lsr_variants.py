"""LSR's variants over several worlds: both directions of the divergence, three likelihoods, and no tuning as control.

    .venv/bin/python -m benchmarks.lsr_variants --seeds 0 1 2 > docs/lsr.md
    .venv/bin/python -m benchmarks.lsr_variants --profile excerpt --seeds 0

A seed changes the world, the models and every draw. For each seed the committed project is cloned into a temporary
folder (or --folder, where a stopped run resumes). There the pipeline runs as far as LSR needs it, then again for each
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
STAGES = {"dense": "answer_dense@popqa-{}-dense", "lsr": "answer_lsr@popqa-{}-dense"}  # by method
ANSWERS = "data/predictions/popqa/{lm}/{method}_dense.parquet"


def run(seed: int, profile: str, folder: Path) -> list[dict]:
    """The figures of each of VARIANTS, in their order, in the world of one seed."""
    copy = folder / f"{profile}-{seed}"
    if not copy.exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        (copy / ".venv").symlink_to(ROOT / ".venv")
        subprocess.run([ROOT / ".venv/bin/python", "-m", "flows.cli", "profile", profile], cwd=copy, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
    figures = []
    for kl, likelihood in VARIANTS:
        done = copy / f"variant-{kl}-{likelihood}.json"
        if not done.exists():
            print(f"{profile}, seed {seed}: {kl}, {likelihood}", file=sys.stderr, flush=True)
            done.write_text(_run_variant(copy, seed, kl, likelihood), encoding="utf-8")
        figures.append(json.loads(done.read_text(encoding="utf-8")))
    return figures


def _run_variant(copy: Path, seed: int, kl: str, likelihood: str) -> str:
    """Train and measure a variant in a clone of the project; returns its figures, or why training stopped, as JSON."""
    params = yaml.safe_load((copy / "params.yaml").read_text(encoding="utf-8"))
    params["seed"] = seed
    params["compute"]["threads"] = 1
    params["lsr"] |= {"kl": kl, "likelihood": likelihood, "keep_scores": True}
    with (copy / "params.yaml").open("w", encoding="utf-8") as stream:
        yaml.safe_dump(params, stream, sort_keys=False)
    python, lm = copy / ".venv/bin/python", params["lms"][0]
    trained = subprocess.run([python, "-m", "dvc", "repro", "train_lsr"], cwd=copy, capture_output=True, text=True)
    if trained.returncode:  # for example because the language model's distribution is uniform
        errors = [line for line in trained.stderr.splitlines() if line.startswith("error: ")]
        if not errors or "uniform" not in errors[0]:
            raise SystemExit(trained.stdout + trained.stderr)
        return json.dumps({"stopped": errors[0].removeprefix("error: ")})
    wanted = [f"score_lm@pile-{lm}", *(stage.format(lm) for stage in STAGES.values())]
    subprocess.run([python, "-m", "dvc", "repro", *wanted], cwd=copy, check=True, stdout=sys.stderr,
                   stderr=subprocess.DEVNULL)  # fmt: skip
    dense, lsr = (ANSWERS.format(lm=lm, method=method) for method in STAGES)
    script = f"from benchmarks import lsr_variants; lsr_variants.print_figures({dense!r}, {lsr!r})"
    return subprocess.run([python, "-c", script], cwd=copy, check=True, stdout=subprocess.PIPE, text=True).stdout


def print_figures(dense: str, lsr: str) -> None:
    """Print the figures of the project in the working folder as JSON, from the files of answers by either retriever."""
    import numpy as np

    from pipelines import database, draws, intervals, params_file
    from pipelines.evaluation import evaluate_lm
    from pipelines.replug import bits

    params = params_file.load("seed", "lms", "report", "replug")
    measured = bits.measure(Path("data/logprobs/pile", params.lms[0]), params.replug)
    texts = evaluate_lm.describe(Path("data/corpus/pile/queries.parquet"), measured.ids)
    figures = evaluate_lm.figures(measured, texts, params)
    rows = database.ask(
        """SELECT coalesce(CAST(s_uri AS VARCHAR), subj, question_id) AS subject, d.doc_has_answer AS dense,
                  l.doc_has_answer AS lsr
           FROM questions JOIN dense d USING (question_id) JOIN lsr l USING (question_id) ORDER BY question_id""",
        questions=Path("data/questions/popqa/popqa.parquet"),
        dense=Path(dense),
        lsr=Path(lsr),
    ).fetchnumpy()
    columns = {name: np.ma.getdata(rows[name]).astype(float) for name in ("dense", "lsr")}
    columns["recall_gain"] = columns["lsr"] - columns["dense"]
    for name, values in columns.items():
        generator = draws.generator(params.seed, "lsr variants")
        interval = intervals.mean(values, generator, params.report.bootstrap, rows["subject"].astype(str))
        figures[name] = interval.as_json()
    training = json.loads(Path("data/metrics/lsr_dense.json").read_text(encoding="utf-8"))
    figures["questions"] = len(rows["subject"])
    figures["training"] = {name: value for name, value in training.items() if isinstance(value, int | float)}
    print(json.dumps(figures))


def controls(seeds: list[int], by_seed: list[list[dict]]) -> str:
    """Bits per byte and recall without tuning, a column for each seed."""
    rows = [["", *(f"seed {seed}" for seed in seeds)]]
    labels = {
        "bpb_none": "no document",
        "bpb_random_k10": "10 random documents",
        "bpb_bm25_k10": "10 documents of BM25",
        "bpb_dense_k10": "10 of the untuned retriever (no LSR)",
    }
    rows += [
        [f"bits per byte, {text}", *(_cell(of_seed[0][name], ".4f") for of_seed in by_seed)]
        for name, text in labels.items()
    ]
    rows.append(["recall@1, untuned retriever", *(_cell(of_seed[0]["dense"], ".3f") for of_seed in by_seed)])
    rows.append(
        ["test queries; questions", *(f"{of_seed[0]['queries']:,}; {of_seed[0]['questions']:,}" for of_seed in by_seed)]
    )
    return _table(rows)


def variants(seeds: list[int], by_seed: list[list[dict]], cell: Callable[[dict], str]) -> str:
    """A row for each variant, a column for each seed."""
    rows = [["`lsr.kl`", "`lsr.likelihood`", *(f"seed {seed}" for seed in seeds)]]
    for place, (kl, likelihood) in enumerate(VARIANTS):
        rows.append(
            [
                kl,
                likelihood,
                *("Q uniform" if "stopped" in of_seed[place] else cell(of_seed[place]) for of_seed in by_seed),
            ]
        )
    return _table(rows)


def sweep(seeds: list[int], by_seed: list[list[dict]]) -> str:
    """Bits per byte saved by the first of VARIANTS, against the untuned retriever, as documents are added."""
    rows = [["k", *(f"seed {seed}" for seed in seeds)]]
    rows += [[str(k), *(_cell(of_seed[0][f"lsr_gain_k{k}"], "+.2f") for of_seed in by_seed)] for k in SWEEP]
    return _table(rows)


def page(profile: str, seeds: list[int], by_seed: list[list[dict]]) -> str:
    """All tables of a profile, as Markdown."""

    def end_of_training(variant: dict) -> str:
        last = variant["training"]
        return (
            f"{last['entropy_lm_last']:.2f}; {last['entropy_retriever_last']:.2f}; {last['kl_last']:.2f}; "
            f"{last['lm_gain_last']:+.2f}"
        )

    parts = {
        f"Profile {profile}: without LSR": controls(seeds, by_seed),
        "LSR: % fewer bits per byte than the untuned retriever's 10 documents": variants(
            seeds, by_seed, lambda variant: _cell(variant["lsr_gain_k10"], "+.2f")
        ),
        "LSR: recall@1 more than the untuned retriever's, points": variants(
            seeds, by_seed, lambda variant: _cell(variant["recall_gain"], "+.1f", 100)
        ),
        "LSR: at the end of training, entropy of Q; of P_R (1: uniform); divergence; nats a token that P_R's "
        "documents gain": variants(seeds, by_seed, end_of_training),
        f"LSR ({', '.join(VARIANTS[0])}): % fewer bits per byte than the untuned retriever's k documents": sweep(
            seeds, by_seed
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
    parser.add_argument("--folder", type=Path, help="Where to keep the copies.")
    arguments = parser.parse_args()
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        by_seed = [run(seed, arguments.profile, folder.resolve()) for seed in arguments.seeds]
    print(page(arguments.profile, arguments.seeds, by_seed))


if __name__ == "__main__":
    main()
