"""Runs of the pipeline with pretrained weights on real texts, and CSV files of what they measured.

    .venv/bin/python -m benchmarks.real_models run sizes teachers --files FILES --models MODELS --work WORK
    .venv/bin/python -m benchmarks.real_models tables --work WORK --out OUT

FILES is a folder of real data sets, MODELS one of language models and encoders as Hugging Face
folders; real_models.yaml says how the files are called, and which params each run has. A run works
in one or more copies of the committed project in WORK/<run>. All copies share DVC's cache in WORK,
so that no stage runs twice with the same inputs and params. After a kill `run` goes on.
"""

import argparse
import csv
import gzip
import itertools
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from benchmarks.project_copy import RUN, clone
from pipelines.storage.atomic import atomic

PARAMS = Path(__file__).with_name("real_models.yaml")
RUNS = ("sizes", "teachers", "rewards", "mixture")  # the keys of PARAMS beside `base`
# benchmark -> its one file of questions; every fifth question is for demonstrations and never asked
SPLIT = {
    "nq": "qa/flashrag_nq_test_1000.jsonl",
}
PASSAGES = "passages/psgs_w100.tsv.gz"
QUESTIONS = "passages/popQA_covered.tsv"  # of PopQA, whose subjects the passages speak of
FEW = 3000  # passages that `rewards` searches
FEW_PASSAGES, FEW_QUESTIONS = "split/few_passages.tsv", "split/few_questions.tsv"
GROUPS = 3  # of PopQA's relations; a seed of `rewards` trains without the questions of one of them
TEACHERS, SHOTS = ("smollm2-135m", "qwen2_5-coder-0_5b"), (0, 2)
MIXED = (1, 10)  # passages of REPLUG's mixture
LM_REWARDS = ("mean_logprob", "answer_right")
SHOTS_OF = dict(zip(TEACHERS, (2, 0), strict=True))  # with which `teachers` finds each a good one
CONTROL = "holds_answer"  # the reward that asks no teacher
FLOW, JUDGE = ("-m", "flows.cli", "run"), ("-m", "benchmarks.real_judged")
STEPS = {  # run -> the commands of each copy
    "sizes": [(*FLOW, "retriever"), (*JUDGE, "temperature"), FLOW],
    "teachers": [FLOW, (*JUDGE, "recall")],
    "rewards": [(*FLOW, "retriever"), (*JUDGE, "recall"), (*JUDGE, "accuracy")],
    "mixture": [FLOW],
}


def prepare(
    what: str,
    files: Path,
    models: Path,
    work: Path,
    seeds: Sequence[int],
    changes: Sequence[str] = (),
) -> list[Path]:
    """Make the copies of the project that a run works in, with their params; no stage runs. Copies
    that are there stay.

    `changes` are params as "section.name=value". Only `teachers` and `rewards` take more than the
    first of `seeds`.
    """
    if not (work / "files").is_dir():
        _sources(files, work / "files")
    text = (
        PARAMS.read_text(encoding="utf-8")
        .replace("FILES", str(work / "files"))
        .replace("MODELS", str(models))
    )
    params, copies = OmegaConf.create(text), []
    for name, of_copy in _variants(what, seeds):
        copy = work / what / name
        copies.append(copy)
        if copy.is_dir():
            print(f"{copy} is there, and keeps its params and files", file=sys.stderr)
        else:
            merged = OmegaConf.merge(
                params.base, params[what], of_copy, OmegaConf.from_dotlist(list(changes))
            )
            _copy(copy, work / "cache", merged)
    return copies


def _variants(what: str, seeds: Sequence[int]) -> Iterator[tuple[str, dict]]:
    """The name of each copy of a run, and the params in which it differs from the others."""
    if what == "teachers":
        for lm, shots, seed in itertools.product(TEACHERS, SHOTS, seeds):
            yield (
                f"{lm}_{shots}_{seed}",
                {"seed": seed, "lms": [lm], "lsr": {"lm": lm, "n_shots": shots}},
            )
    elif what == "rewards":
        taught = [*itertools.product(TEACHERS, LM_REWARDS), (TEACHERS[0], CONTROL)]
        for seed, (lm, likelihood) in itertools.product(seeds, taught):
            files = {"popqa": [_seen_relations(seed % GROUPS)]}
            lsr = {"lm": lm, "likelihood": likelihood, "n_shots": SHOTS_OF[lm]}
            params = {"seed": seed, "fetch": {"files": files}, "lms": [lm], "lsr": lsr}
            yield f"{lm}_{likelihood}_{seed}", params
    elif what == "mixture":
        for top_k in MIXED:
            yield f"{top_k:02}", {"seed": seeds[0], "replug": {"top_k": top_k}}
    else:
        yield "whole", {"seed": seeds[0]}


def _copy(target: Path, cache: Path, params: DictConfig) -> None:
    """Copy the project, with these params as its profile, and outputs that are links to files
    in the shared cache.
    """
    copy = target.with_name(f".{target.name}")
    shutil.rmtree(copy, ignore_errors=True)  # of a killed call
    clone(copy, "smoke")
    cache.mkdir(exist_ok=True)
    (copy / ".dvc/cache").symlink_to(cache)
    (copy / ".dvc/config.local").write_text(
        "[cache]\n    type = hardlink,symlink\n", encoding="utf-8"
    )
    profile = f"# @package _global_\n{OmegaConf.to_yaml(params)}"
    (copy / "conf/profile/real_models.yaml").write_text(profile, encoding="utf-8")
    subprocess.run(
        [*RUN[:-1], "init", "--profile", "real_models"],
        cwd=copy,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    copy.rename(target)


def _seen_relations(group: int) -> str:
    """The file of the questions about FEW_PASSAGES, but for those of a group of relations."""
    return f"split/popqa_without_{group}.tsv"


def _few_passages(folder: Path) -> None:
    """Write the first FEW passages of PASSAGES, the QUESTIONS about them, and these questions
    without each group of relations.

    The relations with most questions are one in each group, and so on.
    """
    with gzip.open(folder / PASSAGES, "rt", encoding="utf-8", newline="") as file:
        lines = list(itertools.islice(file, FEW + 1))
    (folder / FEW_PASSAGES).write_text("".join(lines), encoding="utf-8")
    titles = {row["title"] for row in csv.DictReader(lines, delimiter="\t")}

    with (folder / QUESTIONS).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t")
        rows = [row for row in reader if row["s_wiki_title"] in titles]
    counts = Counter(row["prop"] for row in rows)
    group_of = {name: rank % GROUPS for rank, (name, _) in enumerate(counts.most_common())}
    for group in (None, *range(GROUPS)):
        path = folder / (FEW_QUESTIONS if group is None else _seen_relations(group))
        with path.open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, reader.fieldnames or [], delimiter="\t")
            writer.writeheader()
            writer.writerows(row for row in rows if group_of[row["prop"]] != group)


def _sources(files: Path, target: Path) -> None:
    """Copy the data sets to `target`, with the questions of SPLIT in two files each, and what
    `rewards` reads.
    """
    with atomic(target) as folder:
        shutil.copytree(files, folder, copy_function=shutil.copyfile)
        folder.chmod(0o755)
        (folder / "split").mkdir()
        if (folder / QUESTIONS).is_file():
            _few_passages(folder)
        for name, file in SPLIT.items():
            if (files / file).is_file():
                lines = (files / file).read_text(encoding="utf-8").splitlines(keepends=True)
                train, test = lines[::5], [line for i, line in enumerate(lines) if i % 5]
                (folder / f"split/{name}_train.jsonl").write_text("".join(train), encoding="utf-8")
                (folder / f"split/{name}_test.jsonl").write_text("".join(test), encoding="utf-8")


def run(commands: Sequence[Sequence[str]], copy: Path) -> bool:
    """Run commands in a copy, up to the first one that fails; returns whether all ended well."""
    print(copy, file=sys.stderr)
    environment = os.environ | {"PYTHONPATH": str(copy), "MLFLOW_DISABLE_TELEMETRY": "true"}
    for step in commands:
        done = subprocess.run([sys.executable, *step], cwd=copy, stdout=sys.stderr, env=environment)
        if done.returncode:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    of_run = commands.add_parser("run")
    of_tables = commands.add_parser("tables")
    of_run.add_argument("what", choices=RUNS, nargs="+")
    of_run.add_argument("--files", type=Path, required=True)
    of_run.add_argument("--models", type=Path, required=True)
    of_run.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        help="of teachers and rewards; others take the first",
    )
    of_run.add_argument("--questions", type=int, help="answer.max_questions")
    of_run.add_argument(
        "--set", action="append", default=[], metavar="SECTION.NAME=VALUE", help="another param"
    )
    of_run.add_argument(
        "--prepare", action="store_true", help="only make the copies, and print where they are"
    )
    of_tables.add_argument("--out", type=Path, required=True, help="folder of the CSV files")
    for command in (of_run, of_tables):
        command.add_argument("--work", type=Path, required=True)
    args = parser.parse_args()
    work, given = (
        args.work.resolve(),
        [args.files, args.models] if args.command == "run" else [args.work],
    )
    if missing := [str(folder) for folder in given if not folder.is_dir()]:
        parser.error(f"{missing[0]}: no such folder")
    if args.command == "tables":
        from benchmarks.real_tables import write_tables

        for line in write_tables(work, args.out):
            print(line)
    else:
        sys.exit(not _run(args, work))


def _run(args: argparse.Namespace, work: Path) -> bool:
    """Prepare the runs, and run them unless they are only to be prepared; returns whether all
    ended well.
    """
    work.mkdir(parents=True, exist_ok=True)
    changes = [*args.set, *([f"answer.max_questions={args.questions}"] if args.questions else [])]
    files, models = args.files.resolve(), args.models.resolve()
    copies = {what: prepare(what, files, models, work, args.seeds, changes) for what in args.what}
    if args.prepare:
        print(*(copy for of_run in copies.values() for copy in of_run), sep="\n")
        return True
    return all([run(STEPS[what], copy) for what, of_run in copies.items() for copy in of_run])


if __name__ == "__main__":
    main()
