"""Statements from Wikidata's query service (SPARQL) and names from its entity API, written as a small dump has them.

Statements are the truthy ones (`wdt:`: of the best rank, never deprecated). They are paged with Blazegraph's `bd:slice`
in the order of its index: ORDER BY would sort all statements of a relation for every page, and a FILTER on entity
numbers would read them all, beyond the 60 seconds that the service allows. An edit between two requests shifts later
positions, so pages overlap a little.
"""

import gzip
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.params import params
from pipelines.sources.wikimedia import AT_MOST, Client
from pipelines.work.web import BROKEN, Again, shown

OVERLAP = 0.02  # share of a page that the next page repeats
STATEMENTS = 50_000  # per request; halved when the service runs out of time
SMALLEST = 500  # statements; a page that takes too long is halved, but not below this
OUT_OF_TIME = (b"TimeoutException", b"upstream request timeout")  # from the service and from its proxy
ITEM = re.compile(r"https?://[^/]+/entity/Q([1-9][0-9]{0,17})")

# The service knows the prefixes.
COUNT = "SELECT (COUNT(*) AS ?n) WHERE {{ ?s wdt:{pid} ?o }}"
PAGE = """SELECT ?s ?o WHERE {{
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
    client: Client, path: Path, settings: params.Wikidata, pids: Sequence[str], language: Language = ENGLISH
) -> dict[str, int]:
    """Write a dump (.json.gz): the items in statements of relations `pids` whose subject has an article; return counts.

    The items have their names and articles in the language, and their statements. What is not between two items, as an
    unknown value, and items that are deleted are counted. An item that was merged into another has its names. A page
    that takes the service too long is halved. Raises LongtailError if even a small one does or the server refuses.
    """
    endpoint = settings.query_service
    totals = dict(zip(pids, client.map(lambda pid: _count(client, endpoint, pid), pids, "relations"), strict=True))
    if not any(totals.values()):
        raise LongtailError(f"{endpoint}: no statement of {', '.join(pids)} (wikidata.query_service)")
    ranges = [(pid, start, STATEMENTS) for pid in pids for start in range(0, totals[pid], STATEMENTS)]
    print(f"fetch: {sum(totals.values()):,} statements of {len(pids)} relations in {len(ranges):,} pages", flush=True)
    pages = client.map(lambda page: _read_page(client, endpoint, language.project, *page), ranges, "statements")
    rows = np.concatenate(list(pages))
    of_items = rows[rows.all(axis=1)]
    claims = np.unique(of_items, axis=0)  # subject, relation, object
    subjects, qids = np.ascontiguousarray(claims[:, 0]), np.unique(claims[:, [0, 2]]).tolist()
    print(f"fetch: {len(qids):,} entities to name, {AT_MOST} at once", flush=True)
    batches = [qids[start : start + AT_MOST] for start in range(0, len(qids), AT_MOST)]
    answers = client.map(lambda batch: _ask_names(client, settings.api, batch, language), batches, "entity names")
    written = 0
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:  # equal content is equal bytes
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
    return msgspec.json.encode(item | {"claims": statements, "sitelinks": entity.sitelinks}).replace(b"\n", b" ")


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
        raise LongtailError(f"{endpoint}: the server answers 404, expected a SPARQL endpoint (wikidata.query_service)")
    return rows(body)


def _count(client: Client, endpoint: str, pid: str) -> int:
    rows = _ask(client, endpoint, COUNT.format(pid=pid))
    if len(rows) != 1 or "n" not in rows[0] or not re.fullmatch("[0-9]{1,10}", rows[0]["n"].value):
        raise LongtailError(f"{endpoint}: can't count {pid}'s statements, expected a SPARQL 1.1 endpoint")
    return int(rows[0]["n"].value)


def _read_page(client: Client, endpoint: str, project: str, pid: str, offset: int, count: int) -> np.ndarray:
    """`count` statements from `offset` on, (rows, 3) int64: subject, relation, object; 0 for what is no item."""
    query = PAGE.format(project=project, pid=pid, offset=offset, limit=count + int(count * OVERLAP))
    try:
        rows = _ask(client, endpoint, query)
    except TooSlow:
        if count <= SMALLEST:
            raise
        client.keep(endpoint, {"query": query, "format": "json"}, OUT_OF_TIME[0])  # a restarted run halves it at once
        half = (count + 1) // 2
        halves = (offset, half), (offset + half, count - half)
        return np.concatenate([_read_page(client, endpoint, project, pid, *of) for of in halves])
    pairs = [[ITEM.fullmatch(row[name].value) if name in row else None for name in "so"] for row in rows]
    claims = [(int(s[1]) if s else 0, int(pid[1:]), int(o[1]) if o else 0) for s, o in pairs]
    return np.array(claims, np.int64).reshape(-1, 3)


def _ask_names(client: Client, api: str, qids: Sequence[int], language: Language) -> dict[str, _Entity]:
    ids = {f"Q{qid}" for qid in qids}
    params = {"action": "wbgetentities", "props": "labels|aliases|sitelinks", "redirects": "yes", "format": "json"}
    params |= {"formatversion": "2", "languages": "|".join(language.codes), "sitefilter": language.site}
    params["ids"] = "|".join(f"Q{qid}" for qid in qids)

    def check(answer: _Answer) -> None:
        about = {key for key, entity in answer.entities.items() if entity.redirects.get("from", entity.id) == key}
        if wrong := ids ^ answer.entities.keys() | answer.entities.keys() - about:  # keys are ids asked for
            raise Again(f"not about the ids asked for, such as {min(wrong)} and {len(wrong) - 1} more")

    return client.ask_api(api, params, _Answer, "wikidata.api", check).entities
