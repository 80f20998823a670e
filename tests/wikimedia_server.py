"""A real HTTP server on loopback that plays Wikimedia: pages, dumps, queries, and faults that a
test asks for.
"""

import hashlib
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, quote, urlsplit
from xml.sax.saxutils import escape

from http_faults import Fault, Handler, Server, reply, serving

Page = bytes | Callable[[dict[str, str]], bytes | None]


class Wikimedia(Server):
    """`pages` maps a path to a body, or to a function of the query's params (None from it: 404).

    `requests` are (path, params). With a `version`, files have it as their ETag, and are sent from
    a byte on.
    """

    def reset(self) -> None:
        super().reset()
        self.pages: dict[str, Page] = {}
        self.version: str | None = None
        self.ranges: list[tuple[str, str | None]] = []  # (method, Range) of the requests
        self.agents: set[str] = set()

    def asked(self, path: str) -> list[dict[str, str]]:
        """The params of all requests for `path`, in the order they came."""
        return [params for one, params in self.requests if one == path]


class _Handler(Handler):
    server: Wikimedia

    def do_GET(self) -> None:
        server, parts = self.server, urlsplit(self.path)
        params = dict(parse_qsl(parts.query, keep_blank_values=True))
        server.ranges.append((self.command, self.headers["Range"]))
        server.agents.add(self.headers["User-Agent"])
        fault = server.begin(parts.path, (parts.path, params))
        page = server.pages.get(parts.path)
        body = page(params) if callable(page) else page
        headers = {"ETag": server.version} if server.version else {}
        with server.lock:
            server.now -= 1
            server.answered[f"{self.command} {self.path} {self.headers['Range']}"] += (
                fault == Fault()
            )
        if fault.body is not None:
            body = fault.body
        elif body is None:
            fault = replace(fault, status=404)
        elif (
            server.version and self.headers["Range"] and self.headers["If-Range"] == server.version
        ):
            begin, size = int(self.headers["Range"].removeprefix("bytes=").rstrip("-")), len(body)
            fault = replace(fault, status=206 if fault.status == 200 else fault.status)
            body = body[begin:]
            headers["Content-Range"] = f"bytes {begin}-{size - 1}/{size}"
        reply(self, body or b"", fault, headers)

    do_HEAD = do_GET


def running() -> AbstractContextManager[Wikimedia]:
    return serving(Wikimedia(_Handler))


class Dumps:
    """dumps.wikimedia.org in a server's `pages`: folders by date, listings, checksums, page
    views.
    """

    def __init__(self, server: Wikimedia) -> None:
        self.server, self.folders = server, defaultdict(set)

    def entities(self, day: str, body: bytes, whole: bool = True) -> None:
        """Wikidata's entities of a day; the list of checksums names the file once it is whole."""
        base, name = f"/wikidatawiki/entities/{day}", f"wikidata-{day}-all.json.gz"
        self._list("/wikidatawiki/entities", day)
        self.server.pages[f"{base}/{name}"] = body
        other = f"{'0' * 40}  wikidata-{day}-lexemes.json.gz"
        sums = f"{hashlib.sha1(body).hexdigest()}  {name}" if whole else other
        self.server.pages[f"{base}/wikidata-{day}-sha1sums.txt"] = f"{sums}\n".encode()

    def wiki(self, day: str, bodies: dict[str, bytes], whole: bool = True) -> None:
        """A run of enwiki: the files enwiki-DAY-NAME; the list of checksums names them once
        they are whole.
        """
        files = {f"enwiki-{day}-{name}": body for name, body in bodies.items()}
        self._list("/enwiki", day)
        sums = "".join(
            f"{hashlib.sha1(body).hexdigest()}  {name}\n" for name, body in files.items() if whole
        )
        self.server.pages[f"/enwiki/{day}/enwiki-{day}-sha1sums.txt"] = sums.encode()
        self.server.pages |= {f"/enwiki/{day}/{name}": body for name, body in files.items()}

    def views(self, month: str, body: bytes) -> None:
        folder = f"/other/pageview_complete/monthly/{month[:4]}/{month}"
        self.server.pages[f"{folder}/pageviews-{month.replace('-', '')}-user.bz2"] = body

    def drop(self, base: str, day: str) -> None:
        """Remove a dump, as the servers do after some weeks."""
        self.folders[base].discard(day)
        for path in [path for path in self.server.pages if path.startswith(f"{base}/{day}/")]:
            del self.server.pages[path]

    def addresses(self, month: str) -> dict[str, list[str]]:
        """fetch.files for the last dumps by the end of a month, and its page views."""
        at = self.server.address
        views = f"{month[:4]}/{month}/pageviews-{month.replace('-', '')}-user.bz2"
        return {
            "wikidata": [f"{at}/wikidatawiki/entities/latest-all.json.gz"],
            "wikipedia": [f"{at}/enwiki/latest/enwiki-latest-pages-articles.xml.bz2"],
            "pageviews": [f"{at}/other/pageview_complete/monthly/{views}"],
        }

    def _list(self, base: str, day: str) -> None:
        self.folders[base].add(day)
        line = '<a href="{0}/">{0}/</a>    21-Sep-2026 04:10    -\n'
        self.server.pages[f"{base}/"] = lambda _: "".join(
            [
                "<html><h1>Index</h1><pre>",
                *map(line.format, ["..", *sorted(self.folders[base]), "latest"]),
            ]
        ).encode()


ENTITY = "http://www.wikidata.org/entity/"
TRACE = b"""SPARQL-QUERY: queryStr=SELECT ?s ?o WHERE { ... }
java.util.concurrent.TimeoutException
\tat java.util.concurrent.FutureTask.get(FutureTask.java:205)
\tat com.bigdata.rdf.sail.webapp.BigdataServlet.submitApiTask(BigdataServlet.java:292)
"""


@dataclass
class Wikidata:
    """The query service and the entity API over a few statements; its methods go into `pages`."""

    # property -> (subject, object) in the index's order: "Q1" or a whole IRI
    statements: dict[str, list[tuple[str, str]]]
    articles: dict[str, str]  # item -> title of the English Wikipedia article
    # item -> what its JSON has; else "Label of Q1"
    labels: dict[str, dict] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    in_time: int = 10**9  # a page of more statements than this runs out of time

    def sparql(self, params: dict[str, str]) -> bytes:
        query = params["query"]
        rows = self.statements.get(re.search(r"wdt:(P\d+)", query)[1], [])
        if "COUNT" in query:
            return _results(["n"], [{"n": {"type": "literal", "value": str(len(rows))}}])
        offset, limit = (
            int(re.search(rf"slice\.{name} (\d+)", query)[1]) for name in ("offset", "limit")
        )
        rows = rows[offset : offset + limit]
        chosen = [(s, o) for s, o in rows if s in self.articles]
        body = _results(["s", "o"], [{"s": _term(s), "o": _term(o)} for s, o in chosen])
        return body if len(rows) <= self.in_time else body[: len(body) // 2] + TRACE

    def api(self, params: dict[str, str]) -> bytes:
        return json.dumps(
            {"entities": {qid: self._entity(qid) for qid in params["ids"].split("|")}}
        ).encode()

    def _entity(self, qid: str) -> dict:
        if qid in self.missing:
            return {"id": qid, "missing": True}
        target = self.redirects.get(qid, qid)
        entity = {
            "type": "item",
            "id": target,
            "labels": {"en": {"language": "en", "value": f"Label of {target}"}},
        }
        entity |= {"aliases": {}, "sitelinks": {}} | self.labels.get(target, {})
        if target in self.articles:
            entity["sitelinks"] = {
                "enwiki": {"site": "enwiki", "title": self.articles[target], "badges": []}
            }
        return entity | ({"redirects": {"from": qid, "to": target}} if target != qid else {})


def _results(names: list[str], rows: list[dict]) -> bytes:
    return json.dumps({"head": {"vars": names}, "results": {"bindings": rows}}, indent=1).encode()


def _term(value: str) -> dict[str, str]:
    if value.startswith("_:"):
        return {"type": "bnode", "value": value[2:]}
    if value.startswith('"'):
        return {"type": "literal", "value": value[1:-1]}
    return {"type": "uri", "value": value if value.startswith("http") else ENTITY + value}


NAMESPACES = {"Talk": 1, "Wikipedia": 4, "Category": 14}
INVALID = re.compile(r"[\[\]{}<>|#]|^$")
SITE = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <generator>MediaWiki 1.45.0-wmf.7</generator>
  </siteinfo>
"""


@dataclass
class Wikipedia:
    """MediaWiki's API (formatversion 2) over a few pages; its method `api` goes into `pages`."""

    texts: dict[str, str]  # title -> wikitext
    redirects: dict[str, str] = field(default_factory=dict)  # title -> title
    items: dict[str, str] = field(default_factory=dict)  # title -> its Wikidata item
    listed: int = 500  # titles in an answer, at most
    ids: dict[str, int] = field(default_factory=dict)

    def api(self, params: dict[str, str]) -> bytes:
        expected = ["query", "json", "2"]
        assert [params[name] for name in ("action", "format", "formatversion")] == expected
        self.ids = {
            title: 1000 + place for place, title in enumerate([*self.texts, *self.redirects])
        }
        answer = self._list(params) if params.get("list") == "allpages" else self._query(params)
        return json.dumps({"batchcomplete": True} | answer, ensure_ascii=False).encode()

    def _list(self, params: dict[str, str]) -> dict:
        keys = sorted((_key(title) for title in self.ids if not _namespace(title)), key=str)
        if params["apfilterredir"] == "nonredirects":
            keys = [key for key in keys if key.replace("_", " ") not in self.redirects]
        prefix = _key(_normal(params.get("apprefix", "")))
        start = _key(_normal(params.get("apfrom", "")))
        start = params.get("apcontinue", start)
        keys = [key for key in keys if key.startswith(prefix) and key >= start]
        limit = min(int(params["aplimit"]), self.listed)
        titles = [key.replace("_", " ") for key in keys[:limit]]
        listed = [{"pageid": self.ids[title], "ns": 0, "title": title} for title in titles]
        more = (
            {"continue": {"apcontinue": keys[limit], "continue": "-||"}}
            if len(keys) > limit
            else {}
        )
        return more | {"query": {"allpages": listed}}

    def _query(self, params: dict[str, str]) -> dict:
        query: dict[str, list | str] = {
            "normalized": [],
            "interwiki": [],
            "redirects": [],
            "pages": [],
        }
        titles, answer = params["titles"].split("|"), {"query": query}
        assert len(titles) <= 50, "MediaWiki answers fifty, with a warning"
        good = []
        for title in titles:
            if INVALID.search(title):
                reason = f'The requested page title contains invalid characters: "{title[:1]}".'
                query["pages"].append({"title": title, "invalidreason": reason, "invalid": True})
                continue
            if (normal := _normal(title)) != title:
                encoded = unicodedata.normalize("NFC", title) != title
                begun = quote(title.replace(" ", "_"), safe="") if encoded else title
                query["normalized"].append({"fromencoded": encoded, "from": begun, "to": normal})
            if normal.startswith("Fr:"):
                query["interwiki"].append({"title": title, "iw": "fr"})
                continue
            passed = {normal}
            while params.get("redirects") and normal in self.redirects:
                query["redirects"].append({"from": normal, "to": self.redirects[normal]})
                normal = self.redirects[normal]
                if normal in passed:
                    break
                passed.add(normal)
            if normal not in self.ids:
                query["pages"].append({"ns": _namespace(normal), "title": normal, "missing": True})
            elif normal not in good:
                good.append(normal)
        for title in good:
            page = {"pageid": self.ids[title], "ns": _namespace(title), "title": title}
            wanted = params.get("ppprop") == "wikibase_item" and title in self.items
            query["pages"].append(
                page | ({"pageprops": {"wikibase_item": self.items[title]}} if wanted else {})
            )
        query["pages"].sort(key=lambda page: (page.get("pageid", -1), page["title"]))
        if params.get("export"):
            query["export"] = SITE + "".join(map(self._export, good)) + "</mediawiki>\n"
        answer["query"] = {name: value for name, value in query.items() if value}
        return answer

    def _export(self, title: str) -> str:
        target = self.redirects.get(title)
        text = f"#REDIRECT [[{target}]]" if target else self.texts[title]
        redirect = f'    <redirect title="{escape(target)}" />\n' if target else ""
        return f"""  <page>
    <title>{escape(title)}</title>
    <ns>{_namespace(title)}</ns>
    <id>{self.ids[title]}</id>
{redirect}    <revision>
      <id>{100_000 + self.ids[title]}</id>
      <timestamp>2026-10-01T12:00:00Z</timestamp>
      <contributor><username>Someone</username><id>7</id></contributor>
      <comment>/* Life */ see &lt;page&gt;</comment>
      <model>wikitext</model>
      <text bytes="{len(text.encode())}" sha1="x" xml:space="preserve">{escape(text)}</text>
      <sha1>x</sha1>
    </revision>
  </page>
"""


def _normal(title: str) -> str:
    title = unicodedata.normalize("NFC", title.replace("_", " "))
    return title[:1].upper() + title[1:]


def _key(title: str) -> str:
    return title.replace(" ", "_")


def _namespace(title: str) -> int:
    return NAMESPACES.get(title.partition(":")[0], 0)
