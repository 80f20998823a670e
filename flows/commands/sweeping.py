"""`longtail sweep`: remove the data of months that landed long ago."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import terminal

if TYPE_CHECKING:
    from flows.sweep import Commits, Sweep

MONTHS = 12  # landed months that keep their data


def sweep(
    months: Annotated[
        int, typer.Option(min=1, help="How many landed months stay, counted from the last.")
    ] = MONTHS,
    remote: Annotated[
        bool, typer.Option("--remote", help="Sweep DVC's default remote too, which others may use.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it; by default, only lists it.")
    ] = False,
) -> None:
    """Remove the data of old months, and what no commit needs.

    The last landed months, releases, all other tags, branches, experiments and the work folder
    keep their data.
    """
    from flows import sweep as sweeping

    root = Path.cwd()
    with sweeping.opened(root) as repo:
        unneeded = sweeping.find(root, repo, months, remote)
        for line in _listing(unneeded):
            terminal.show(line)
        if not yes:
            terminal.show("nothing was removed; --yes removes it")
            return

        sweeping.remove(root, repo, unneeded)
        terminal.show("all of this was removed")
        forgotten = sweeping.forgets_months(repo, unneeded)
        for line in _about_tags(unneeded.commits, forgotten):
            terminal.show(line)


def _listing(sweep: "Sweep") -> Iterator[str]:
    """What stays, and how many files and bytes go, by place and month."""
    months = ", ".join(sweep.commits.months) or "none"
    yield f"landed months that stay: {months}"
    yield "releases, other tags, branches, experiments and the work folder stay"
    for place in sweep.places:
        for kind, sizes in place.sizes.items():
            yield f"{place.name}, {kind}: {_amount(sizes, 'files')}"
    if sweep.work_sizes:
        yield f"results for later months: {_amount(sweep.work_sizes, 'results')}"


def _amount(sizes: list[int], things: str) -> str:
    return f"{len(sizes):,} {things}, {sum(sizes) / 1e6:,.1f} MB"


def _about_tags(commits: "Commits", forgotten: bool) -> Iterator[str]:
    """What became of the tags of months whose data went."""
    if not commits.expired:
        return
    tags = " ".join(f"data/{month}" for month in commits.expired)
    if forgotten:
        yield f"tags removed here: {tags}"
        yield f"git's remote may still have them: git push --delete origin {tags}"
    else:
        yield f"tags that stay, as the remote may have their data: {tags}; --remote sweeps it too"
