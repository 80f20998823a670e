"""Which files of page views are added up, so that no view counts twice and no day is missing in
silence.

A name as pageviews-202110-user.bz2 says what a file has: the views of a month by people, by spiders
or by automated programs. The files of days are called pageviews-20211031-user.bz2.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.pageviews import FILE
from pipelines.sources.raw_files import last_day
from pipelines.sources.streams import read_head

AGENTS = ("automated", "spider", "user")  # of which all agents are made
WHOLE_MONTH = 0


class Span(NamedTuple):
    """The views that a file has by its name."""

    agents: str  # one of AGENTS
    day: int  # of the month, or WHOLE_MONTH


@dataclass
class ChosenFiles:
    """The files whose views are added up."""

    files: list[Path]
    days_missing: int = 0  # days of which some agents' views are in no file
    notes: list[str] = field(default_factory=list)  # what is left out, in lines
    missing: list[str] = field(default_factory=list)  # what the files lack, in lines


def choose_files(files: Sequence[Path], month: str, agents: str) -> ChosenFiles:
    """The files that count for a month, by their names: all for agents "all-agents", those of
    people for "user".

    A month's file counts, and not the files of its days. Of copies one counts. Files of other names
    count if all agents count and no file has a name that tells more. Else they raise LongtailError,
    as do a file named after another month, and two files that are no copies but have a name's views
    both.
    """
    named = [file for file in files if FILE.search(file.name)]
    nameless = [file for file in files if file not in named]
    if nameless and (named or agents == "user"):
        raise LongtailError(
            f"{nameless[0]}: its name doesn't tell its month and whose views it has, expected one "
            f"like pageviews-{month.replace('-', '')}-user.bz2; rename it, or leave it out"
        )
    selection = ChosenFiles(nameless)
    if named:
        _choose_of_month(month, named, agents, selection)
    return selection


def _by_span(files: Sequence[Path], month: str, selection: ChosenFiles) -> dict[Span, Path]:
    """One file for each span; what is left out goes to the notes of `selection`."""
    files_by_span: dict[Span, list[Path]] = defaultdict(list)
    for file in files:
        files_by_span[_span(file, month)].append(file)

    file_by_span = {}
    for span, copies in files_by_span.items():
        first, *others = sorted(copies, key=lambda file: (len(file.name), file))
        file_by_span[span] = first
        for other in others:
            if read_head(other) != read_head(first):
                raise LongtailError(
                    f"{other}: by its name it has the same views as {first}, but its lines are "
                    "others, expected one file; leave one out, or join them if both are parts"
                )
            selection.notes.append(f"{other} is a copy of {first}, and is left out")
    return file_by_span


def _span(file: Path, month: str) -> Span:
    name = FILE.search(file.name)
    if name["month"] != month.replace("-", ""):
        raise LongtailError(
            f"{file}: named after another month, expected {month} (popularity.month)"
        )
    return Span(name["agents"], int(name["day"] or WHOLE_MONTH))


def _choose_of_month(
    month: str, files: Sequence[Path], agents: str, selection: ChosenFiles
) -> None:
    """Add those of a month's files that count to `selection`, with notes on what they lack."""
    file_by_span = _by_span(files, month, selection)
    days = range(1, last_day(month).day + 1)
    expected_agents = AGENTS if agents == "all-agents" else (agents,)
    agents_missing = []
    days_missing = set()

    for agents_of_file in expected_agents:
        whole = file_by_span.get(Span(agents_of_file, WHOLE_MONTH))
        spans = [Span(agents_of_file, day) for day in days]
        spans = [span for span in spans if span in file_by_span]
        if whole:
            selection.files.append(whole)
        else:
            selection.files += [file_by_span[span] for span in spans]

        if whole and spans:
            selection.notes.append(
                f"{whole} has the whole month, and {len(spans)} files of its days are left out"
            )
        elif spans:
            days_missing |= set(days) - {span.day for span in spans}
        elif not whole:
            agents_missing.append(agents_of_file)

    if days_missing:
        selection.days_missing = len(days_missing)
        in_words = ", ".join(map(str, sorted(days_missing)))
        selection.missing.append(
            f"{month}: no file of its days {in_words}; popularity lacks their views"
        )
    if agents_missing:
        in_words = " and ".join(agents_missing)
        selection.missing.append(
            f"{month}: no file of views by {in_words}; popularity lacks them "
            f"(popularity.agents: {agents})"
        )
