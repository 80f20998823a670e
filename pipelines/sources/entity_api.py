"""Names of single Wikidata items from the entity API (`wbgetentities`): label, aliases, Wikipedia article.

They complete the query service's pages, which have only ids, and an excerpt of a dump, which lacks some objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.sources import wikidata
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikimedia import Client, api_answer
from pipelines.work.web import Again

AT_MOST = 50  # ids in a request


def fetch_names(
    client: Client, api: str, qids: Iterable[int], rejects: Rejects, language: Language = ENGLISH
) -> pa.Table:
    """The items `qids` (numbers, each once) that have a name in the language, as wikidata.NAMES, ordered by qid.

    If an id redirects to an item, that item's names are returned under the id asked for. `rejects` counts as skipped:
    missing (deleted or never existed), redirect, no name (`language.nameless`). Raises LongtailError naming the API if
    it refuses.
    """
    tables = [read_answer(body, api, rejects, language) for body in ask_names(client, api, qids, language)]
    return pa.concat_tables([wikidata.NAMES.empty_table(), *tables]).combine_chunks()


def ask_names(client: Client, api: str, qids: Iterable[int], language: Language = ENGLISH) -> Iterator[bytes]:
    """Yield the API's answers as it sent them, for `qids` in ascending order, AT_MOST in each."""
    ordered = [f"Q{qid}" for qid in sorted(qids)]
    batches = [ordered[start : start + AT_MOST] for start in range(0, len(ordered), AT_MOST)]

    def ask(ids: list[str]) -> bytes:
        params = {
            "action": "wbgetentities",
            "ids": "|".join(ids),
            "props": "labels|aliases|sitelinks",
            "languages": "|".join(language.codes),
            "sitefilter": language.site,
            "redirects": "yes",
            "format": "json",
            "formatversion": "2",
        }

        def check(body: bytes) -> None:
            entities = api_answer(body, _Identified, api, params).entities
            about = {key for key, entity in entities.items() if entity.redirects.get("from", entity.id) == key}
            if (
                wrong := set(ids) ^ entities.keys() | entities.keys() - about
            ):  # keys are ids asked for, also of redirects
                raise Again(f"not about the ids asked for, such as {min(wrong)} and {len(wrong) - 1} more")

        body = client.ask(api, params, check)
        if body is None:
            raise LongtailError(f"{api}: the server answers 404, expected MediaWiki's api.php (wikidata.api)")
        return body

    return client.map(ask, batches, "entity names")


def read_answer(body: bytes, where: str, rejects: Rejects, language: Language = ENGLISH) -> pa.Table:
    """One answer's items as wikidata.NAMES, ordered by qid, see `fetch_names`. Raises msgspec.DecodeError."""
    lines = [_under_asked_id(bytes(entity)) for entity in msgspec.json.decode(body, type=_Answer).entities.values()]
    table, _, _ = wikidata.parse_block(where, [b"\n".join(lines)], (), rejects, language)
    return table.select(wikidata.NAMES.names).sort_by("qid")


class _Answer(msgspec.Struct):
    entities: dict[str, msgspec.Raw] = {}


class _Entity(msgspec.Struct):
    id: str
    redirects: dict[str, str] = {}


class _Identified(msgspec.Struct):
    entities: dict[str, _Entity] = {}


def _under_asked_id(entity: bytes) -> bytes:
    """The entity in one line, with the id that was asked for."""
    if b'"redirects"' in entity:
        parsed = msgspec.json.decode(entity)
        entity = msgspec.json.encode(parsed | {"id": parsed["redirects"]["from"]})
    return entity.replace(b"\n", b" ")
