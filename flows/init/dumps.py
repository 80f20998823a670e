"""Of Wikimedia's dumps, choose one wiki, the newest day, the whole rather than its parts, and
page views of a whole month.

Each function is a rule of same_records.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from flows.init.left_out import LeftOut, beside_least, instead
from pipelines.sources import pageviews
from pipelines.sources.corpus_layouts import DUMP, require_layout
from pipelines.sources.mediawiki_tables import PAGE_FILE
from pipelines.sources.pageview_files import choose_files as choose_pageviews
from pipelines.sources.wikipedia import wiki_of

MONTH = r"20\d\d(?P<hyphen>-?)(0[1-9]|1[0-2])"
DAY = re.compile(rf"(?<!\d){MONTH}(?P=hyphen)(0[1-9]|[12]\d|3[01])(?!\d)")
LATEST = "0"  # in place of the day, which this name does not tell: before all days
ENGLISH_WIKI = "enwiki"
# What a run lacks that has only the other table of MediaWiki.
WITHOUT_TABLE = {
    "page": "Wikipedia's table *-page.sql.gz: page views of articles that were moved since",
    "redirect": "Wikipedia's table *-redirect.sql.gz: page views of redirects",
}
PART_OF_DUMP = re.compile(r"pages-[a-z-]+\d+\.xml|p\d+p\d+")


def one_wiki(_: str, files: Sequence[Path]) -> list[LeftOut]:
    """A run has one language, and page ids of one wiki."""

    def key(file: Path) -> tuple[bool, str] | None:
        wiki = wiki_of(file)
        return (wiki != ENGLISH_WIKI, wiki) if wiki else None

    return beside_least(files, key, "a run reads one wiki")


def newest_dump(data_set: str, files: Sequence[Path]) -> list[LeftOut]:
    """Dumps that are older than another of the same, or whose names do not tell their day."""
    one_series = data_set == "wikidata" or (
        data_set == "wikipedia" and require_layout(files[0]) == DUMP
    )
    by_series: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        series = "" if one_series else _series(data_set, file)
        by_series[series].append(file)

    left_out = []
    for dumps in by_series.values():
        newest_day = max(map(_day, dumps))
        newest = [file for file in dumps if _day(file) == newest_day]
        if data_set == "redirects":
            newest = newest[:1]
        for file in dumps:
            if file not in newest:
                left_out.append(LeftOut(file, newest[0], _why_newer(newest_day, _day(file))))
    return left_out


def _why_newer(newest_day: str, day: str) -> str:
    if newest_day == day:
        return "one dump is read"
    if day > LATEST:
        return "it is newer"
    return "its name tells more of its day"


def _series(data_set: str, file: Path) -> str:
    """What dumps of several days have in common."""
    if data_set == "redirects":
        return _table(file)
    folder = DAY.sub("", file.parent.name)
    return str(file.parent.with_name(folder) / DAY.sub("", file.name))


def _table(file: Path) -> str:
    """The table of MediaWiki that a file has, by its name."""
    return "page" if PAGE_FILE.search(file.name) else "redirect"


def notes_on_tables(files: Sequence[Path]) -> list[str]:
    """What a run lacks that has one of Wikipedia's two tables, in words."""
    if not files:
        return []
    tables = {_table(file) for file in files}
    return [note for table, note in WITHOUT_TABLE.items() if table not in tables]


def _day(file: Path) -> str:
    """The day in a dump's name, or in its folder's, as digits; LATEST; or "" without one.

    A folder may tell the month alone.
    """
    folder = file.parent.name
    match = DAY.search(file.name) or DAY.search(folder) or re.fullmatch(MONTH, folder)
    if match:
        return match[0].replace("-", "")
    return LATEST if "latest" in file.name else ""


def whole_dump(_: str, files: Sequence[Path]) -> list[LeftOut]:
    """Parts of a dump beside the whole, its multistream form, and pages that are no articles."""
    if require_layout(files[0]) != DUMP:
        return []
    return beside_least(files, _form, "it has the same pages")


def _form(dump: Path) -> tuple[bool, bool, bool]:
    """In which form a dump has its pages. The least form is used."""
    has_other_pages = "pages-meta" in dump.name
    is_part = bool(PART_OF_DUMP.search(dump.name))
    return has_other_pages, is_part, "multistream" in dump.name


def newest_whole_month(_: str, files: Sequence[Path]) -> list[LeftOut]:
    """Page views of other months than the newest that lacks no days, and of days beside a month."""
    by_month = files_by_month(files)
    if not by_month:
        return []
    choices = {
        month: choose_pageviews(of_month, month, "all-agents")
        for month, of_month in by_month.items()
    }
    whole = [month for month, choice in choices.items() if not choice.days_missing]
    newest = max(whole or choices)
    used = choices[newest].files

    left_out = []
    for month, of_month in by_month.items():
        why = "it has the same views"
        if month != newest:
            why = "a run has the views of one month"
            if choices[month].days_missing:
                why = f"of {month} days are missing"
        left_out += instead(of_month, used, why)
    named = [file for of_month in by_month.values() for file in of_month]
    nameless = [file for file in files if file not in named]
    return left_out + instead(nameless, used, "the left out file's name tells no month")


def notes_on_months(files: Sequence[Path]) -> list[str]:
    """What the page views that a run uses lack, in words."""
    notes = []
    for month, of_month in files_by_month(files).items():
        chosen = choose_pageviews(of_month, month, "all-agents")
        notes += [*chosen.notes, *chosen.missing]
    return notes


def files_by_month(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Month, YYYY-MM -> its files, by their names."""
    by_month: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        name = pageviews.FILE.search(file.name)
        if name:
            month = name["month"]
            by_month[f"{month[:4]}-{month[4:]}"].append(file)
    return by_month
