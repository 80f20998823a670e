"""Which dumps a month's snapshot is made of: an address with `latest` in it means the last dump by
the month's end.

Wikimedia's servers keep the dumps of a wiki in folders named by date, which a listing links to:
/enwiki/20260920/. A file is whole when the folder's list of checksums has it. A dump that is not
whole, or not there yet, is waited for.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pipelines.errors import LongtailError
from pipelines.sources.download import name_of, published_checksum
from pipelines.sources.raw_files import last_day
from pipelines.sources.wikimedia_client import Client
from pipelines.storage.atomic import read_json, write_json
from pipelines.work import http

LATEST = re.compile(r"(?P<base>https?://.+)/latest(?:/(?P<name>[^/]*latest[^/]*)|-(?P<rest>[^/]+))")
LISTED_DAY = re.compile(r'href="(?:[^"]*/)?(\d{8})/?"')
PINS = "addresses.json"  # what `latest` stood for when it was resolved


class Late(LongtailError):
    """A file of the month is not there yet; the server may have it tomorrow."""


class Gone(LongtailError):
    """No dump of the month or before it is left on the server."""


def today() -> date:
    return datetime.now(UTC).date()


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
    pins = read_json(path)
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
