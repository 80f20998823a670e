"""What is known of raw files by their names and the manifest: their dates, and their data sets."""

import re
from calendar import monthrange
from collections.abc import Mapping, Sequence
from datetime import date
from operator import itemgetter
from typing import Any

DAY = re.compile(r"(?<!\d)(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?!\d)")
DATED = {"wikidata": "Wikidata", "wikipedia": "Wikipedia", "redirects": "Wikipedia's redirects"}


def last_day(month: str) -> date:
    """The last day of a month, YYYY-MM."""
    first = date.fromisoformat(f"{month}-01")
    return first.replace(day=monthrange(first.year, first.month)[1])


def day_of(source: str) -> str | None:
    """The date in the name of a dump, or of the folder that it comes from, as YYYY-MM-DD; None if
    there is none.
    """
    name = source.rsplit("/", 1)[-1]
    match = DAY.search(name) or DAY.search(source)
    if match is None:
        return None
    return "-".join(match.groups())


def dates(manifest: Sequence[Mapping[str, Any]], months: Sequence[str]) -> dict[str, list[str]]:
    """Name of a source -> its files' dates (YYYY-MM-DD), and the months of page views.

    It is empty for one month where no file has a date.
    """
    dates_of_sources: dict[str, list[str]] = {}

    for dataset, title in DATED.items():
        days = set()
        for file in manifest:
            if "date" in file and file["dataset"] == dataset:
                days.add(file["date"])
        if days:
            dates_of_sources[title] = sorted(days)

    if not dates_of_sources and len(months) <= 1:
        return {}
    dates_of_sources["page views"] = sorted(months)
    return dates_of_sources


def warning(dates_of_sources: Mapping[str, list[str]], days_apart: int) -> str:
    """A sentence that warns if the dates of `dates` are too far apart, else "". A month stands for
    all its days.
    """
    first_days = []
    last_days = []
    for days in dates_of_sources.values():
        for day in days:
            is_month = len(day) == len("YYYY-MM")
            last_days.append(last_day(day) if is_month else date.fromisoformat(day))
            first_days.append(last_days[-1].replace(day=1) if is_month else last_days[-1])

    if not first_days:
        return ""
    apart = (max(first_days) - min(last_days)).days
    if apart <= days_apart:
        return ""

    sentence = (
        f"These dates are up to {apart:,} days apart, more than fetch.days_apart allows "
        f"({days_apart}): facts, pages and popularity are not of one time"
    )
    if len(dates_of_sources.get("page views", [])) > 1:
        sentence += ", and thresholds mix popularities of several months"
    return f"{sentence}."


def by_data_set(manifest: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The number and size of the raw files of each data set, which has one licence."""
    sources: dict[str, dict[str, Any]] = {}
    for file in sorted(manifest, key=itemgetter("dataset")):
        name = file["dataset"]
        none = {"data set": name, "licence": file["licence"], "files": 0, "bytes": 0}
        source = sources.setdefault(name, none)
        source["files"] += 1
        source["bytes"] += file["bytes"]
    return list(sources.values())
