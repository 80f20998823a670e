"""Which dumps a month's snapshot is made of: an address with `latest` in it means the last dump by the month's end.

Wikimedia's servers keep the dumps of a wiki in folders named by date, which a listing links to: /enwiki/20260920/. A
file is whole when the folder's list of checksums has it. A dump that is not whole, or not there yet, is waited for.
"""

import re
from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from pipelines.errors import LongtailError
from pipelines.sources.download import name_of, published_checksum
from pipelines.sources.wikimedia import Client
from pipelines.storage.atomic import write_json
from pipelines.work import http

LATEST = re.compile(r"(?P<base>https?://.+)/latest(?:/(?P<name>[^/]*latest[^/]*)|-(?P<rest>[^/]+))")
LISTED = re.compile(r'href="(?:[^"]*/)?(\d{8})/?"')
DAY = re.compile(r"(?<!\d)(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?!\d)")
DATED = {"wikidata": "Wikidata", "wikipedia": "Wikipedia", "redirects": "Wikipedia's redirects"}
PINS = "addresses.json"  # what `latest` stood for when it was resolved


class Late(LongtailError):
    """A file of the month is not there yet; the server may have it tomorrow."""


class Gone(LongtailError):
    """No dump of the month or before it is left on the server."""


def last_day(month: str) -> date:
    """The last day of a month, YYYY-MM."""
    year, number = map(int, month.split("-"))
    return date(year, number, monthrange(year, number)[1])


def months_until(month: str, count: int) -> list[str]:
    """`count` months, YYYY-MM; the last one is `month`."""
    year, number = map(int, month.split("-"))
    last = 12 * year + number - 1
    return [f"{n // 12}-{n % 12 + 1:02}" for n in range(last - count + 1, last + 1)]


def of_month(entry: str, old: str, new: str) -> str:
    """An address or glob of page views with another month."""
    moved = entry.replace(old, new).replace(old.replace("-", ""), new.replace("-", ""))
    return moved.replace(f"/{old[:4]}/{new}", f"/{new[:4]}/{new}")


def views_files(entries: Iterable[str], months: Sequence[str]) -> list[str]:
    """Addresses and globs of the page views of all `months`, made from the last month's."""
    return list(
        dict.fromkeys(of_month(entry, months[-1], month) for month in months for entry in entries)
    )


def today() -> date:
    return datetime.now(UTC).date()


def resolve(
    urls: Iterable[str], month: str, days_apart: int, folder: Path, client: Client
) -> dict[str, str]:
    """Address with `latest` -> the address that it stands for in the month, kept in `folder`; others are left out.

    Addresses of one wiki get the same date. Until `days_apart` days after the month, raises Late where the last dump is
    not whole or none was begun in the month; later, the last whole one is taken. Raises Gone where the server has none.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        if match := LATEST.fullmatch(url):
            groups[match["base"]].append(url)
    if not groups:
        return {}
    if last_day(month) >= today():
        address = next(iter(groups.values()))[0]
        raise LongtailError(
            f"{address}: popularity.month is {month}, expected a month that is over"
        )
    pins = (
        msgspec.json.decode((folder / PINS).read_bytes())
        if (folder / PINS).exists()
        else {"month": ""}
    )
    kept = pins["addresses"] if pins["month"] == month else {}
    for base, group in groups.items():
        if not kept.keys() >= set(group):
            day = _choose(base, group, month, days_apart, client)
            kept |= {url: _dated(url, day) for url in group}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / PINS, {"month": month, "addresses": kept})
    return {url: kept[url] for group in groups.values() for url in group}


def check_there(urls: Sequence[str], month: str, days_apart: int, client: Client) -> None:
    """Raise Late if the server lacks one of these files, or Gone more than `days_apart` days after the month."""
    for url in urls:
        if (answer := client.send("HEAD", url)).status_code == 404:
            waits = today() <= last_day(month) + timedelta(days_apart)
            raise (
                Late(f"{url}: not there yet")
                if waits
                else Gone(f"{url}: not on the server; choose another month")
            )
        if answer.status_code != 200:
            raise http.refusal(answer, url)


def day_of(source: str) -> str | None:
    """The date in the name of a dump, or of the folder that it comes from, as YYYY-MM-DD; None if there is none."""
    found = DAY.search(source.rsplit("/", 1)[-1]) or DAY.search(source)
    return "-".join(found.groups()) if found else None


def dates(manifest: Sequence[Mapping[str, Any]], months: Sequence[str]) -> dict[str, list[str]]:
    """Name of a source -> its files' dates (YYYY-MM-DD), and the months of page views; empty for one month, no date."""
    known = {}
    for name, title in DATED.items():
        if days := {
            file["date"] for file in manifest if "date" in file and file["dataset"] == name
        }:
            known[title] = sorted(days)
    return known | {"page views": sorted(months)} if known or len(months) > 1 else {}


def warning(of: Mapping[str, list[str]], days_apart: int) -> str:
    """A sentence that warns if the dates of `dates` are too far apart, else "". A month stands for all its days."""
    days = [day for listed in of.values() for day in listed]
    first = [
        date.fromisoformat(day) if len(day) > 7 else last_day(day).replace(day=1) for day in days
    ]
    last = [date.fromisoformat(day) if len(day) > 7 else last_day(day) for day in days]
    apart = (max(first) - min(last)).days if days else 0
    if apart <= days_apart:
        return ""
    several = len(of.get("page views", [])) > 1
    return (
        f"These dates are up to {apart:,} days apart, more than fetch.days_apart allows ({days_apart}): facts, pages "
        f"and popularity are not of one time{several * ', and thresholds mix popularities of several months'}."
    )


def _choose(base: str, group: Sequence[str], month: str, days_apart: int, client: Client) -> str:
    """The date (YYYYMMDD) of the dump that `resolve` takes for addresses of one wiki."""
    answer = client.send("GET", f"{base}/", check=_listed)
    if answer.status_code != 200:
        raise http.refusal(answer, f"{base}/")
    listed, end = _listed(answer.content), f"{last_day(month):%Y%m%d}"
    until = sorted((day for day in listed if day <= end), reverse=True)
    waits = today() <= last_day(month) + timedelta(days_apart)
    if waits and until and not until[0].startswith(month.replace("-", "")):
        raise Late(f"{base}/: no dump of {month} yet, the last one is of {until[0]}")
    for day in until:
        files = (_dated(url, day) for url in group)
        missing = [name_of(file) for file in files if not published_checksum(client, file)]
        if not missing:
            return day
        if waits:
            raise Late(f"{base}/{day}/{missing[0]}: not whole yet")
    raise Gone(
        f"{base}/: no whole dump by the end of {month}, the server has those of {listed[-1]} to {listed[0]}"
    )


def _listed(body: bytes) -> list[str]:
    """The dates (YYYYMMDD) of the folders that a listing links to, latest first. Raises Again if it has none."""
    if not (days := sorted(set(LISTED.findall(body.decode("utf-8", "replace"))), reverse=True)):
        raise http.Again("not a listing of dumps, expected links to folders named by date")
    return days


def _dated(url: str, day: str) -> str:
    """An address with `latest` as that of a day's dump; latest-all.json.gz is wikidata-DAY-all.json.gz in a folder."""
    match = LATEST.fullmatch(url)
    name = (
        match["name"].replace("latest", day) if match["name"] else f"wikidata-{day}-{match['rest']}"
    )
    return f"{match['base']}/{day}/{name}"
