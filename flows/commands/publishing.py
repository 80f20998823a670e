"""The command that writes and publishes releases."""

from pathlib import Path
from typing import Annotated

import typer

from flows import releases, terminal, workspace
from pipelines.errors import LongtailError


def release(
    version: Annotated[
        str | None, typer.Option(help="A higher version than the changes require.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for releases; by default release/PROFILE.")
    ] = None,
    passages: Annotated[
        int | None,
        typer.Option(min=1, help="Add so many passages of each retriever to every question."),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="Say what it would send to hub:OWNER/NAME.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --to, send it there.")] = False,
) -> None:
    """Write a release, or publish one.

    A release has PopQA, a card, licences, provenance and checksums.
    """
    if yes and not to:
        raise LongtailError("--yes: sends a release, expected --to with it, which says where")
    out = (terminal.CALLED_FROM / out).resolve() if out else None
    terminal.check_folder(out or releases.OUT)
    with workspace.alone():
        written = releases.write_release(version, out, passages=passages)
    terminal.show(written.message)
    if to:
        terminal.show_lines(releases.publish(to, written.folder, send=yes))
