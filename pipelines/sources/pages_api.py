"""Wikipedia's pages about PopQA's subjects, pages of the same names and others, from the MediaWiki API.

They stand in for a dump where only some pages are needed, and come in the dump's own XML, with the ids of their
revisions. Requests follow each other, and wait while the servers lag behind, as Wikimedia asks.
"""

import bz2
import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from urllib.parse import quote

import numpy as np
from tqdm import tqdm

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.sources.record_files import strict_rows
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import in_batches
from pipelines.sources.wikimedia import AT_MOST, Client, Query, ask_query
from pipelines.work.web import Again

API = "fetch.pages.api"
LONGEST = 6000  # bytes of titles in an address, which servers limit to some 8,000
LISTED = 500  # titles in an answer that lists them
NEIGHBOURS = 10  # pages in a row, at least, that follow the title of a subject
URI, TITLE = "s_uri", "s_wiki_title"  # columns of popQA.tsv
QUALIFIER = re.compile(r" \([^()]+\)$")
PAGE = re.compile(r"<page>.*?</page>", re.DOTALL)  # never in a page's text, where "<" is "&lt;"
ID = re.compile(r"<id>(\d+)</id>")  # the first in a page is the page's


def write_api_pages(
    client: Client, settings: params.Pages, seed: int, published: Path, pages: Path, questions: Path, rejected: Path
) -> dict[str, float]:
    """Write the pages of subjects of the file `published` (popQA.tsv) to `pages`, a dump (.xml.bz2); return counts.

    `questions` gets the rows of `published` whose subject was drawn and has a page, with the page's title of today;
    `rejected` (Parquet) those of drawn subjects without a page. Raises LongtailError naming the API if it refuses, or
    knows fewer than half of the subjects.
    """
    header, rows = _read_popqa(published)
    uri, title = header.index(URI), header.index(TITLE)
    titles = {row[uri]: row[title] for _, row in rows}  # subject -> its page's title
    known = list(titles)
    drawn = draws.sample(seed, "fetch.pages", known, settings.max_subjects or len(known))
    titles = {known[i]: titles[known[i]] for i in drawn}
    subjects = sorted({*titles.values()} - {""})
    print(f"fetch: pages of {len(subjects):,} subjects of PopQA, by one request at a time", flush=True)
    asked = dict.fromkeys(subjects)
    if settings.namesakes:  # "Mercury (planet)" has "Mercury", and that with other qualifiers
        names = sorted({QUALIFIER.sub("", title) for title in subjects})
        bar = tqdm(names, desc="namesakes", unit="name", mininterval=2)
        listed = [title for name in bar for title in _articles(client, settings.api, LISTED, apprefix=f"{name} (")]
        asked |= dict.fromkeys(sorted({*names, *listed}))
    asked |= dict.fromkeys(_others(client, settings.api, seed, subjects, asked, settings.others))
    targets = _write_dump(client, settings.api, list(asked), pages)

    rejects = Rejects(1.0)
    with questions.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(header)
        for number, row in rows:
            if row[uri] not in titles:
                continue
            rejects.read += 1
            page, item = targets.get(row[title], (None, None))
            if page is None:
                rejects.add(questions, number, "no_page", row[title])
            elif item not in (None, row[uri].rpartition("/")[2]):
                rejects.add(questions, number, "page_of_another", f"{row[title]}: {page} is about {item}")
            else:
                writer.writerow([*row[:title], page, *row[title + 1 :]])
    rejects.write(rejected)
    if 2 * rejects.bad.total() > rejects.read:
        raise LongtailError(
            f"{settings.api}: {rejects.bad.total()} of {rejects.read} questions of popQA.tsv have no page about their "
            f"subject there, expected English Wikipedia's api.php (fetch.pages.api); the first: {rejects.rows[0][3]!r}"
        )
    counts = {"pages": len({page for page, _ in targets.values()}), "subjects": len(titles)}
    return counts | {"questions": rejects.read - rejects.bad.total()} | rejects.metrics()


def _read_popqa(published: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    (_, header), *rows = strict_rows(published, "\t")
    if not {URI, TITLE} <= {*header}:
        raise LongtailError(f"{published}: no column {URI} or {TITLE}, expected popQA.tsv as published")
    if odd := next((number for number, row in rows if len(row) != len(header)), 0 if rows else 2):
        raise LongtailError(f"{published}: line {odd} has no question in {len(header)} columns; fetch it again")
    return header, rows


def _others(
    client: Client, api: str, seed: int, subjects: Sequence[str], known: Mapping[str, None], n: int
) -> list[str]:
    """`n` titles that are not `known`: NEIGHBOURS or more after each of as many subjects as needed, drawn by hash."""
    order = np.lexsort((np.array(subjects), draws.uniforms(seed, "fetch.pages.others", subjects)))
    share = max(NEIGHBOURS, ceil(n / len(subjects)))
    others: dict[str, None] = {}
    for subject in tqdm(order, desc="other titles", unit="subject", mininterval=2) if n else ():
        listed = _articles(client, api, min(LISTED, 2 * share), apfrom=subjects[subject])
        unknown = (title for title in listed if title not in known and title not in others)
        others |= dict.fromkeys(islice(unknown, min(share, n - len(others))))
        if len(others) == n:
            break
    return list(others)


def _articles(client: Client, api: str, limit: int, **which: str) -> Iterator[str]:
    """Titles of articles that are no redirects, in the wiki's order; asks for `limit` at a time, as they are taken."""
    asked = {"list": "allpages", "apnamespace": "0", "apfilterredir": "nonredirects", "aplimit": str(limit), **which}
    for answer in ask_query(client, api, asked, API, lambda _: None):
        yield from (listed.title for listed in answer.allpages)


def _write_dump(client: Client, api: str, titles: Iterable[str], path: Path) -> dict[str, tuple[str, str | None]]:
    """Write the pages that `titles` lead to, each once; return title -> (page's title, its item).

    The item is Wikidata's, as "Q42", or None. Pages are written in the order of the requests, and by page id within an
    answer. Redirects that the API did not follow, in a circle or to another wiki, are no pages.
    """
    targets: dict[str, tuple[str, str | None]] = {}
    written: set[int] = set()
    with bz2.open(path, "wt", encoding="utf-8", newline="\n") as file:
        file.write('<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">\n')
        batches = in_batches(titles, lambda title: len(quote(title, safe="")) + len("%7C"), LONGEST, AT_MOST)
        for batch in tqdm(list(batches), desc="pages", unit="request", mininterval=2):
            asked = {"titles": "|".join(batch), "redirects": "1", "export": "1"}
            asked |= {"prop": "pageprops", "ppprop": "wikibase_item"}
            answer = next(ask_query(client, api, asked, API, partial(_check_pages, batch)))
            exported = {
                pageid: xml
                for pageid, xml in _exported(answer).items()
                if "<redirect " not in xml.partition("<revision>")[0]
            }
            articles = {page.title: page for page in answer.pages if page.ns == 0 and page.pageid in exported}
            for pageid in sorted({page.pageid for page in articles.values()} - written):
                file.write(f"  {exported[pageid]}\n")
                written.add(pageid)
            for title in batch:
                if page := articles.get(answer.passed(title)[-1]):
                    targets[title] = page.title, page.pageprops.get("wikibase_item")
        file.write("</mediawiki>\n")
    return targets


def _check_pages(titles: Sequence[str], answer: Query) -> None:
    """Raise Again where the answer lacks the text of a page, or says nothing about a title."""
    if lacking := {page.pageid for page in answer.pages if page.pageid} - _exported(answer).keys():
        raise Again(f"no text of page {min(lacking)} and {len(lacking) - 1} more")
    known = {page.title for page in (*answer.pages, *answer.interwiki)}
    for title in titles:
        if known.isdisjoint(answer.passed(title)):
            raise Again(f"nothing about {title}")


def _exported(answer: Query) -> dict[int, str]:
    return {int(match[1]): page for page in PAGE.findall(answer.export) if (match := ID.search(page))}
