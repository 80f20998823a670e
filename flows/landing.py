"""Landing a release: what made the data (git commit, params, DVC's hashes) is checked, then the release is written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from pipelines import params_file
from pipelines.errors import LongtailError

DATA = Path("data")
OUT = Path("release")
RECORDED = {"dvc.lock", "params.yaml"}  # a run and a profile write these, and a release records what is in them
NAMED = 3  # of what is not as it should be, in an error


def land(version: str | None = None, out: Path = OUT) -> str:
    """Write the next release of the data below `out`; say what came of it.

    Raises LongtailError where the project is not as committed, a stage is not up to date, or a check fails.
    """
    from pipelines.release import dataset, private

    root = Path.cwd()
    given = params_file.load("compute", "ingest")
    made_by = record(root)
    landed = dataset.write_release(
        DATA,
        out,
        made_by,
        version=version,
        machine=private.of_machine(os.environ, [root, Path.home()]),
        ingest=given.ingest,
        threads=given.compute.threads,
    )
    return f"the release: {landed}" if landed else f"nothing changed since the last release in {out}: no new one"


def check(folder: Path) -> str:
    """Say that a release's files and rows are as they should be; raises LongtailError on the first that are not."""
    from pipelines.release import dataset

    given = params_file.load("compute", "ingest")
    count = dataset.check_release(folder, ingest=given.ingest, threads=given.compute.threads)
    return f"{folder}: {count} files as they were released, and their rows fit"


def record(root: Path) -> dict[str, Any]:
    """The commit, its date, the params and the MD5 of each stage's outputs that the data under `root` was made with.

    Raises LongtailError where a file but RECORDED differs from the commit, or a stage has something to do: the data
    would not be what they make.
    """
    from flows import graph

    entries = _git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
    if changed := [name for entry in entries if (name := entry[3:].strip('"')) not in RECORDED]:
        raise LongtailError(
            f"{_named(changed)}: not as in git's last commit, expected no difference but in "
            f"{' and '.join(sorted(RECORDED))}; commit first, so that the release can name what made it"
        )
    stages, stale = graph.read(root)
    if stale:
        raise LongtailError(
            f"{_named(list(stale))}: {len(stale)} of {len(stages)} stages are not up to date, expected none; "
            "`longtail run` first"
        )
    locked = yaml.safe_load((root / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    outputs = {stage.name: {out["path"]: out["md5"] for out in locked[stage.name].get("outs", [])} for stage in stages}
    return {
        "commit": _git(root, "rev-parse", "HEAD").strip(),
        "commit_date": _git(root, "show", "--no-patch", "--format=%cs").strip(),
        "params": yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8")),
        "dvc": outputs,
    }


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise LongtailError(f"git {words[0]}: {' '.join(done.stderr.split())}; a release is made of a git checkout")
    return done.stdout


def _named(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + f" and {len(names) - NAMED} more" * (len(names) > NAMED)
