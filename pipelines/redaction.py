"""Take keys, passwords and tokens out of every text that leaves a process.

Known are those of the environment, of netrc, of git's and DVC's configuration, and those that
`remember` is told of.
"""

import base64
import html
import json
import logging
import netrc
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "(secret)"
SHORTEST = 8  # characters of a secret; a shorter value of a variable called TOKEN is a setting
# white space, quotation marks and characters that are not seen, around a key in a file
AROUND = " \t\r\n\v\f\xa0\u200b\u2060\ufeff\"'"
NAME = (
    "(?:TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH_STRING|CONNECTION_STRING"
    "|(?:API|ACCESS|ACCOUNT|PRIVATE)_?KEY)"
)
SECRET_NAME = re.compile(rf"{NAME}(?!\w*(?:FILE|PATH|DIR)$)", re.IGNORECASE)
ASSIGNED = re.compile(rf"\w*{NAME}\w*\s*=\s*(\S+)", re.IGNORECASE)  # in DVC's configuration
# names in an address's query that stand before a secret
QUERY_NAME = (
    r"[\w.-]*(?:token|secret|passw|signature|credential)[\w.-]*|[\w.-]*key(?:id)?"
    "|sig|auth|authorization"
)
QUERY = re.compile(rf"(?<=[?&;])({QUERY_NAME})=[^&\s\"'<>]+", re.IGNORECASE)
USER_OF_ADDRESS = re.compile(r"(?<=://)[^/\s]*@")
PASSWORD_OF_ADDRESS = re.compile(r"://([^/\s:@]*:\S+|[^/\s:@]+)@")
NETRC = ("~/.netrc", "~/_netrc")
FILES = (
    "~/.git-credentials",
    "~/.config/dvc/config",
    ".dvc/config",
    ".dvc/config.local",
    ".git/config",
)

_known: list[str] = []  # all spellings of all known secrets, the longest first


def hidden(text: str) -> str:
    """`text` without secrets, and without the users and passwords of addresses."""
    text = USER_OF_ADDRESS.sub("...@", text)
    text = QUERY.sub(rf"\1={HIDDEN}", text)
    return without_known(text)


def without_known(text: str) -> str:
    """`text` without the secrets that are known. Addresses stay as they are."""
    for spelling in _known:
        text = text.replace(spelling, HIDDEN)
    return text


def stands_before_secret(name: str) -> bool:
    """Whether a field of an address's query, or of a file, has a secret."""
    return re.fullmatch(QUERY_NAME, name, re.IGNORECASE) is not None


def remember(*secrets: str | None) -> None:
    """Hide these from now on, however they are spelt."""
    for secret in secrets:
        _hide(spellings(secret or ""))


def _hide(forms: set[str]) -> None:
    global _known
    _known = sorted(forms.union(_known), key=len, reverse=True)


def spellings(secret: str) -> set[str]:
    """A secret and its lines as they stand in headers, JSON, addresses, pages and Python's texts.

    What is shorter than SHORTEST is left out.
    """
    bare = secret.strip(AROUND)
    forms = set()
    for part in {secret, bare, *bare.splitlines()}:
        if len(part.strip(AROUND)) >= SHORTEST:
            data = part.encode("utf-8", "surrogateescape")
            forms |= {part, ascii(part)[1:-1], repr(data)[2:-1], data.decode("latin-1")}
            forms |= {json.dumps(part)[1:-1], html.escape(part), quote(data), quote(data, safe="")}
            forms.add(base64.b64encode(data).decode().rstrip("="))
    return forms


def secrets_of(environment: Mapping[str, str]) -> dict[str, set[str]]:
    """The spellings of the secrets in the environment's variables, by the variables' names."""
    secrets = {}
    for name, value in environment.items():
        values = list(_passwords(value))
        if SECRET_NAME.search(name):
            values += [value, value.partition(":")[2]]
        forms = set().union(*map(spellings, values))
        if forms:
            secrets[name] = forms
    return secrets


def _passwords(text: str) -> Iterator[str]:
    """The passwords of addresses, and of users with them, as a server is sent them."""
    for user in PASSWORD_OF_ADDRESS.findall(text):
        for spelt in (user, unquote(user)):
            yield spelt
            yield spelt.partition(":")[2]


def guard() -> None:
    """Have this process hide secrets in what it prints and logs, tracebacks included."""
    for forms in secrets_of(os.environ).values():
        _hide(forms)
    for name in FILES:
        with suppress(OSError, ValueError):
            text = Path(os.path.expanduser(name)).read_text(encoding="utf-8")
            remember(*_passwords(text), *ASSIGNED.findall(text))
    for name in (os.environ.get("NETRC", ""), *NETRC):
        with suppress(OSError, ValueError, netrc.NetrcParseError):
            for user, _, password in netrc.netrc(os.path.expanduser(name)).hosts.values():
                remember(password, f"{user}:{password}")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream and not isinstance(stream, _Guarded):
            setattr(sys, name, _Guarded(stream))
    logging.setLogRecordFactory(_record)


class _Guarded:
    """A stream that writes each line at once, and no secret; in all else it is `stream`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(hidden(text))
        if text.endswith("\n"):
            self._stream.flush()  # also where a pipe takes it: lines tell what is done now
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _record(*arguments: Any, **keywords: Any) -> logging.LogRecord:
    """A log record without secrets, whichever handler gets it."""
    record = logging.LogRecord(*arguments, **keywords)
    with suppress(TypeError, ValueError):  # of a message that does not fit its arguments
        message = record.getMessage()
        shown = hidden(message)
        if shown != message:
            record.msg = shown
            record.args = ()
    if record.exc_info:
        record.exc_text = hidden(logging.Formatter().formatException(record.exc_info))
    return record


@contextmanager
def in_errors() -> Iterator[None]:
    """Raise an error of the block without secrets, for a library that keeps its words."""
    try:
        yield
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        shown = hidden(words)
        if shown == words:
            raise
        raise RuntimeError(shown).with_traceback(error.__traceback__) from None
