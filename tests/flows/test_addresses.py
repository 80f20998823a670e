"""Questions at an address: read from a server, sent on to another host without a password, never
without encryption.
"""

import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
import requests

from pipelines.errors import LongtailError
from pipelines.work import http


def test_the_questions_may_be_at_an_address(folder, longtail):
    (folder / "release").mkdir()
    (folder / "popQA.tsv").rename(folder / "release/popQA.tsv")
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}"
        for place in (f"{home}/release/popQA.tsv", "release"):
            assert (
                "popQA.tsv: TSV, 300 questions"
                in longtail("compare", "closed.csv", "rag.csv", "-q", place)[1]
            )
        error = longtail("compare", "closed.csv", "rag.csv", "-q", f"{home}/none.tsv")[2]
        assert "none.tsv: the server answers 404" in error
        server.shutdown()


class Hub(SimpleHTTPRequestHandler):
    """Sends datasets/ on to another host, and relative/ on within its own, as a hub of data sets
    does.
    """

    asked: ClassVar[list[tuple[str, str | None]]] = []  # (host, what signs in)

    def send_head(self):
        self.asked.append((self.headers["Host"].partition(":")[0], self.headers["Authorization"]))
        place = self.path.rpartition("/")[2].partition("?")[0]
        goes = {
            "/datasets/": f"http://localhost:{self.server.server_port}/{place}?X-Amz-Signature=a"
        }
        goes["/relative/"] = f"../{place}"
        if to := next((to for at, to in goes.items() if self.path.startswith(at)), ""):
            self.send_response(302)
            self.send_header("Location", to)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        return super().send_head()


def test_a_typed_address_may_send_on_to_another_host(folder, longtail, monkeypatch):
    """What signs in is not sent there."""
    (folder / "netrc").write_text("default login me password secret\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(folder / "netrc"))
    (folder / "page.tsv").write_text("<html>sign in</html>", encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}"
        own, other = ("127.0.0.1", True), ("localhost", False)
        for place, asked in {
            "datasets/a/resolve/main": [own, other],
            "relative": [own, own],
        }.items():
            Hub.asked.clear()
            said = longtail("compare", "closed.csv", "rag.csv", "-q", f"{home}/{place}/popQA.tsv")[
                1
            ]
            assert "popQA.tsv: TSV, 300 questions" in said
            assert [(host, bool(secret)) for host, secret in Hub.asked] == asked
        error = longtail("compare", "closed.csv", "rag.csv", "-q", f"{home}/datasets/page.tsv")[2]
        assert re.search(
            r"error: http\S+/datasets/page.tsv: an HTML page, expected data; .* fetch or copy the file",
            error,
        )
        server.shutdown()


@pytest.mark.parametrize(
    ("asked", "to", "follows"),
    [
        ("https://hub.example/a", "https://cdn.example/b", True),
        ("https://hub.example/a", "/api/b", True),
        ("https://hub.example/a", "//cdn.example/b", True),
        ("http://hub.example/a", "https://cdn.example/b", True),
        ("https://hub.example/a", "http://cdn.example/b", False),
        ("https://hub.example/a", "http://hub.example/a", False),
    ],
)
def test_no_redirect_leaves_encryption(asked, to, follows):
    session, answer = http.Session(), requests.Response()
    session.hosts = None
    answer.status_code, answer.headers["Location"] = 302, to
    answer.request = requests.Request("GET", asked).prepare()
    if follows:
        assert session.get_redirect_target(answer) == to
    else:
        with pytest.raises(
            LongtailError, match="without encryption; give an address that answers with https"
        ):
            session.get_redirect_target(answer)
