"""Which dumps a month's snapshot is made of: an address with `latest` in it means the last dump by
the month's end.

Wikimedia's servers keep the dumps of a wiki in folders named by date, which a listing links to:
/enwiki/20260920/. A file is whole when the folder's list of checksums has it. A dump that is not
whole, or not there yet, is waited for.
"""

import re
from calendar import monthrange
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from pipelines.errors import LongtailError
from pipelines.sources.download import name_of, published_checksum
from pipelines.sources.wikimedia_client import Client
from pipelines.storage.atomic import write_json
from pipelines.work import http

LATEST = re.compile(r"(?P<base>https?://.+)/latest(?:/(?P<name>[^/]*latest[^/]*)|-(?P<rest>[^/]+))")
LISTED_DAY = re.compile(r'href="(?:[^"]*/)?(\d{8})/?"')
DAY = re.compile(r"(?<!\d)(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?!\d)")
DATED = {"wikidata": "Wikidata", "wikipedia": "Wikipedia", "redirects": "Wikipedia's redirects"}
PINS = "addresses.json"  # what `latest` stood for when it was resolved


class Late(LongtailError):
    """A file of the month is not there yet; the server may have it tomorrow."""


class Gone(LongtailError):
    """No dump of the month or before it is left on the server."""


def today() -> date:
    return datetime.now(UTC).date()


def last_day(month: str) -> date:
    """The last day of a month, YYYY-MM."""
    first = date.fromisoformat(f"{month}-01")
    return first.replace(day=monthrange(first.year, first.month)[1])


def months_until(month: str, count: int) -> list[str]:
    """`count` months, YYYY-MM; the last one is `month`."""
    year, number = map(int, month.split("-"))
    last = 12 * year + number - 1
    months = range(last - count + 1, last + 1)
    return [f"{months_since_0 // 12}-{months_since_0 % 12 + 1:02}" for months_since_0 in months]


def with_month(entry: str, old: str, new: str) -> str:
    """An address or glob of page views with the month `new` in place of `old`."""
    moved = entry.replace(old, new).replace(old.replace("-", ""), new.replace("-", ""))
    return moved.replace(f"/{old[:4]}/{new}", f"/{new[:4]}/{new}")


def resolve(
    urls: Sequence[str], month: str, days_apart: int, folder: Path, client: Client
) -> dict[str, str]:
    """Address with `latest` -> the address that it stands for in the month, kept in `folder`;
    others are left out.

    Addresses of one wiki get the same date. Until `days_apart` days after the month, raises Late
    where the last dump is not whole or none was begun in the month. Later, the last whole one is
    taken. Raises Gone where the server has none.
    """
    urls_by_base: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        match = LATEST.fullmatch(url)
        if match:
            urls_by_base[match["base"]].append(url)

    if not urls_by_base:
        return {}

    if last_day(month) >= today():
        url = next(iter(urls_by_base.values()))[0]
        raise LongtailError(f"{url}: popularity.month is {month}, expected a month that is over")

    addresses = _read_pins(folder / PINS, month)
    for base, urls_of_base in urls_by_base.items():
        if not all(url in addresses for url in urls_of_base):
            day = _choose_day(base, urls_of_base, month, days_apart, client)
            for url in urls_of_base:
                addresses[url] = _with_day(url, day)

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / PINS, {"month": month, "addresses": addresses})
    return {url: addresses[url] for url in urls if url in addresses}


def _read_pins(path: Path, month: str) -> dict[str, str]:
    """The addresses in the file at `path`; none if it has another month's."""
    if not path.exists():
        return {}
    pins = msgspec.json.decode(path.read_bytes())
    if pins["month"] != month:
        return {}
    return pins["addresses"]


def check_there(urls: Sequence[str], month: str, days_apart: int, client: Client) -> None:
    """Raise Late if the server lacks one of these files, or Gone more than `days_apart` days after
    the month.
    """
    for url in urls:
        answer = client.send("HEAD", url)
        if answer.status_code == 404:
            if _is_early(month, days_apart):
                raise Late(f"{url}: not there yet")
            raise Gone(f"{url}: not on the server; choose another month")
        if answer.status_code != 200:
            raise http.refusal(answer, url)


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


def _choose_day(base: str, urls: Sequence[str], month: str, days_apart: int, client: Client) -> str:
    """The date (YYYYMMDD) of the dump that `resolve` takes for the addresses of one wiki."""
    listing = f"{base}/"
    answer = client.send("GET", listing, check=_listed_days)
    if answer.status_code != 200:
        raise http.refusal(answer, listing)
    days = _listed_days(answer.content)
    month_end = f"{last_day(month):%Y%m%d}"
    candidates = [day for day in days if day <= month_end]
    is_early = _is_early(month, days_apart)
    if is_early and candidates and not candidates[0].startswith(month.replace("-", "")):
        raise Late(f"{listing}: no dump of {month} yet, the last one is of {candidates[0]}")

    for day in candidates:
        files = [_with_day(url, day) for url in urls]
        missing = [name_of(file) for file in files if not published_checksum(client, file)]
        if not missing:
            return day
        if is_early:
            raise Late(f"{listing}{day}/{missing[0]}: not whole yet")

    raise Gone(
        f"{listing}: no whole dump by the end of {month}, "
        f"the server has those of {days[-1]} to {days[0]}"
    )


def _is_early(month: str, days_apart: int) -> bool:
    """Whether a dump of the month may still come."""
    return today() <= last_day(month) + timedelta(days_apart)


def _listed_days(body: bytes) -> list[str]:
    """The dates (YYYYMMDD) of the folders that a listing links to, latest first. Raises Again if it
    has none.
    """
    days = set(LISTED_DAY.findall(body.decode("utf-8", "replace")))
    if not days:
        raise http.Again("not a listing of dumps, expected links to folders named by date")
    return sorted(days, reverse=True)


def _with_day(url: str, day: str) -> str:
    """An address with `latest` as that of a day's dump; latest-all.json.gz is
    wikidata-DAY-all.json.gz in a folder.
    """
    match = LATEST.fullmatch(url)
    if match["name"]:
        name = match["name"].replace("latest", day)
    else:
        name = f"wikidata-{day}-{match['rest']}"
    return f"{match['base']}/{day}/{name}"
