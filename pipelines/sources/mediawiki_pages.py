"""Wikipedia's pages about PopQA's subjects from the MediaWiki API, where a whole dump is not
needed.

The pages of the subjects, pages of the same names and others come in the dump's own XML, with the
ids of their revisions. Requests follow each other, and wait while the servers lag behind, as
Wikimedia asks.
"""

import bz2
import csv
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
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
from pipelines.sources.batches import in_batches
from pipelines.sources.delimited import strict_rows
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_text
from pipelines.sources.wikimedia_client import IDS_PER_REQUEST, Client, Page, Query, ask_query
from pipelines.work.http import Again

API = "fetch.pages.api"
TITLE_BYTES = 6000  # bytes of titles in an address, which servers limit to some 8,000
LISTED_TITLES = 500  # titles in an answer that lists them
NEIGHBOURS = 10  # pages in a row, at least, that follow the title of a subject
URI = "s_uri"  # columns of popQA.tsv
TITLE = "s_wiki_title"
QUALIFIER = re.compile(r" \([^()]+\)$")
PAGE = re.compile(r"<page>.*?</page>", re.DOTALL)  # never in a page's text, where "<" is "&lt;"
ID = re.compile(r"<id>(\d+)</id>")  # the first in a page is the page's
DUMP_HEAD = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">\n'
)


# The rows of popQA.tsv, as published: line from 1 -> cells by column.
PopQA = dict[int, dict[str, str]]


def write_api_pages(
    client: Client,
    pages: params.Pages,
    seed: int,
    published: Path,
    dump: Path,
    questions: Path,
    rejected: Path,
) -> dict[str, float]:
    """Write the pages of subjects of the file `published` (popQA.tsv) to `dump`
    (.xml.bz2); return counts.

    `questions` gets the rows of `published` whose subject was drawn and has a page, with the page's
    title of today; `rejected` (Parquet) those of drawn subjects without a page. Raises
    LongtailError naming the API if it refuses, or knows fewer than half of the subjects.
    """
    popqa = _read_popqa(published)
    titles_by_uri = _draw_subjects(popqa, seed, pages.max_subjects)
    subjects = sorted(set().union(*titles_by_uri.values()) - {""})
    print(f"fetch: pages of {len(subjects):,} subjects of PopQA, by one request at a time")

    titles = dict.fromkeys(subjects)
    if pages.namesakes:
        titles |= dict.fromkeys(_namesakes(client, pages.api, subjects))
    others = _other_titles(client, pages.api, seed, subjects, titles, pages.others)
    titles |= dict.fromkeys(others)

    targets = _write_dump(client, pages.api, list(titles), dump)
    rejects = _write_questions(popqa, titles_by_uri, targets, questions)
    rejects.write(rejected)
    bad = rejects.bad.total()
    if 2 * bad > rejects.read:
        raise LongtailError(
            f"{pages.api}: {bad} of {rejects.read} questions of popQA.tsv have no page about "
            f"their subject there, expected English Wikipedia's api.php ({API}); "
            f"the first: {rejects.rows[0][3]!r}"
        )

    counts = {
        "pages": len({target.title for target in targets.values()}),
        "subjects": len(titles_by_uri),
        "questions": rejects.read - bad,
    }
    return counts | rejects.metrics()


def _read_popqa(published: Path) -> PopQA:
    (_, header), *rows = strict_rows(published, open_text(published), "\t")
    if URI not in header or TITLE not in header:
        raise LongtailError(
            f"{published}: no column {URI} or {TITLE}, expected popQA.tsv as published"
        )
    bad_lines = [number for number, cells in rows if len(cells) != len(header)]
    if not rows:
        bad_lines = [2]
    if bad_lines:
        raise LongtailError(
            f"{published}: line {bad_lines[0]} has no question in {len(header)} columns; "
            "fetch it again"
        )
    return {number: dict(zip(header, cells, strict=True)) for number, cells in rows}


def _draw_subjects(popqa: PopQA, seed: int, max_subjects: int | None) -> dict[str, set[str]]:
    """Subject's URI -> the titles that its questions give its page, for at most `max_subjects`,
    drawn by hash.
    """
    titles_by_uri: dict[str, set[str]] = defaultdict(set)
    for row in popqa.values():
        titles_by_uri[row[URI]].add(row[TITLE])
    uris = list(titles_by_uri)
    drawn = draws.sample(seed, "fetch.pages", uris, max_subjects or len(uris))
    return {uris[i]: titles_by_uri[uris[i]] for i in drawn}


def _namesakes(client: Client, api: str, subjects: Iterable[str]) -> list[str]:
    """Titles of the subjects' names, without a qualifier and with others, sorted.

    For "Mercury (planet)" these are "Mercury" and all that begin with "Mercury (".
    """
    names = sorted({QUALIFIER.sub("", title) for title in subjects})
    titles = set(names)
    for name in tqdm(names, desc="namesakes", unit="name", mininterval=2):
        titles.update(_list_titles(client, api, LISTED_TITLES, apprefix=f"{name} ("))
    return sorted(titles)


def _other_titles(
    client: Client,
    api: str,
    seed: int,
    subjects: Sequence[str],
    titles: Collection[str],
    count: int,
) -> list[str]:
    """`count` titles that are not among `titles`.

    They are NEIGHBOURS or more after each of as many subjects as needed, drawn by hash.
    """
    if count == 0 or not subjects:
        return []
    uniforms = draws.uniforms(seed, "fetch.pages.others", subjects)
    order = np.lexsort((np.array(subjects), uniforms))
    neighbours = max(NEIGHBOURS, ceil(count / len(subjects)))
    limit = min(LISTED_TITLES, 2 * neighbours)
    others: dict[str, None] = {}  # each once, in order

    for i in tqdm(order, desc="other titles", unit="subject", mininterval=2):
        listed = _list_titles(client, api, limit, apfrom=subjects[i])
        new = (title for title in listed if title not in titles and title not in others)
        others |= dict.fromkeys(islice(new, min(neighbours, count - len(others))))
        if len(others) == count:
            break

    return list(others)


def _list_titles(client: Client, api: str, limit: int, **condition: str) -> Iterator[str]:
    """Titles of articles that are no redirects, in the wiki's order; asks for `limit` at a time, as
    they are taken.
    """
    query = {
        "list": "allpages",
        "apnamespace": "0",
        "apfilterredir": "nonredirects",
        "aplimit": str(limit),
        **condition,
    }
    for answer in ask_query(client, api, query, API):
        for page in answer.allpages:
            yield page.title


def _write_dump(client: Client, api: str, titles: Iterable[str], path: Path) -> dict[str, Page]:
    """Write the pages that `titles` lead to, each once; return title -> page.

    Pages are written in the order of the requests, and by page id within an answer. Redirects that
    the API did not follow, in a circle or to another wiki, are no pages.
    """
    targets: dict[str, Page] = {}
    written: set[int] = set()
    batches = list(in_batches(titles, _bytes_in_address, TITLE_BYTES, IDS_PER_REQUEST))
    with bz2.open(path, "wt", encoding="utf-8", newline="\n") as file:
        file.write(DUMP_HEAD)
        for batch in tqdm(batches, desc="pages", unit="request", mininterval=2):
            query = {
                "titles": "|".join(batch),
                "redirects": "1",
                "export": "1",
                "prop": "pageprops",
                "ppprop": "wikibase_item",
            }
            answer = next(ask_query(client, api, query, API, partial(_check_pages, batch)))
            xml_by_id = _exported(answer)
            articles = {}
            for page in answer.pages:
                xml = xml_by_id.get(page.pageid)
                if page.ns == 0 and xml is not None and not _is_redirect(xml):
                    articles[page.title] = page

            page_ids = {page.pageid for page in articles.values()}
            for page_id in sorted(page_ids - written):
                file.write(f"  {xml_by_id[page_id]}\n")
                written.add(page_id)
            for title in batch:
                page = articles.get(answer.titles_on_the_way(title)[-1])
                if page is not None:
                    targets[title] = page
        file.write("</mediawiki>\n")

    return targets


def _bytes_in_address(title: str) -> int:
    return len(quote(title, safe="")) + len("%7C")


def _check_pages(titles: Sequence[str], answer: Query) -> None:
    """Raise Again where the answer lacks the text of a page, or says nothing about a title."""
    page_ids = {page.pageid for page in answer.pages if page.pageid}
    lacking = page_ids - _exported(answer).keys()
    if lacking:
        raise Again(f"no text of page {min(lacking)} and {len(lacking) - 1} more")
    answered = {page.title for page in (*answer.pages, *answer.interwiki)}
    for title in titles:
        if answered.isdisjoint(answer.titles_on_the_way(title)):
            raise Again(f"nothing about {title}")


def _exported(answer: Query) -> dict[int, str]:
    """Page id -> the page's XML."""
    xml_by_id = {}
    for xml in PAGE.findall(answer.export):
        match = ID.search(xml)
        if match:
            xml_by_id[int(match[1])] = xml
    return xml_by_id


def _is_redirect(xml: str) -> bool:
    return "<redirect " in xml.partition("<revision>")[0]


def _write_questions(
    popqa: PopQA, uris: Collection[str], targets: dict[str, Page], path: Path
) -> Rejects:
    """Write the questions of drawn subjects that have a page, with its title; return the others as
    rejects, with their lines in the published file.
    """
    rejects = Rejects(1.0)
    columns = list(next(iter(popqa.values())))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        for number, row in popqa.items():
            if row[URI] not in uris:
                continue
            rejects.read += 1
            page = targets.get(row[TITLE])
            if page is None:
                rejects.add(path, number, "no_page", row[TITLE])
                continue
            item = page.pageprops.get("wikibase_item")  # as "Q42"
            if item in (None, row[URI].rpartition("/")[2]):
                writer.writerow(row | {TITLE: page.title})
            else:
                detail = f"{row[TITLE]}: {page.title} is about {item}"
                rejects.add(path, number, "page_of_another", detail)

    return rejects
