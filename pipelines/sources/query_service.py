"""Statements from Wikidata's query service (SPARQL) in place of a dump: writes them page by page, and reads the pages.

A relation has up to millions of statements. They are paged with Blazegraph's `bd:slice` in the order of its index (by
object, then subject), because only a page that begins at a position of the index is cheap for the service: ORDER BY
would sort all statements for every page, and a FILTER on entity numbers would read them all; both exceed the 60 seconds
that the service allows. An edit between two requests shifts later positions, so pages overlap a little, and duplicates
are removed later.

Statements are the truthy ones (`wdt:`: of the best rank, never deprecated). Names come from the entity API.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.params import params
from pipelines.sources import entity_api
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_lines, read_whole
from pipelines.sources.wikidata import CLAIMS, NAMES
from pipelines.sources.wikimedia import Client
from pipelines.work.web import BROKEN, Again, shown

OVERLAP = 0.02  # share of a page that the next page repeats
STATEMENTS = 50_000  # per request; halved when the service runs out of time
SMALLEST = 500  # statements; a page that takes too long is halved, but not below this
ANSWERS = 200  # of the entity API in a file
OUT_OF_TIME = (b"TimeoutException", b"upstream request timeout")  # from the service and from its proxy
UNKNOWN = "/.well-known/genid/"  # part of the IRI that stands for an unknown value
SPLIT = b""  # kept as the answer to a page that had to be halved

COUNT = """PREFIX wdt: <http://www.wikidata.org/prop/direct/>
SELECT (COUNT(*) AS ?n) WHERE {{ ?s wdt:{pid} ?o }}"""
PAGE = """PREFIX wdt: <http://www.wikidata.org/prop/direct/>
PREFIX schema: <http://schema.org/>
PREFIX bd: <http://www.bigdata.com/rdf#>
PREFIX hint: <http://www.bigdata.com/queryHints#>
SELECT ?s ?o WHERE {{
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


def write_statement_pages(
    client: Client, folder: Path, settings: params.Wikidata, pids: Sequence[str], language: Language = ENGLISH
) -> dict[str, str]:
    """Write the statements of relations `pids` whose subject has an article in the language, and all items' names.

    `folder` gets P106-000000000.srj.gz, ... (the service's answers as it sent them, by relation and first statement)
    and entities-000000000.jsonl.gz, ... (the entity API's answers, one a line). Returns file name -> server. The number
    of pages is printed first. A page that takes the service too long is halved. Raises LongtailError naming the page if
    even a small one takes too long or the server refuses.
    """
    endpoint, sources = settings.query_service, {}
    totals = dict(zip(pids, client.map(lambda pid: _count(client, endpoint, pid), pids, "relations"), strict=True))
    if not any(totals.values()):
        raise LongtailError(
            f"{endpoint}: no statement of {', '.join(pids)}, expected Wikidata (wikidata.query_service)"
        )
    ranges = [(pid, start, STATEMENTS) for pid in pids for start in range(0, totals[pid], STATEMENTS)]
    print(f"fetch: {sum(totals.values()):,} statements of {len(pids)} relations in {len(ranges):,} pages", flush=True)
    qids = [np.empty(0, np.int64)]
    for pages in client.map(lambda page: _pages(client, endpoint, language.project, *page), ranges, "statements"):
        for name, body in pages:
            _write(folder / name, body)
            sources[name] = endpoint
            claims = _read_claims(folder / name, Rejects(1.0))
            qids.append(np.union1d(claims["s"], claims["o"]))
    names = np.unique(np.concatenate(qids)).tolist()
    print(f"fetch: {len(names):,} entities to name, {entity_api.AT_MOST} at once", flush=True)
    answers = entity_api.ask_names(client, settings.api, names, language)
    for number in range(0, len(names), ANSWERS * entity_api.AT_MOST):
        name = f"entities-{number:09d}.jsonl.gz"
        _write(folder / name, b"".join(line.replace(b"\n", b" ") + b"\n" for line in islice(answers, ANSWERS)))
        sources[name] = settings.api
    return sources


def is_statement_page(path: Path) -> bool:
    """Whether a file of data/raw/wikidata is of `write_statement_pages`, by its name; otherwise it is a dump."""
    return path.name.endswith((".srj.gz", ".jsonl.gz"))


def read_statement_pages(
    paths: Sequence[Path], rejects: Rejects, language: Language = ENGLISH
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the entities (wikidata.NAMES) and the claims (wikidata.CLAIMS) of each file of `write_statement_pages`.

    A claim may come twice, an entity doesn't. `rejects` counts statements whose subject or object isn't an item, by
    reason. Raises LongtailError if a file is damaged.
    """
    for path in paths:
        if path.name.endswith(".jsonl.gz"):
            yield _read_names(path, rejects, language), CLAIMS.empty_table()
        else:
            yield NAMES.empty_table(), _read_claims(path, rejects)


def item_numbers(values: Sequence[str | None]) -> pa.Array:
    """The numbers in IRIs of items; null for anything else (unknown values, statements, properties, literals)."""
    matches = pc.extract_regex(pa.array(values, pa.string()), r"^https?://[^/]+/entity/Q(?P<number>[1-9][0-9]{0,17})$")
    return pc.cast(pc.struct_field(matches, "number"), pa.int64())


# The layout of results (SPARQL 1.1 Query Results JSON), as far as it is used.
class _Term(msgspec.Struct, gc=False):
    type: str
    value: str


class _Bindings(msgspec.Struct):
    bindings: list[dict[str, _Term]]  # variable -> value


class _Results(msgspec.Struct):
    results: _Bindings


_RESULTS = msgspec.json.Decoder(_Results)


def _ask(client: Client, endpoint: str, query: str) -> bytes:
    """The answer to a query. Raises TooSlow where the service runs out of time."""
    where = shown(endpoint, {"query": " ".join(query[query.index("SELECT") :].split())})

    def check(body: bytes) -> None:
        # Results that ran out of time begin like good ones, and end in a Java stack trace.
        try:
            _RESULTS.decode(body)
        except BROKEN as error:
            if any(sign in body for sign in OUT_OF_TIME):
                message = f"{where}: the query service ran out of time; try again when it is less busy, or use a dump"
                raise TooSlow(message) from None
            raise Again(f"not SPARQL results in JSON ({error})") from None

    body = client.ask(endpoint, {"query": query, "format": "json"}, check)
    if body is None:
        raise LongtailError(f"{endpoint}: the server answers 404, expected a SPARQL endpoint (wikidata.query_service)")
    if body == SPLIT:
        raise TooSlow(f"{where}: the query service ran out of time")
    return body


def _count(client: Client, endpoint: str, pid: str) -> int:
    rows = _RESULTS.decode(_ask(client, endpoint, COUNT.format(pid=pid))).results.bindings
    if len(rows) != 1 or "n" not in rows[0] or not re.fullmatch("[0-9]{1,10}", rows[0]["n"].value):
        raise LongtailError(f"{endpoint}: can't count {pid}'s statements, expected a SPARQL 1.1 endpoint")
    return int(rows[0]["n"].value)


def _pages(client: Client, endpoint: str, project: str, pid: str, offset: int, count: int) -> list[tuple[str, bytes]]:
    """(file name, answer) pairs with the `count` statements from `offset` on, halved as often as the service needs."""
    query = PAGE.format(project=project, pid=pid, offset=offset, limit=count + int(count * OVERLAP))
    try:
        return [(f"{pid}-{offset:09d}.srj.gz", _ask(client, endpoint, query))]
    except TooSlow:
        if count <= SMALLEST:
            raise
    client.keep(endpoint, {"query": query, "format": "json"}, SPLIT)  # so that a restarted run halves the page at once
    half = (count + 1) // 2
    first, second = (offset, half), (offset + half, count - half)
    return [page for part in (first, second) for page in _pages(client, endpoint, project, pid, *part)]


def _write(path: Path, body: bytes) -> None:
    path.write_bytes(gzip.compress(body, mtime=0))  # without the time, so that equal content is equal bytes


def _read_names(path: Path, rejects: Rejects, language: Language) -> pa.Table:
    try:
        tables = [entity_api.read_answer(line, str(path), rejects, language) for line in open_lines(path)]
    except BROKEN as error:
        raise LongtailError(f"{path}: not the entity API's JSON ({error}); fetch it again") from None
    return pa.concat_tables([NAMES.empty_table(), *tables])


def _read_claims(path: Path, rejects: Rejects) -> pa.Table:
    if not (relation := re.match(r"P(\d+)-", path.name)):
        raise LongtailError(f"{path}: its name has no relation, expected P<number>-<offset>.srj.gz; fetch it again")
    try:
        rows = _RESULTS.decode(read_whole(path, "a page of results")).results.bindings
    except BROKEN as error:
        raise LongtailError(f"{path}: not SPARQL results in JSON ({error}); fetch it again") from None
    rejects.read += len(rows)
    subjects, objects = [], []
    for number, row in enumerate(rows, start=1):
        if "s" in row and "o" in row:
            subjects.append(row["s"].value)
            objects.append(UNKNOWN if row["o"].type == "bnode" else row["o"].value)
        else:
            rejects.add(path, number, "unexpected_layout", "no ?s or no ?o")
    property_ = pa.repeat(int(relation[1]), len(subjects))
    claims = pa.table([item_numbers(subjects), property_, item_numbers(objects)], schema=CLAIMS)
    unknown = sum(UNKNOWN in value for value in objects)
    skipped = {
        "subject_not_an_item": claims["s"].null_count,
        "somevalue_statement": unknown,
        "not_an_item_statement": claims["o"].null_count - unknown,
    }
    rejects.skipped.update({reason: count for reason, count in skipped.items() if count})
    return claims.drop_null()
