"""Statements of single relations from Wikidata's query service, where a whole dump is not needed.

Truthy statements (`wdt:`: of the best rank, never deprecated) come from the query service, and
names from Wikidata's entity API. Statements are paged with Blazegraph's `bd:slice` in the order of
its index: ORDER BY or a FILTER would take longer than the 60 seconds that the service allows. Pages
overlap a little, as an edit shifts later positions.
"""

import gzip
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from pipelines.errors import BROKEN_JSON, LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.params import params
from pipelines.sources.wikimedia_client import IDS_PER_REQUEST, Client
from pipelines.work.http import Again, shown

STATEMENTS_PER_PAGE = 50_000  # a page is halved when the service runs out of time
SMALLEST_PAGE = 500  # statements; a page that takes too long is not halved below this
OVERLAP = 0.02  # share of a page that the next page repeats
OUT_OF_TIME = (  # answers of the service and of its proxy
    b"TimeoutException",
    b"upstream request timeout",
)
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


class TooSlow(LongtailError):
    """The service ran out of time; a smaller page may succeed."""


# The layouts of results (SPARQL 1.1 Query Results JSON) and of the entity API's answers, as far as
# they are used.
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


@dataclass(frozen=True)
class _Page:
    """A part of the statements of a relation, in the order of the service's index."""

    pid: str
    offset: int
    statements: int


def write_statements(
    client: Client,
    path: Path,
    wikidata: params.Wikidata,
    pids: Sequence[str],
    language: Language = ENGLISH,
) -> dict[str, int]:
    """Write a dump (.json.gz): the items in statements of relations `pids` whose subject has an
    article; return counts.

    The items have their names and articles in the language, and their statements. Values that are
    no items, as an unknown value, and items that are deleted are counted. An item that was merged
    into another has its names. A page that takes the service too long is halved. Raises
    LongtailError if even a small one does or the server refuses.
    """
    rows = _ask_statements(client, wikidata.query_service, pids, language)
    rows_of_items = rows[rows.all(axis=1)]
    claims = np.unique(rows_of_items, axis=0)

    qids = np.unique(claims[:, [0, 2]]).tolist()
    entities = _ask_entities(client, wikidata.api, qids, language)
    written = _write_dump(path, entities, claims)
    return {
        "statements": len(claims),
        "statements_not_of_items": len(rows) - len(rows_of_items),
        "items_missing": len(qids) - written,
    }


def _ask_statements(
    client: Client, endpoint: str, pids: Sequence[str], language: Language
) -> np.ndarray:
    """All statements of relations `pids`, as `_read_page` has them."""

    count = partial(_count, client, endpoint)
    read = partial(_read_page, client, endpoint, language.project)
    totals = list(client.map(count, pids, "relations"))
    if not any(totals):
        raise LongtailError(
            f"{endpoint}: no statement of {', '.join(pids)} (wikidata.query_service)"
        )

    pages = []
    for pid, total in zip(pids, totals, strict=True):
        for offset in range(0, total, STATEMENTS_PER_PAGE):
            pages.append(_Page(pid, offset, STATEMENTS_PER_PAGE))

    print(f"fetch: {sum(totals):,} statements of {len(pids)} relations in {len(pages):,} pages")
    return np.concatenate(list(client.map(read, pages, "statements")))


def _count(client: Client, endpoint: str, pid: str) -> int:
    rows = _ask(client, endpoint, COUNT.format(pid=pid))
    if len(rows) == 1 and "n" in rows[0]:
        number = rows[0]["n"].value
        if re.fullmatch("[0-9]{1,10}", number):
            return int(number)
    raise LongtailError(
        f"{endpoint}: can't count {pid}'s statements, expected a SPARQL 1.1 endpoint"
    )


def _read_page(client: Client, endpoint: str, project: str, page: _Page) -> np.ndarray:
    """A page's statements, (rows, 3) int64: subject, relation, object; 0 for what is no item."""
    limit = page.statements + int(page.statements * OVERLAP)
    query = STATEMENTS_PAGE.format(project=project, pid=page.pid, offset=page.offset, limit=limit)
    try:
        rows = _ask(client, endpoint, query)
    except TooSlow:
        if page.statements <= SMALLEST_PAGE:
            raise
        # A restarted run finds this answer, and halves the page at once.
        client.keep(endpoint, _request(query), OUT_OF_TIME[0])
        half = (page.statements + 1) // 2
        halves = [
            _Page(page.pid, page.offset, half),
            _Page(page.pid, page.offset + half, page.statements - half),
        ]
        return np.concatenate([_read_page(client, endpoint, project, part) for part in halves])

    relation = int(page.pid[1:])
    claims = [(_item_number(row, "s"), relation, _item_number(row, "o")) for row in rows]
    return np.array(claims, np.int64).reshape(-1, 3)


def _item_number(row: dict[str, _Term], variable: str) -> int:
    """The number of an item, 42 for Q42, and 0 for what is no item."""
    if variable not in row:
        return 0
    match = ITEM.fullmatch(row[variable].value)
    return int(match[1]) if match else 0


def _request(query: str) -> dict[str, str]:
    return {"query": query, "format": "json"}


def _ask(client: Client, endpoint: str, query: str) -> list[dict[str, _Term]]:
    """The rows of the answer to a query. Raises TooSlow where the service runs out of time."""
    rows = client.ask(endpoint, _request(query), partial(_rows, endpoint, query))
    if rows is None:
        raise LongtailError(
            f"{endpoint}: the server answers 404, expected a SPARQL endpoint "
            "(wikidata.query_service)"
        )
    return rows


def _rows(endpoint: str, query: str, body: bytes) -> list[dict[str, _Term]]:
    """The rows of an answer."""
    try:
        return msgspec.json.decode(body, type=_Results).results.bindings
    except BROKEN_JSON as error:
        # results that ran out of time begin like good ones, and end in a Java stack trace
        if any(sign in body for sign in OUT_OF_TIME):
            select = query[query.index("SELECT") :]
            address = shown(endpoint, {"query": " ".join(select.split())})
            raise TooSlow(
                f"{address}: the query service ran out of time; "
                "try again when it is less busy, or use a dump"
            ) from None
        raise Again(f"not SPARQL results in JSON ({error})") from None


def _ask_entities(
    client: Client, api: str, qids: Sequence[int], language: Language
) -> Iterator[tuple[int, _Entity]]:
    """Yield (number, entity) of the items, in their order."""
    print(f"fetch: {len(qids):,} entities to name, {IDS_PER_REQUEST} at once")
    batches = []
    for start in range(0, len(qids), IDS_PER_REQUEST):
        batches.append(qids[start : start + IDS_PER_REQUEST])

    answers = client.map(partial(_ask_batch, client, api, language), batches, "entity names")
    for batch, entities in zip(batches, answers, strict=True):
        for qid in batch:
            yield qid, entities[f"Q{qid}"]


def _ask_batch(
    client: Client, api: str, language: Language, qids: Sequence[int]
) -> dict[str, _Entity]:
    """Id, as Q42 -> entity. Raises Again where the answer is about other ids."""
    ids = [f"Q{qid}" for qid in qids]
    request = {
        "action": "wbgetentities",
        "props": "labels|aliases|sitelinks",
        "redirects": "yes",
        "format": "json",
        "formatversion": "2",
        "languages": "|".join(language.codes),
        "sitefilter": language.site,
        "ids": "|".join(ids),
    }

    def check(answer: _Answer) -> None:
        wrong = answer.entities.keys() ^ set(ids)
        for key, entity in answer.entities.items():  # keys are the ids asked for
            if entity.redirects.get("from", entity.id) != key:
                wrong.add(key)
        if wrong:
            raise Again(
                f"not about the ids asked for, such as {min(wrong)} and {len(wrong) - 1} more"
            )

    return client.ask_api(api, request, _Answer, "wikidata.api", check).entities


def _write_dump(path: Path, entities: Iterable[tuple[int, _Entity]], claims: np.ndarray) -> int:
    """Write the items that are not missing; return their number. `claims` are sorted by subject."""
    subjects = np.ascontiguousarray(claims[:, 0])
    written = 0
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        # without a name and a time, equal content is equal bytes
        for qid, entity in entities:
            if entity.missing:
                continue
            first, last = np.searchsorted(subjects, [qid, qid + 1])
            packed.write(b",\n" if written else b"[\n")
            packed.write(_line(qid, entity, claims[first:last]))
            written += 1
        packed.write(b"\n]\n" if written else b"[\n]\n")
    return written


def _line(qid: int, entity: _Entity, claims: np.ndarray) -> bytes:
    """An item as a line of a dump has it, with keys in a dump's order."""
    statements: dict[str, list] = {}

    for _, relation, number in claims.tolist():
        pid = f"P{relation}"
        value = {"entity-type": "item", "numeric-id": number, "id": f"Q{number}"}
        snak = {"snaktype": "value", "property": pid, "datavalue": {"value": value}}
        statements.setdefault(pid, []).append({"mainsnak": snak, "rank": "normal"})

    item = {
        "type": "item",
        "id": f"Q{qid}",
        "labels": entity.labels,
        "aliases": entity.aliases,
        "claims": statements,
        "sitelinks": entity.sitelinks,
    }
    return msgspec.json.encode(item).replace(b"\n", b" ")
