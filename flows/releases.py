"""Write and publish releases.

One is made only where the data are what commit, params and DVC say.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from flows import surroundings, workspace
from flows.dvc_repo import stages_of_lock
from pipelines.errors import LongtailError
from pipelines.params import params_file

OUT = Path("release")
RECORDED = {"dvc.lock", "params.yaml"}  # may differ from the commit: a release has their contents
PROFILES = "conf/profile/"  # may differ too: `longtail run --profile` writes them to params.yaml
NAMES_SHOWN = 3  # files or stages that an error names


def publish(
    to: str | None,
    version: str | None,
    out: Path,
    *,
    send: bool,
    waiting: Callable[[str], None] | None = None,
) -> Iterator[str]:
    """Write the next release, and send the highest version in `out` to `to`, if that is named.

    Yields lines about both. The version follows on the highest one at `to`, which is brought here
    first. Without `send` nothing is sent. Another run at work is waited for if `waiting` is given,
    which is told so. Raises LongtailError as `write_release` does, and where the version is at `to`
    with other bytes.
    """
    from pipelines.release import publish, versions

    if to is None:
        with workspace.alone(waiting):
            yield write_release(version, out)
        return

    with publish.opened(to) as target:
        with workspace.alone(waiting):
            target.bring_last(out)
            yield write_release(version, out)

        folder = versions.latest(out)
        assert folder, "write_release has written one, or there was one before"
        plan = target.plan(folder)
        if plan is None:
            yield f"{folder.name} is there already, with the same bytes: {target.where}"
            return
        yield from plan
        if send:
            target.send(folder)
            yield f"sent: {folder.name}"
        else:
            yield "nothing was sent; --yes sends it"


def write_release(version: str | None = None, out: Path = OUT) -> str:
    """Write the next release below `out`; returns a line on where it is, or why there is none.

    Raises LongtailError as `read_provenance` does.
    """
    from pipelines.release import contents, versions

    root = Path.cwd()
    params = params_file.load_params()
    machine = contents.machine_patterns(os.environ, [root, Path.home()])
    folder = versions.write_release(
        Path("data"),
        out,
        read_provenance(root),
        version=version,
        machine=machine,
        ingest=params.ingest,
        threads=params.compute.threads,
    )
    if folder:
        return f"the release: {folder}"
    return f"nothing changed since the last release in {out}: no new one"


def read_provenance(root: Path) -> dict[str, Any]:
    """What made the data under `root`: the commit, its date, the params, and the outputs' MD5s.

    Raises LongtailError where a file other than RECORDED differs from the commit, or a stage is not
    up to date.
    """
    from flows import graph
    from pipelines.release import card

    citation = card.read_citation(root / card.PROJECT_CITATION)
    check_committed(root)

    stages, changed = graph.read_graph(root)
    if changed:
        names = ", ".join(list(changed)[:NAMES_SHOWN])
        what = f"{len(changed)} of {len(stages)} stages are not up to date, expected none"
        raise LongtailError(f"{names}: {what}; `longtail run` first")

    locked = stages_of_lock(root)
    md5s = {}
    for stage in stages:
        outs = locked[stage.name].get("outs", [])
        md5s[stage.name] = {out["path"]: out["md5"] for out in outs}

    commit = _git(root, "rev-parse", "HEAD")
    commit_date = _git(root, "show", "--no-patch", "--format=%cs")
    params_text = (root / "params.yaml").read_text(encoding="utf-8")
    return {
        "commit": commit.strip(),
        "commit_date": commit_date.strip(),
        "params": yaml.safe_load(params_text),
        "dvc": md5s,
        "citation": citation,
    }


def check_committed(root: Path) -> None:
    """Raise LongtailError where a file is not as in git's last commit.

    RECORDED and PROFILES may differ.
    """
    entries = _git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
    names = [entry[3:].strip('"') for entry in entries]
    changed = []
    for name in names:
        if name not in RECORDED and not name.startswith(PROFILES):
            changed.append(name)
    if changed:
        expected = f"expected no difference but in {', '.join(sorted(RECORDED))} and {PROFILES}"
        raise LongtailError(
            f"{', '.join(changed[:NAMES_SHOWN])}: not as in git's last commit, {expected}; "
            "commit first, so that the release can name what made it"
        )


def _git(root: Path, *words: str) -> str:
    try:
        process = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise LongtailError(surroundings.with_advice(str(error))) from None
    if process.returncode:
        problem = surroundings.with_advice(process.stderr)
        raise LongtailError(f"git {words[0]}: {problem}; a release is made of a git checkout")
    return process.stdout
