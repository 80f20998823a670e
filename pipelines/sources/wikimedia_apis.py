"""Asks Wikimedia's APIs for pages, statements and names, where a whole dump is not needed.

Wikipedia's pages about PopQA's subjects, pages of the same names and others come from the MediaWiki API, in the dump's
own XML, with the ids of their revisions. Requests follow each other, and wait while the servers lag behind, as
Wikimedia asks.

Truthy statements (`wdt:`: of the best rank, never deprecated) come from Wikidata's query service, and names from its
entity API. Statements are paged with Blazegraph's `bd:slice` in the order of its index: ORDER BY or a FILTER would take
longer than the 60 seconds that the service allows. Pages overlap a little, as an edit shifts later positions.
"""

import bz2
import csv
import gzip
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from urllib.parse import quote

import msgspec
import numpy as np
from tqdm import tqdm

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.params import params
from pipelines.sources.delimited import strict_rows
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import in_batches
from pipelines.sources.wikimedia import AT_MOST, Client, Query, ask_query
from pipelines.work.http import BROKEN, Again, shown

API = "fetch.pages.api"
LONGEST = 6000  # bytes of titles in an address, which servers limit to some 8,000
LISTED = 500  # titles in an answer that lists them
NEIGHBOURS = 10  # pages in a row, at least, that follow the title of a subject
URI, TITLE = "s_uri", "s_wiki_title"  # columns of popQA.tsv
QUALIFIER = re.compile(r" \([^()]+\)$")
PAGE = re.compile(r"<page>.*?</page>", re.DOTALL)  # never in a page's text, where "<" is "&lt;"
ID = re.compile(r"<id>(\d+)</id>")  # the first in a page is the page's
OVERLAP = 0.02  # share of a page that the next page repeats
STATEMENTS = 50_000  # per request; halved when the service runs out of time
SMALLEST = 500  # statements; a page that takes too long is halved, but not below this
OUT_OF_TIME = (
    b"TimeoutException",
    b"upstream request timeout",
)  # from the service and from its proxy
ITEM = re.compile(r"https?://[^/]+/entity/Q([1-9][0-9]{0,17})")

# The service knows the prefixes.
COUNT = "SELECT (COUNT(*) AS ?n) WHERE {{ ?s wdt:{pid} ?o }}"
STATEMENTS_PAGE = """SELECT ?s ?o WHERE {{
  hint:Query hint:optimizer "None" .
  SERVICE bd:slice {{
    ?s wdt:{pid} ?o .
    bd:serviceParam bd:slice.offset {offset} .
    bd:serviceParam bd:slice.limit {limit} .
  }}
  ?article schema:about ?s .
  ?article schema:isPartOf <https://{project}.org/> .
}}"""


def write_api_pages(
    client: Client,
    settings: params.Pages,
    seed: int,
    published: Path,
    pages: Path,
    questions: Path,
    rejected: Path,
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
    print(
        f"fetch: pages of {len(subjects):,} subjects of PopQA, by one request at a time", flush=True
    )
    asked = dict.fromkeys(subjects)
    if settings.namesakes:  # "Mercury (planet)" has "Mercury", and that with other qualifiers
        names = sorted({QUALIFIER.sub("", title) for title in subjects})
        bar = tqdm(names, desc="namesakes", unit="name", mininterval=2)
        listed = [
            title
            for name in bar
            for title in _articles(client, settings.api, LISTED, apprefix=f"{name} (")
        ]
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
                rejects.add(
                    questions, number, "page_of_another", f"{row[title]}: {page} is about {item}"
                )
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
        raise LongtailError(
            f"{published}: no column {URI} or {TITLE}, expected popQA.tsv as published"
        )
    if odd := next((number for number, row in rows if len(row) != len(header)), 0 if rows else 2):
        raise LongtailError(
            f"{published}: line {odd} has no question in {len(header)} columns; fetch it again"
        )
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
    asked = {
        "list": "allpages",
        "apnamespace": "0",
        "apfilterredir": "nonredirects",
        "aplimit": str(limit),
        **which,
    }
    for answer in ask_query(client, api, asked, API, lambda _: None):
        yield from (listed.title for listed in answer.allpages)


def _write_dump(
    client: Client, api: str, titles: Iterable[str], path: Path
) -> dict[str, tuple[str, str | None]]:
    """Write the pages that `titles` lead to, each once; return title -> (page's title, its item).

    The item is Wikidata's, as "Q42", or None. Pages are written in the order of the requests, and by page id within an
    answer. Redirects that the API did not follow, in a circle or to another wiki, are no pages.
    """
    targets: dict[str, tuple[str, str | None]] = {}
    written: set[int] = set()
    with bz2.open(path, "wt", encoding="utf-8", newline="\n") as file:
        file.write(
            '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">\n'
        )
        batches = in_batches(
            titles, lambda title: len(quote(title, safe="")) + len("%7C"), LONGEST, AT_MOST
        )
        for batch in tqdm(list(batches), desc="pages", unit="request", mininterval=2):
            asked = {"titles": "|".join(batch), "redirects": "1", "export": "1"}
            asked |= {"prop": "pageprops", "ppprop": "wikibase_item"}
            answer = next(ask_query(client, api, asked, API, partial(_check_pages, batch)))
            exported = {
                pageid: xml
                for pageid, xml in _exported(answer).items()
                if "<redirect " not in xml.partition("<revision>")[0]
            }
            articles = {
                page.title: page
                for page in answer.pages
                if page.ns == 0 and page.pageid in exported
            }
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
    return {
        int(match[1]): page for page in PAGE.findall(answer.export) if (match := ID.search(page))
    }


class TooSlow(LongtailError):
    """The service ran out of time; a smaller page may succeed."""


# The layouts of results (SPARQL 1.1 Query Results JSON) and of the entity API's answers, as far as they are used.
class _Term(msgspec.Struct, gc=False):
    value: str


class _Bindings(msgspec.Struct):
    bindings: list[dict[str, _Term]]  # variable -> value


class _Results(msgspec.Struct):
    results: _Bindings


class _Entity(msgspec.Struct):
    id: str
    redirects: dict[str, str] = {}
    missing: msgspec.Raw = msgspec.Raw()
    labels: msgspec.Raw = msgspec.Raw(b"{}")
    aliases: msgspec.Raw = msgspec.Raw(b"{}")
    sitelinks: msgspec.Raw = msgspec.Raw(b"{}")


class _Answer(msgspec.Struct):
    entities: dict[str, _Entity] = {}


def write_statements(
    client: Client,
    path: Path,
    settings: params.Wikidata,
    pids: Sequence[str],
    language: Language = ENGLISH,
) -> dict[str, int]:
    """Write a dump (.json.gz): the items in statements of relations `pids` whose subject has an article; return counts.

    The items have their names and articles in the language, and their statements. What is not between two items, as an
    unknown value, and items that are deleted are counted. An item that was merged into another has its names. A page
    that takes the service too long is halved. Raises LongtailError if even a small one does or the server refuses.
    """
    endpoint = settings.query_service
    totals = dict(
        zip(
            pids,
            client.map(lambda pid: _count(client, endpoint, pid), pids, "relations"),
            strict=True,
        )
    )
    if not any(totals.values()):
        raise LongtailError(
            f"{endpoint}: no statement of {', '.join(pids)} (wikidata.query_service)"
        )
    ranges = [
        (pid, start, STATEMENTS) for pid in pids for start in range(0, totals[pid], STATEMENTS)
    ]
    print(
        f"fetch: {sum(totals.values()):,} statements of {len(pids)} relations in {len(ranges):,} pages",
        flush=True,
    )
    pages = client.map(
        lambda page: _read_page(client, endpoint, language.project, *page), ranges, "statements"
    )
    rows = np.concatenate(list(pages))
    of_items = rows[rows.all(axis=1)]
    claims = np.unique(of_items, axis=0)  # subject, relation, object
    subjects, qids = np.ascontiguousarray(claims[:, 0]), np.unique(claims[:, [0, 2]]).tolist()
    print(f"fetch: {len(qids):,} entities to name, {AT_MOST} at once", flush=True)
    batches = [qids[start : start + AT_MOST] for start in range(0, len(qids), AT_MOST)]
    answers = client.map(
        lambda batch: _ask_names(client, settings.api, batch, language), batches, "entity names"
    )
    written = 0
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
    ):  # equal content is equal bytes
        for batch, entities in zip(batches, answers, strict=True):
            for qid in batch:
                if not (entity := entities[f"Q{qid}"]).missing:
                    of_item = claims[slice(*np.searchsorted(subjects, [qid, qid + 1]))]
                    packed.write((b",\n" if written else b"[\n") + _line(qid, entity, of_item))
                    written += 1
        packed.write(b"\n]\n" if written else b"[\n]\n")
    counts = {"statements": len(claims), "statements_not_of_items": len(rows) - len(of_items)}
    return counts | {"items_missing": len(qids) - written}


def _line(qid: int, entity: _Entity, claims: np.ndarray) -> bytes:
    """An item as a line of a dump has it, with keys in a dump's order."""
    statements: dict[str, list] = {}
    for _, relation, number in claims.tolist():
        value = {"entity-type": "item", "numeric-id": number, "id": f"Q{number}"}
        snak = {"snaktype": "value", "property": f"P{relation}", "datavalue": {"value": value}}
        statements.setdefault(f"P{relation}", []).append({"mainsnak": snak, "rank": "normal"})
    item = {"type": "item", "id": f"Q{qid}", "labels": entity.labels, "aliases": entity.aliases}
    return msgspec.json.encode(
        item | {"claims": statements, "sitelinks": entity.sitelinks}
    ).replace(b"\n", b" ")


def _ask(client: Client, endpoint: str, query: str) -> list[dict[str, _Term]]:
    """The rows of the answer to a query. Raises TooSlow where the service runs out of time."""

    def rows(body: bytes) -> list[dict[str, _Term]]:
        try:
            return msgspec.json.decode(body, type=_Results).results.bindings
        except BROKEN as error:  # results that ran out of time begin like good ones, and end in a Java stack trace
            if any(sign in body for sign in OUT_OF_TIME):
                where = shown(endpoint, {"query": " ".join(query[query.index("SELECT") :].split())})
                said = "the query service ran out of time; try again when it is less busy, or use a dump"
                raise TooSlow(f"{where}: {said}") from None
            raise Again(f"not SPARQL results in JSON ({error})") from None

    body = client.ask(endpoint, {"query": query, "format": "json"}, rows)
    if body is None:
        raise LongtailError(
            f"{endpoint}: the server answers 404, expected a SPARQL endpoint (wikidata.query_service)"
        )
    return rows(body)


def _count(client: Client, endpoint: str, pid: str) -> int:
    rows = _ask(client, endpoint, COUNT.format(pid=pid))
    if len(rows) != 1 or "n" not in rows[0] or not re.fullmatch("[0-9]{1,10}", rows[0]["n"].value):
        raise LongtailError(
            f"{endpoint}: can't count {pid}'s statements, expected a SPARQL 1.1 endpoint"
        )
    return int(rows[0]["n"].value)


def _read_page(
    client: Client, endpoint: str, project: str, pid: str, offset: int, count: int
) -> np.ndarray:
    """`count` statements from `offset` on, (rows, 3) int64: subject, relation, object; 0 for what is no item."""
    query = STATEMENTS_PAGE.format(
        project=project, pid=pid, offset=offset, limit=count + int(count * OVERLAP)
    )
    try:
        rows = _ask(client, endpoint, query)
    except TooSlow:
        if count <= SMALLEST:
            raise
        client.keep(
            endpoint, {"query": query, "format": "json"}, OUT_OF_TIME[0]
        )  # a restarted run halves it at once
        half = (count + 1) // 2
        halves = (offset, half), (offset + half, count - half)
        return np.concatenate([_read_page(client, endpoint, project, pid, *of) for of in halves])
    pairs = [
        [ITEM.fullmatch(row[name].value) if name in row else None for name in "so"] for row in rows
    ]
    claims = [(int(s[1]) if s else 0, int(pid[1:]), int(o[1]) if o else 0) for s, o in pairs]
    return np.array(claims, np.int64).reshape(-1, 3)


def _ask_names(
    client: Client, api: str, qids: Sequence[int], language: Language
) -> dict[str, _Entity]:
    ids = {f"Q{qid}" for qid in qids}
    params = {
        "action": "wbgetentities",
        "props": "labels|aliases|sitelinks",
        "redirects": "yes",
        "format": "json",
    }
    params |= {
        "formatversion": "2",
        "languages": "|".join(language.codes),
        "sitefilter": language.site,
    }
    params["ids"] = "|".join(f"Q{qid}" for qid in qids)

    def check(answer: _Answer) -> None:
        about = {
            key
            for key, entity in answer.entities.items()
            if entity.redirects.get("from", entity.id) == key
        }
        if (
            wrong := ids ^ answer.entities.keys() | answer.entities.keys() - about
        ):  # keys are ids asked for
            raise Again(
                f"not about the ids asked for, such as {min(wrong)} and {len(wrong) - 1} more"
            )

    return client.ask_api(api, params, _Answer, "wikidata.api", check).entities
