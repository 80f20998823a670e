"""Commands that write, publish, check and compare releases."""

from pathlib import Path
from typing import Annotated

import typer

from flows import releases, terminal
from pipelines.errors import LongtailError
from pipelines.params import params_file

DIFFERENCE = Path(".longtail/difference")


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
) -> None:
    """Write a release, or publish one.

    A release has PopQA, a card, licences, provenance and checksums.
    """
    if context.invoked_subcommand:
        return
    if yes and not to:
        raise LongtailError("--yes: sends a release, expected --to with it, which says where")
    out = (terminal.CALLED_FROM / out).resolve() if out else releases.OUT
    terminal.check_folder(out)
    for line in releases.write_and_publish(to, version, out, send=yes):
        terminal.show(line)


def diff(
    old: Annotated[
        Path, typer.Argument(help="popqa.parquet, its folder, or a file in the published format.")
    ],
    new: Annotated[Path, typer.Argument(help="The later release, in any of these forms.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the tables; by default .longtail/difference.")
    ] = None,
) -> None:
    """Compare two releases of PopQA.

    Writes a table of the questions whose text, answers or popularity changed.
    """
    from pipelines.release.difference import write_difference

    params = params_file.load_params()
    old = (terminal.CALLED_FROM / old).resolve()
    new = (terminal.CALLED_FROM / new).resolve()
    out = (terminal.CALLED_FROM / out if out else DIFFERENCE).resolve()
    terminal.check_folder(out)
    threads = params.compute.threads
    for line in write_difference(old, new, out, ingest=params.ingest, threads=threads):
        terminal.show(line)
    terminal.show(f"each question: {out / 'difference.parquet'}")
