"""Commands that write and compare releases: release and diff."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows import terminal
from pipelines.errors import LongtailError
from pipelines.params import params_file

DIFFERENCE = Path(".longtail/difference")


def diff(
    old: Annotated[Path, typer.Argument(help="popqa.parquet, a file in the published format, or its folder.")],
    new: Annotated[Path, typer.Argument(help="The later release, in the same forms.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the tables, in place of .longtail/difference.")] = None,
) -> None:
    """Compare two releases of PopQA. Questions added and gone, other answers, popularity moved; as tables."""
    from pipelines.release.difference import write_difference

    params = params_file.load_params("compute", "ingest")
    old, new, out = ((terminal.CALLED_FROM / path).resolve() for path in (old, new, out or DIFFERENCE.resolve()))
    terminal.check_folder(out)
    for line in write_difference(old, new, out, ingest=params.ingest, threads=params.compute.threads):
        terminal.show(line)
    terminal.show(f"each question: {out / 'difference.parquet'}; answers with nothing in common: changed.parquet")


def release(
    context: typer.Context,
    version: Annotated[
        str | None, typer.Option(help="Such as 2.0.0, in place of the one that the changes call for.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for releases, in place of release/.")] = None,
    to: Annotated[
        str | None,
        typer.Option(help="Publish it: hub:OWNER/NAME. Says what it would send."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --to, send it.")] = False,
    check: Annotated[Path | None, typer.Option(help="Check this release's files, and write none.")] = None,
) -> None:
    """Write a release, publish or check one. PopQA with card, licences, citation, provenance and checksums."""
    from flows import landing

    if context.invoked_subcommand:
        return
    if check:
        from pipelines.release import dataset

        folder = (terminal.CALLED_FROM / check).resolve()
        terminal.show(f"{folder}: {dataset.check_release(folder)} files as they were released")
        return
    if yes and not to:
        raise LongtailError("--yes: sends a release, expected --to with it, which says where")
    out = (terminal.CALLED_FROM / out).resolve() if out else landing.OUT
    terminal.check_folder(out)
    for line in landing.publish(to, version, out, yes, waiting=None):
        terminal.show(line)
