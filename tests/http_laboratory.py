"""Every HTTP client with the servers it asks, played on loopback, and a clock that no test waits
for."""

import bz2
import gzip
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import completions_server
import numpy as np
import pyarrow as pa
import pytest
import tiny_models
import urllib3.util.connection
import wikimedia_server
from requests.adapters import HTTPAdapter
from wikimedia_server import Dumps, Wikidata, Wikipedia

from pipelines.lm import http_client
from pipelines.lm.http_model import HttpModel
from pipelines.lm.language_model import Prompt, all_answered
from pipelines.params import params
from pipelines.sources import (
    download,
    mediawiki_pages,
    pageviews_api,
    query_service,
    snapshots,
    wikimedia_client,
)
from pipelines.work import http

ATTEMPTS = 2
FILE = "enwiki-20181220-pages-articles.xml.bz2"
DATA = bz2.compress(b"<mediawiki>" + np.random.default_rng(0).bytes(100_000))
TITLES = [f"Page {n}" for n in range(5)]
VIEWS = (
    "/metrics/pageviews/per-article/en.wikipedia/all-access/user/{}/monthly/2021100100/2021103100"
)
PROMPTS = [Prompt(text) for text in dict.fromkeys(tiny_models.words(6, 5, at_most=12))]
CONTINUATIONS = [f" {text}" for text in tiny_models.words(len(PROMPTS), 6, at_most=10)]


@dataclass
class Laboratory:
    """The played servers, and what a fault does besides answering."""

    wikimedia: wikimedia_server.Wikimedia
    completions: completions_server.Completions
    tiny: Path
    scheme: str = "http"
    now: float = 0.0  # of the client's clock, which no test waits for
    refusing: int = 0  # so many connections are refused
    right: dict = field(default_factory=dict)  # the rows without a fault, by client and scheme
    # a client has looked at its clock
    looked: threading.Event = field(default_factory=threading.Event)

    def address(self, server: str = "wikimedia") -> str:
        url = self.wikimedia.address if server == "wikimedia" else self.completions.url
        return url.replace("http", self.scheme, 1)

    def clock(self) -> float:
        self.looked.set()
        return self.now

    def drip(self) -> None:
        self.looked.wait(1)
        self.looked.clear()
        self.now += http.DEADLINE / 4


# The clients: each asks for its rows, and keeps its answers in a folder


def opened(folder: Path):
    return wikimedia_client.open_client("someone@example.org", folder / "kept")


def statements(lab: Laboratory, folder: Path) -> object:
    at = {"query_service": f"{lab.address()}/sparql", "api": f"{lab.address()}/w/api.php"}
    settings = params.Wikidata(source="query_service", **at)
    few = mock.patch.object(query_service, "STATEMENTS_PER_PAGE", 3)
    with opened(folder) as client, few:
        counts = query_service.write_statements(client, folder / "dump.json.gz", settings, ["P106"])
        return counts, gzip.decompress((folder / "dump.json.gz").read_bytes())


def views(lab: Laboratory, folder: Path) -> object:
    settings = params.Popularity(
        source="api", api=lab.address(), redirects_api="", month="2021-10", agents="user"
    )
    with opened(folder) as client:
        batches = pageviews_api.ask_views(client, pa.chunked_array([["A", "B", "C"]]), settings)
        return [row for batch in batches for row in batch.to_pylist()]


def redirects(lab: Laboratory, folder: Path) -> object:
    with opened(folder) as client:
        tables = pageviews_api.ask_redirects(
            client, pa.chunked_array([TITLES]), f"{lab.address()}/redirects"
        )
        return [row for table in tables for row in table.to_pylist()]


def pages(lab: Laboratory, folder: Path, **more) -> object:
    published, *written = (
        folder / name for name in ("popQA.tsv", "pages.xml.bz2", "asked.tsv", "rejects.parquet")
    )
    rows = (
        f"http://www.wikidata.org/entity/Q{n}\t{title}\n" for n, title in enumerate(TITLES, start=1)
    )
    published.write_text("s_uri\ts_wiki_title\n" + "".join(rows), encoding="utf-8")
    settings = params.Pages(
        api=f"{lab.address()}/api", max_subjects=None, **{"namesakes": False, "others": 0} | more
    )
    with opened(folder) as client:
        mediawiki_pages.write_api_pages(client, settings, 0, published, *written)
    return [path.read_bytes() for path in written]


def files(lab: Laboratory, folder: Path) -> object:
    with opened(folder) as client:
        (path,) = download.download([f"{lab.address()}/{FILE}"], folder / "downloads", client)
        return path.read_bytes()


def latest(lab: Laboratory, folder: Path) -> object:
    asked = f"{lab.address()}/enwiki/latest/{FILE.replace('20181220', 'latest')}"
    with opened(folder) as client:
        return snapshots.resolve([asked], "2018-12", 31, folder / "pins", client)


def there(lab: Laboratory, folder: Path) -> object:
    with opened(folder) as client:
        return snapshots.check_there([f"{lab.address()}/{FILE}"], "2018-12", 31, client) or "there"


def model(lab: Laboratory, folder: Path, tokenizer: bool = True, chat: bool = False) -> HttpModel:
    served, tokenizer_folder = lab.address("completions"), lab.tiny if tokenizer else None
    chosen = completions_server.settings(served, tokenizer_folder, chat=chat, concurrency=1)
    return HttpModel(lab.tiny, chosen, None, folder / "completions")


def chat_model(lab: Laboratory, folder: Path) -> HttpModel:
    return model(lab, folder, tokenizer=False, chat=True)


def scores(lab: Laboratory, folder: Path) -> object:
    return [row.tolist() for row in model(lab, folder).score(PROMPTS, CONTINUATIONS).log_probs]


def choices(lab: Laboratory, folder: Path) -> object:
    lm, weights = model(lab, folder), np.log([[0.4, 0.6]] * (len(PROMPTS) // 2))
    log_probs = lm.choose(PROMPTS, lm._tokenizer.texts_of_ids(400))
    shown = np.round(log_probs[np.isfinite(log_probs)], 4).tolist()
    return shown, [made.text for made in lm.generate_mixture(PROMPTS, weights, 2)]


def answers(lab: Laboratory, folder: Path, made_by: Callable = model) -> object:
    generations = all_answered(made_by(lab, folder).generate(PROMPTS, 3))
    return [(made.text, made.mean_log_prob) for made in generations]


@dataclass(frozen=True)
class Client:
    ask: Callable[[Laboratory, Path], object]
    at: str = ""  # part of the path of the requests that the fault hits
    skipped: int = 1  # requests that are answered before the first fault
    opened_with: Callable[[Laboratory, Path], object] | None = (
        None  # what comes before, without a fault
    )
    server: str = "wikimedia"
    keeps: bool = True  # whether it keeps each answer


CLIENTS = {
    "query service": Client(statements, "/sparql"),
    "entity API": Client(statements, "/w/api.php"),
    "page views": Client(views),
    "redirects": Client(redirects, "/redirects"),
    "pages": Client(pages),
    "listings": Client(partial(pages, namesakes=True, others=2)),
    "sizes": Client(files, FILE, 0, keeps=False),
    "download": Client(files, FILE, keeps=False),
    "checksums": Client(files, "sha1sums", 0, keeps=False),
    "dump listing": Client(latest, "/enwiki/", 0, keeps=False),
    "there": Client(there, skipped=0, keeps=False),
    "scores": Client(scores, opened_with=model, server="completions"),
    "answers": Client(answers, opened_with=model, server="completions"),
    "choices": Client(choices, opened_with=model, server="completions"),
    "chat": Client(
        partial(answers, made_by=chat_model), opened_with=chat_model, server="completions"
    ),
}


class Unencrypted(HTTPAdapter):
    """Sends what goes to https:// without encryption, so that a played server can answer it."""

    def send(self, request, **options):
        asked = request.url
        request.url = asked.replace("https:", "http:", 1)
        answer = super().send(request, **options)
        answer.url = request.url = asked
        return answer


@contextmanager
def laboratory(folder: Path) -> Iterator[Laboratory]:
    """The servers, and clients that don't wait, try twice, and give up soon."""
    connect = urllib3.util.connection.create_connection
    with (
        pytest.MonkeyPatch.context() as patch,
        wikimedia_server.running() as wiki,
        completions_server.running(tiny_models.language_model(folder / "tiny")) as lms,
    ):
        lab = Laboratory(wiki, lms, folder / "tiny")

        def pause(self: http.Client, seconds: float) -> None:
            lab.now += seconds

        def refusing(address: tuple[str, int], *rest, **options):
            lab.refusing -= (refused := lab.refusing > 0)
            return connect(("127.0.0.1", 1) if refused else address, *rest, **options)

        patch.setattr(urllib3.util.connection, "create_connection", refusing)
        patch.setattr(http, "time", SimpleNamespace(monotonic=lab.clock, time=lambda: 1e9))
        patch.setattr(http.Client, "pause", pause)
        patch.setattr(http, "HTTPAdapter", Unencrypted)
        patch.setattr("pipelines.params.bounds.WHOLE", 2**20)
        for module in (http, download, http_client):
            patch.setattr(module, "ATTEMPTS", ATTEMPTS)
        patch.setattr(wikimedia_client, "AT_ONCE", 1)
        for module in (mediawiki_pages, query_service):
            patch.setattr(module, "IDS_PER_REQUEST", 3)
        patch.setattr(snapshots, "today", lambda: date(2019, 1, 8))
        yield lab


def prepare(lab: Laboratory) -> None:
    """Both servers as they are without a fault."""
    lab.wikimedia.reset()
    lab.completions.reset()
    lab.refusing, lab.scheme = 0, "http"
    articles = {f"Q{n}": f"Title {n}" for n in range(1, 8)}
    wikidata = Wikidata(
        {"P106": [(f"Q{n}", "Q1") for n in range(1, 8)]}, articles, redirects={"Q6": "Q7"}
    )
    wikipedia = Wikipedia(
        dict.fromkeys([*TITLES, "Page 1 (film)", "Page 6", "Page 7"], "text"), {"Old 1": "Page 1"}
    )
    lab.wikimedia.pages |= {
        "/sparql": wikidata.sparql,
        "/w/api.php": wikidata.api,
        "/api": wikipedia.api,
    }
    for number, title in enumerate("ABC"):
        item = {
            "project": "en.wikipedia",
            "article": title,
            "granularity": "monthly",
            "timestamp": "2021100100",
        }
        body = json.dumps({"items": [item | {"agent": "user", "views": number}]}).encode()
        lab.wikimedia.pages[VIEWS.format(title)] = body
    lab.wikimedia.pages["/redirects"] = lambda asked: json.dumps(
        {
            "query": {
                "pages": [
                    {"title": asked["titles"], "redirects": [{"title": f"Old {asked['titles']}"}]}
                ]
            }
        }
    ).encode()
    lab.wikimedia.pages[f"/{FILE}"] = DATA
    lab.wikimedia.pages["/enwiki-20181220-sha1sums.txt"] = (
        f"{hashlib.sha1(DATA).hexdigest()}  {FILE}\n".encode()
    )
    Dumps(lab.wikimedia).wiki("20181220", {FILE.removeprefix("enwiki-20181220-"): DATA})
    lab.wikimedia.version = '"one"'
