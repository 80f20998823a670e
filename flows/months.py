"""The month of a scheduled rebuild: which one is due, and whether its dumps are there.

Git's tags say which months landed (flows/data_branch.py), so months that were missed, or whose
dumps were late, are rebuilt later.
"""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import Field

from flows import run_states
from pipelines import yaml_files
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.params.params import Fetch
from pipelines.sources import raw_files, snapshots, wikimedia_client
from pipelines.sources.fetch import ANSWERS, DOWNLOADS
from pipelines.sources.named_files import hosts, urls_of
from pipelines.sources.snapshots import Gone, Late
from pipelines.storage.atomic import write_text

PARAMS = Path("params.yaml")
MONTH = r"20\d\d-(0[1-9]|1[0-2])"
Month = Annotated[str, Field(pattern=f"^(last|next|{MONTH})$")]  # what a run can be for


class NothingDue(LongtailError):
    """No month is due."""


class AwaitsDumps(LongtailError):
    """The month that is due waits for its dumps."""

    state = run_states.AWAITING_DUMPS


class DumpsLate(AwaitsDumps):
    """The month waits for longer than it should have to."""

    state = run_states.DUMPS_LATE


def check(month: str) -> None:
    """Raise LongtailError where `month` is nothing that a run can be for."""
    is_over = re.fullmatch(MONTH, month) and month <= _last()
    if month not in ("last", "next") and not is_over:
        raise LongtailError(f"month {month}: expected YYYY-MM up to {_last()}, last or next")


def begin(
    month: str, landed: Sequence[str], make_up: int, late_after: int, say: Callable[[str], None]
) -> str:
    """Set params.yaml to the month that a run is for; returns the month.

    `month` is YYYY-MM, `last` or `next`, after the months that `landed`, in order. Raises
    NothingDue where no month is due, AwaitsDumps where its dumps are not there yet, DumpsLate more
    than `late_after` days after the month, and LongtailError on a month that is not over, or whose
    dumps are gone; params.yaml then stays as it was.
    """
    if month == "next":
        due = _due(landed, make_up)
    elif month == "last":
        due = [_last()]
    else:
        due = [month]
    if not due:
        raise NothingDue(f"nothing is due: {_last()} has landed")

    for candidate in due:
        check(candidate)
        try:
            _check_dumps(candidate)
        except Late as late:
            raise _waiting(candidate, late_after, late) from None
        except Gone as gone:
            if candidate == due[-1]:
                raise
            say(f"{candidate} can't be made up for: {gone}")
            continue
        say(set_month(candidate, PARAMS))
        return candidate
    raise AssertionError("the last month that is due is returned or raises")


def set_month(month: str, path: Path) -> str:
    """Set the month of the page views in params.yaml, whose other text stays; returns a message."""
    check(month)
    settings = params_file.load_params(path)
    old = settings.popularity.month
    text = path.read_text(encoding="utf-8")
    line = rf"(?m)^(\s+month:\s*)(['\"]?){old}\2(?=\s|$)"
    text = re.sub(line, rf"\g<1>\g<2>{month}\g<2>", text)
    for entry in _entries_of_month(settings.fetch):
        text = text.replace(entry, snapshots.with_month(entry, old, month))

    params = params_file.parse(yaml_files.parse(text))
    if params.popularity.month != month:
        raise LongtailError(
            f"{path}: popularity.month is not on a line of its own, expected `month: {old}`"
        )
    if month == old:
        return f"popularity.month is {month} already"
    write_text(path, text)
    return f"popularity.month was {old}, and is {month} from now on"


def _entries_of_month(fetch: Fetch) -> list[str]:
    """The entries of fetch.files that another month has others of.

    These are the addresses of page views, and all files on this machine with the month in their
    names. Addresses of other dumps stay: a date in one is chosen.
    """
    if fetch.source == "wikimedia":
        return fetch.files.get("pageviews", [])
    return list(chain.from_iterable(fetch.files.values()))


def _last() -> str:
    """The last month that is over."""
    return f"{snapshots.today().replace(day=1) - timedelta(days=1):%Y-%m}"


def _due(landed: Sequence[str], make_up: int) -> list[str]:
    """The months that have not landed, oldest first, of the last month and the `make_up` before it.

    Before any month has landed, only the last one is due. Months before the first that landed are
    never due.
    """
    if not landed:
        return [_last()]
    months = snapshots.months_until(_last(), 1 + make_up)
    return [month for month in months if month > landed[0] and month not in landed]


def _waiting(month: str, late_after: int, missing: Late) -> AwaitsDumps:
    """What a month waits for, and whether it is late."""
    message = f"{month} waits: {missing}"
    end = raw_files.last_day(month)
    expected = end + timedelta(late_after)
    if snapshots.today() <= expected:
        return AwaitsDumps(message)

    days_apart = params_file.load_params(PARAMS).fetch.days_apart
    last_wait = end + timedelta(days_apart)
    return DumpsLate(
        f"{message}, expected by {expected}; the run after {last_wait} takes older dumps, or fails "
        "if page views are missing"
    )


def _check_dumps(month: str) -> None:
    """Raise Late or Gone where fetch.files has no dump or page views of the month."""
    settings = params_file.load_params(PARAMS)
    fetch = settings.fetch
    urls = urls_of(fetch.files)
    if fetch.source != "wikimedia" or not urls:
        return

    old = settings.popularity.month
    views = []
    for url in urls_of({"pageviews": fetch.files.get("pageviews", [])}):
        views.append(snapshots.with_month(url, old, month))

    with wikimedia_client.open_client(settings.contact, ANSWERS) as client:
        client.session.hosts = hosts(fetch)
        snapshots.check_there(views, month, fetch.days_apart, client)
        snapshots.resolve(urls, month, fetch.days_apart, DOWNLOADS, client)
