"""Names of single Wikidata items from the entity API (`wbgetentities`): English label, aliases, Wikipedia article.

For what the query service gives only the numbers of, and for objects that an excerpt of a dump lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.sources import wikidata
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikimedia import Client
from pipelines.web import Again, shown

AT_MOST = 50  # ids in a request
BUSY = ("maxlag", "ratelimited", "readonly", "internal_api_error")  # starts of error codes that pass


def fetch_names(client: Client, api: str, qids: Iterable[int], rejects: Rejects) -> pa.Table:
    """The items `qids` (numbers, each once) that have an English name, as wikidata.NAMES, ordered by qid.

    What a redirect leads to counts for the id that was asked for. Counted in `rejects` as skipped: missing (deleted, or
    never there), redirect, no_english. Raises LongtailError naming the API when it refuses.
    """
    tables = [read_answer(body, api, rejects) for body in ask_names(client, api, qids)]
    return pa.concat_tables([wikidata.NAMES.empty_table(), *tables]).combine_chunks()


def ask_names(client: Client, api: str, qids: Iterable[int]) -> Iterator[bytes]:
    """The API's answers for `qids` in ascending order, AT_MOST a request, as it sent them."""
    asked = [f"Q{qid}" for qid in sorted(qids)]
    batches = [asked[start : start + AT_MOST] for start in range(0, len(asked), AT_MOST)]

    def ask(ids: list[str]) -> bytes:
        params = {
            "action": "wbgetentities",
            "ids": "|".join(ids),
            "props": "labels|aliases|sitelinks",
            "languages": "en|mul",
            "sitefilter": "enwiki",
            "redirects": "yes",
            "format": "json",
            "formatversion": "2",
        }
        body = client.ask(api, params, _check(set(ids), shown(api, params)))
        if body is None:
            raise LongtailError(f"{api}: the server answers 404, expected MediaWiki's api.php (wikidata.api)")
        return body

    return client.map(ask, batches, "entity names")


def read_answer(body: bytes, where: str, rejects: Rejects) -> pa.Table:
    """One answer's items as wikidata.NAMES, ordered by qid; see `fetch_names`. Raises msgspec.DecodeError."""
    lines = [_as_asked(bytes(entity)) for entity in msgspec.json.decode(body, type=_Answer).entities.values()]
    table, _, _ = wikidata.parse_block(where, [b"\n".join(lines)], (), rejects)
    return table.select(wikidata.NAMES.names).sort_by("qid")


class _Answer(msgspec.Struct):
    entities: dict[str, msgspec.Raw] = {}
    error: dict[str, msgspec.Raw] = {}


def _as_asked(entity: bytes) -> bytes:
    """The entity in a line, under the id that was asked for."""
    if b'"redirects"' in entity:
        parsed = msgspec.json.decode(entity)
        entity = msgspec.json.encode(parsed | {"id": parsed["redirects"]["from"]})
    return entity.replace(b"\n", b" ")


def _check(asked: set[str], where: str) -> Callable[[bytes], None]:
    def check(body: bytes) -> None:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Again(f"not the entity API's JSON ({error})") from None
        if answer.error:
            code, info = (msgspec.json.decode(answer.error.get(key, b'""')) for key in ("code", "info"))
            said = f"the API answers {code}: {info}"
            raise Again(said) if code.startswith(BUSY) else LongtailError(f"{where}: {said}")
        if lacking := asked - answer.entities.keys():  # its keys are the ids asked for, redirects' too
            raise Again(f"nothing about {min(lacking)} and {len(lacking) - 1} more of the ids asked for")

    return check
