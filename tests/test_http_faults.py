"""Every HTTP client before every fault of a server: the right rows at last, or one line that names
the address.

Nothing that was answered is asked for again, nor paid for, in a later run either; nothing wrong is
kept. What is wrong with an answer as such, or with its JSON as such, is shown to all clients in the
slow tier alone.
"""

import ast
import gzip
import json
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from http_faults import NOTHING, Fault, lagged, moved
from http_laboratory import CLIENTS, Client, Laboratory, laboratory, prepare

from pipelines.errors import LongtailError

# The faults: after one the right rows come ("again"), or one line says what is wrong ("refused")


def edited(edit: Callable[[dict], object]) -> Callable[[bytes], bytes]:
    """A change of a body that is JSON by `edit`, which changes the parsed one in place."""

    def change(body: bytes) -> bytes:
        parsed = json.loads(body)
        edit(parsed)
        return json.dumps(parsed).encode()

    return change


def items(parsed: dict) -> list:
    """The list of an answer's items."""
    query = parsed.get("query", {})
    found = (
        parsed.get("items") or parsed.get("choices") or query.get("pages") or query.get("allpages")
    )
    return found or parsed["results"]["bindings"]


def entities_or(
    edit: Callable[[list], object], of_entities: Callable[[dict], object]
) -> Callable[[bytes], bytes]:
    return edited(
        lambda parsed: (
            of_entities(parsed["entities"]) if "entities" in parsed else edit(items(parsed))
        )
    )


def raised(parsed: dict) -> None:
    shown = parsed["choices"][-1]["logprobs"]
    if "content" in shown:
        shown["content"][-1]["logprob"] = 0.7
    else:
        shown["token_logprobs"][-1] = 0.7


def exchanged(entities: dict) -> dict:
    return dict(zip(entities, [*entities.values()][::-1], strict=True))


JSON = [
    name
    for name in CLIENTS
    if name not in ("download", "checksums", "sizes", "dump listing", "there")
]
COMPLETIONS = ["scores", "answers", "choices"]
LISTS = ["entity API", "page views", "redirects", "pages", *COMPLETIONS, "chat"]
ESCAPES = b"\x1b]0;owned\x07\x1b[31mgo away\x9b2J\r\n\x00\x08"
NEST = b"[" * 200_000 + b"]" * 200_000


@dataclass(frozen=True)
class Row:
    """A fault, which clients it hits, and what becomes of their rows; `but` are other outcomes by
    client."""

    fault: Fault
    outcome: str
    clients: list[str] = field(default_factory=lambda: list(CLIENTS))
    but: dict[str, str] = field(default_factory=dict)
    scheme: str = "http"
    refusing: bool = False


def in_json(text: bytes) -> Fault:
    return Fault(change=lambda body: body.replace(b"{", b'{"x": ' + text + b", ", 1))


# what would be paid again is not asked again
PAID = dict.fromkeys([*COMPLETIONS, "chat"], "refused")
UNLISTED = {"checksums": "right"}  # then there is no list
ANY_FILE = UNLISTED | {"sizes": "refused"}
ANY_PAGE = ANY_FILE | {"dump listing": "right"}  # which has no JSON
# An error is no answer in their layout
UNASKED = dict.fromkeys(["query service", "page views"], "again")
HELLO = b"<!DOCTYPE html><h1>Hello</h1>"
UNSIZED = {"headers": {"Content-Length": "many"}, "sent": 1 << 30}
GZIP = {"Content-Encoding": "gzip"}
BOMB = Fault(change=lambda body: gzip.compress(body + b" " * (1 << 22)), headers=GZIP)
TWICE = entities_or(
    lambda rows: rows.append(rows[0]), lambda rows: rows.update(Q99=next(iter(rows.values())))
)
ONE_LESS = entities_or(list.pop, dict.popitem)
REVERSED = entities_or(list.reverse, lambda entities: None)
EXCHANGED = edited(lambda parsed: parsed.update(entities=exchanged(parsed["entities"])))
NEGATIVE = edited(lambda parsed: parsed["usage"].update(prompt_tokens=-5000))
REFUSAL = b'{"error": {"code": "badvalue", "message": "no", "info": "no"}}'
ERROR = {"code": ESCAPES.decode("latin-1"), "info": ESCAPES.decode("latin-1")}
FAULTS = {
    "connection refused": Row(Fault(), "again", refusing=True),
    "closed without an answer": Row(Fault(sent=NOTHING), "again"),
    "reset mid-body": Row(Fault(sent=25, reset=True), "again"),
    "cut body": Row(Fault(sent=25), "again"),
    "slow drip": Row(Fault(), "again"),  # its drip is the laboratory's
    "429 with Retry-After": Row(Fault(429, b"slow down", {"Retry-After": "40"}), "again"),
    "500": Row(Fault(500, b"oops"), "again"),
    "503": Row(Fault(503, b"<html>", {"Content-Type": "text/html"}), "again"),
    "404": Row(Fault(404, b"nothing here"), "refused", [n for n in CLIENTS if n != "page views"], UNLISTED),
    "304": Row(Fault(304), "refused", but=UNLISTED),
    "206 unasked": Row(Fault(206), "refused", but=UNLISTED | {"sizes": "again"}),
    "HTML in place of JSON": Row(Fault(body=HELLO), "again", but=PAID | ANY_FILE),
    "HTML without a length": Row(Fault(body=HELLO, **UNSIZED), "again", but=PAID | ANY_FILE),
    "empty body": Row(Fault(body=b""), "again", but=PAID | ANY_FILE),
    "invalid JSON": Row(Fault(change=lambda body: body.replace(b":", b";", 1) + b" "), "again", but=PAID | ANY_PAGE),
    "NaN": Row(in_json(b"NaN"), "again", JSON, PAID),
    "Infinity": Row(in_json(b"-Infinity"), "again", JSON, PAID),
    "number of 5,000 digits": Row(in_json(b"9" * 5000), "right", JSON),
    "deeply nested JSON": Row(in_json(NEST), "again", JSON, PAID),
    "JSON of another kind": Row(Fault(body=b"[1, 2]"), "again", JSON, PAID),
    "not UTF-8": Row(Fault(change=lambda body: b"\xff" + body), "again", JSON, PAID),
    "Content-Length too long": Row(Fault(length=1 << 20), "again", but={"sizes": "refused"}),
    "Content-Length too short": Row(Fault(length=30), "again", but=ANY_FILE),
    "Content-Length no number": Row(Fault(**UNSIZED), "right", but={"sizes": "refused"}),
    "gzip that is none": Row(Fault(headers=GZIP), "again", but=dict.fromkeys(["sizes", "download"], "right")),
    "gzip bomb": Row(BOMB, "refused", but={"download": "again"}),
    "body without an end": Row(Fault(change=lambda body: body + b" " * (1 << 20), **UNSIZED), "refused"),
    "redirect to another host": Row(moved("http://localhost:1/x"), "refused"),
    "redirect loop": Row(moved("#"), "again", but=PAID),
    "redirect https to http": Row(moved("http://127.0.0.1:1/x"), "refused", scheme="https"),
    "redirect to no address": Row(moved("http://[x"), "refused"),
    "items in another order": Row(Fault(change=REVERSED), "right", [*LISTS, "query service"]),
    "first item twice": Row(Fault(change=TWICE), "again", LISTS, PAID | {"page views": "refused", "pages": "right"}),
    "last item missing": Row(Fault(change=ONE_LESS), "again", LISTS, PAID | {"page views": "refused"}),
    "items exchanged": Row(Fault(change=EXCHANGED), "again", ["entity API"]),
    "log-probability above 0": Row(Fault(change=edited(raised)), "refused", [*COMPLETIONS, "chat"]),
    "negative usage": Row(Fault(change=NEGATIVE), "right", [*COMPLETIONS, "chat"]),
    "200 with an error": Row(Fault(body=REFUSAL), "refused", JSON, UNASKED),
    "lagging database": Row(lagged(), "again", ["entity API", "redirects", "pages", "listings"]),
    "200 with a wrong error": Row(Fault(body=b'{"error": {"code": 5, "info": [1]}}'), "again", JSON, PAID),
    "200 with a server's error": Row(Fault(body=b'{"error": {"code": 502}}'), "again", [*COMPLETIONS, "chat"]),
    "200 with a wrong key": Row(Fault(body=b'{"error": {"code": 401}}'), "refused", [*COMPLETIONS, "chat"]),
    "200 with escapes in an error": Row(Fault(body=json.dumps({"error": ERROR}).encode()), "refused", JSON, UNASKED),
    "escapes in an error": Row(Fault(403, ESCAPES, reason="No\x1b[2J\x9b"), "refused", but=UNLISTED),
    "error that is not UTF-8": Row(Fault(400, b"caf\xe9 \xff\xfe"), "refused", but=UNLISTED),
}  # fmt: skip
# one of each way to ask, beside what asks for dumps
QUICK = ("query service", "page views", "pages", "entity API", "scores")
QUICK += ("sizes", "download", "checksums", "dump listing", "there")


def cells() -> Iterator:
    for fault, row in FAULTS.items():
        for client in row.clients:
            slow = client not in QUICK and len(row.clients) >= len(JSON)
            yield pytest.param(fault, client, marks=[pytest.mark.slow] if slow else [])


def refusal_or_rows(client: Client, lab: Laboratory, folder: Path, right: object) -> str:
    """ "right" or "refused"; anything else fails."""
    try:
        rows = client.ask(lab, folder)
    except LongtailError as error:
        message = str(error)
        right = rows = None
    else:
        message = "127.0.0.1"
    assert message.isprintable(), f"control characters: {message!r}"
    assert "127.0.0.1" in message, f"no address: {message}"
    assert len(message) < 1000
    assert rows == right, "other rows"
    return "refused" if rows is None else "right"


def outcome(lab: Laboratory, client: Client, row: Row, folder: Path) -> str:
    """What becomes of a client's rows where a fault stays, and then where it comes once."""
    prepare(lab)
    lab.scheme, fault = row.scheme, row.fault
    server = lab.wikimedia if client.server == "wikimedia" else lab.completions
    if row is FAULTS["slow drip"]:
        fault = Fault(drip=lab.drip)
    if (client, row.scheme) not in lab.right:
        with tempfile.TemporaryDirectory() as reference:
            lab.right[client, row.scheme] = client.ask(lab, Path(reference))
    right = lab.right[client, row.scheme]
    if client.opened_with:
        client.opened_with(lab, folder)
    server.answered.clear()
    server.at = client.at

    def asked(faults: list[Fault | None], refusing: int = 0) -> tuple[str, int]:
        """The outcome, and how many requests came."""
        server.requests.clear()
        server.faults, lab.refusing = faults, refusing if row.refusing else 0
        return refusal_or_rows(client, lab, folder, right), len(
            [r for r in server.requests if client.at in str(r)]
        )

    stays, requests = asked([None] * client.skipped + [fault] * 1000, 1000)
    once, _ = asked([None] * (not client.keeps) * client.skipped + [fault], 1)
    later, more = asked([])
    assert later == "right", "something wrong was kept"
    assert not more or not client.keeps or once == "refused", "kept answers are asked for again"
    word = {
        ("refused", "right"): "again",
        ("refused", "refused"): "refused",
        ("right", "right"): "right",
    }[stays, once]
    if client.keeps and word == "refused":
        # Of a prompt alone, it is asked whether another prompt is answered.
        assert requests - client.skipped in (1, 2), "asked again for what is refused"
    if client.keeps:
        assert max(server.answered.values()) == 1, "asked again for what was answered"
    return word


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with laboratory(tmp_path_factory.mktemp("laboratory")) as built:
        yield built


def expected(row: Row, client: str) -> str:
    """The row's outcome for a client; `there` sends HEAD requests, whose answers have no body that
    could be wrong."""
    no_body = client == "there" and row.fault.status == 200 and row.fault.sent != NOTHING
    return "right" if no_body and not row.refusing else row.but.get(client, row.outcome)


@pytest.mark.parametrize(("fault", "client"), list(cells()))
def test_the_right_rows_come_or_a_refusal(
    lab: Laboratory, fault: str, client: str, tmp_path: Path
) -> None:
    row = FAULTS[fault]
    assert outcome(lab, CLIENTS[client], row, tmp_path) == expected(row, client)


MORE = Fault(
    change=edited(
        lambda parsed: parsed.update({"continue": {"apcontinue": "A", "rdcontinue": "1"}})
    )
)


@pytest.mark.parametrize(
    ("client", "fault", "said"),
    [
        ("pages", Fault(404), r"/api: the server answers 404, expected MediaWiki's api\.php \(fetch\.pages\.api\)"),
        ("entity API", Fault(404), r"/api\.php: the server answers 404, expected MediaWiki's api\.php"),
        ("redirects", Fault(404), r"/redirects: the server answers 404, expected .*popularity\.redirects_api"),
        ("query service", Fault(404), "/sparql: the server answers 404, expected a SPARQL endpoint"),
        ("redirects", MORE, "goes on with itself, expected an end"),
        ("listings", MORE, "goes on with itself, expected an end"),
    ],
)  # fmt: skip
def test_no_such_server_is_said(lab, client, fault, said, tmp_path) -> None:
    """So is a list that goes on with itself."""
    prepare(lab)
    lab.wikimedia.at, lab.wikimedia.faults = CLIENTS[client].at, [fault] * 100
    with pytest.raises(LongtailError, match=rf"127\.0\.0\.1.*{said}"):
        CLIENTS[client].ask(lab, tmp_path)


def calls(text: str) -> Iterator[str]:
    """The functions of a module that ask an HTTP client, or Requests itself, by name."""
    own = r"(self|super\(\))\.(session\.request|send|_once)\("
    asking = re.compile(rf"client\.(ask|ask_api|send)\(|{own}|requests\.(get|post)")
    lines = text.splitlines()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        if asking.search("\n".join(lines[function.lineno - 1 : function.end_lineno])):
            yield function.name


def test_every_function_that_asks_a_server_is_in_the_table(
    lab: Laboratory, tmp_path: Path, root: Path
) -> None:
    asking = {
        (str(file), name)
        for file in (root / "pipelines").rglob("*.py")
        for name in calls(file.read_text(encoding="utf-8"))
    }
    asked: set[tuple[str, str]] = set()
    prepare(lab)

    def note(frame, event: str, _) -> None:
        if event == "call":
            asked.add((frame.f_code.co_filename, frame.f_code.co_name))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        for name, client in CLIENTS.items():
            (tmp_path / name).mkdir()
            client.ask(lab, tmp_path / name)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert asking - asked == set()
    assert len(asking) > 10
