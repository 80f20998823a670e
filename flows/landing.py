"""Commands that write and compare releases; one is made where the data are what commit, params and DVC say."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from flows import terminal, workspace
from flows.dvc_files import locked
from pipelines.errors import LongtailError
from pipelines.params import params_file

OUT = Path("release")
DIFFERENCE = Path(".longtail/difference")
RECORDED = {
    "dvc.lock",
    "params.yaml",
}  # may differ from the commit: a release records what is in them
NAMED = 3  # files or stages that an error names


def diff(
    old: Annotated[
        Path, typer.Argument(help="popqa.parquet, its folder, or a file in the published format.")
    ],
    new: Annotated[Path, typer.Argument(help="The later release, in any of these forms.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the tables; by default .longtail/difference.")
    ] = None,
) -> None:
    """Compare two releases of PopQA. Writes a table of changed questions, answers and popularity."""
    from pipelines.release.difference import write_difference

    params = params_file.load_params("compute", "ingest")
    old, new, out = (
        (terminal.CALLED_FROM / path).resolve() for path in (old, new, out or DIFFERENCE.resolve())
    )
    terminal.check_folder(out)
    for line in write_difference(
        old, new, out, ingest=params.ingest, threads=params.compute.threads
    ):
        terminal.show(line)
    terminal.show(f"each question: {out / 'difference.parquet'}")


def release(
    context: typer.Context,
    version: Annotated[
        str | None, typer.Option(help="A higher version than the changes require.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for releases; by default release/.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="Say what it would send to hub:OWNER/NAME.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --to, send it there.")] = False,
    check: Annotated[
        Path | None, typer.Option(help="Only compare this release with its checksums.")
    ] = None,
) -> None:
    """Write a release, publish or check one. It has PopQA, a card, licences, a citation, provenance and checksums."""
    if context.invoked_subcommand:
        return
    if check:
        from pipelines.release import contents

        folder = (terminal.CALLED_FROM / check).resolve()
        terminal.show(f"{folder}: {contents.check_sums(folder)} files as they were released")
        return
    if yes and not to:
        raise LongtailError("--yes: sends a release, expected --to with it, which says where")
    out = (terminal.CALLED_FROM / out).resolve() if out else OUT
    terminal.check_folder(out)
    for line in publish(to, version, out, yes, waiting=None):
        terminal.show(line)


def land(version: str | None = None, out: Path = OUT) -> str:
    """Write the next release below `out`; returns where it is, or why there is none. LongtailError as `record`."""
    from pipelines.release import contents, versions

    root, params = Path.cwd(), params_file.load_params("compute", "ingest")
    machine = contents.machine_patterns(os.environ, [root, Path.home()])
    limits = {"ingest": params.ingest, "threads": params.compute.threads}
    landed = versions.write_release(
        Path("data"), out, record(root), version=version, machine=machine, **limits
    )
    return (
        f"the release: {landed}"
        if landed
        else f"nothing changed since the last release in {out}: no new one"
    )


def publish(
    to: str | None, version: str | None, out: Path, yes: bool, waiting: Callable[[str], None] | None
) -> Iterator[str]:
    """Land a release as `land` does, and send the highest version in `out` to `to`, if named; yields lines about both.

    Its version follows on the highest one at `to`, which is brought here first. Without `yes` nothing is sent. Raises
    LongtailError as `land` does, and where the version is at `to` with other bytes.
    """
    from pipelines.release import publish, versions

    if to is None:
        with workspace.alone(waiting):
            yield land(version, out)
        return
    with publish.opened(to) as target:
        with workspace.alone(waiting):
            target.bring_last(out)
            yield land(version, out)
        folder = versions.latest(out)
        plan = target.plan(folder)
        if plan is None:
            yield f"{folder.name} is there already, with the same bytes: {target.where}"
            return
        yield from plan
        if yes:
            target.send(folder)
        yield f"sent: {folder.name}" if yes else "nothing was sent; --yes sends it"


def record(root: Path) -> dict[str, Any]:
    """What made the data under `root`: the commit, its date, the params and the MD5 of each stage's outputs.

    Raises LongtailError where a file other than RECORDED differs from the commit, or a stage is not up to date.
    """
    from flows import graph
    from pipelines.release import card

    cited = card.read_citation(root / card.PROJECT_CITATION)
    entries = _git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
    if changed := [name for entry in entries if (name := entry[3:].strip('"')) not in RECORDED]:
        raise LongtailError(
            f"{', '.join(changed[:NAMED])}: not as in git's last commit, expected no difference but in "
            f"{' and '.join(sorted(RECORDED))}; commit first, so that the release can name what made it"
        )
    stages, stale = graph.read_graph(root)
    if stale:
        raise LongtailError(
            f"{', '.join([*stale][:NAMED])}: {len(stale)} of {len(stages)} stages are not up to date, expected none; "
            "`longtail run` first"
        )
    made = {
        name: {out["path"]: out["md5"] for out in entry.get("outs", [])}
        for name, entry in locked(root).items()
    }
    return {
        "commit": _git(root, "rev-parse", "HEAD").strip(),
        "commit_date": _git(root, "show", "--no-patch", "--format=%cs").strip(),
        "params": yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8")),
        "dvc": {stage.name: made[stage.name] for stage in stages},
        "citation": cited,
    }


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise LongtailError(
            f"git {words[0]}: {' '.join(done.stderr.split())}; a release is made of a git checkout"
        )
    return done.stdout
