"""No key, password or token is in any text that leaves a process, whatever fails."""

import base64
import io
import json
import logging
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from http_faults import Fault
from http_laboratory import CLIENTS, Client, Laboratory, laboratory, model, prepare

from pipelines import redaction
from pipelines.errors import LongtailError
from pipelines.lm.http_model import HttpModel

CORE = "sk-SECRET123456"
SPELLINGS = [
    f"{CORE}\n",
    f" {CORE}",
    f'"{CORE}"',
    f"{CORE[:9]}\N{HORIZONTAL ELLIPSIS}123456",
    f"{CORE}\r\n",
]
STATUSES = (200, 401, 500)
USER = "ada:p4ss/w0rd+word"


def echoes(secret: str) -> Iterator[bytes]:
    """What servers and gateways say that repeat a header or an address."""
    encoded = base64.b64encode(secret.encode()).decode()
    address = f"https://u:{quote(secret, safe='')}@host/"
    cut_by_a_message = f"{'x' * 185} {secret} {secret!r}"
    yield f"Incorrect API key provided: {secret} {encoded} {address}".encode()
    yield json.dumps({"error": {"message": cut_by_a_message, "code": "invalid_api_key"}}).encode()
    answer = {"index": 0, "text": secret, "message": {"content": cut_by_a_message}}
    yield json.dumps({"choices": [answer]}).encode()


def leaked(folder: Path, text: str, *secrets: str) -> list[str]:
    """Where a secret, or a half of it, stands: the files, and "text"."""
    parts = {part for secret in secrets for part in (secret, secret[: len(secret) * 2 // 3])}
    parts |= {base64.b64encode(secret.encode()).decode().rstrip("=") for secret in secrets}
    places = []
    if any(part in text for part in parts):
        places.append(f"text: {text}")
    for file in sorted(folder.rglob("*")):
        if file.is_file() and any(part.encode() in file.read_bytes() for part in parts):
            places.append(str(file))
    return places


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with laboratory(tmp_path_factory.mktemp("laboratory")) as built:
        yield built


def said_after(lab: Laboratory, client: Client, folder: Path, fault: Fault) -> str:
    """What a client raises where a fault stays, with its traceback."""
    prepare(lab)
    server = lab.wikimedia if client.server == "wikimedia" else lab.completions
    server.at = client.at
    server.faults = [None] * client.skipped + [fault] * 100
    try:
        client.ask(lab, folder)
    except LongtailError:
        return traceback.format_exc()
    return ""


@pytest.mark.parametrize("key", SPELLINGS)
@pytest.mark.parametrize(
    "name",
    [
        "chat",
        pytest.param("answers", marks=pytest.mark.slow),
        pytest.param("scores", marks=pytest.mark.slow),
        pytest.param("choices", marks=pytest.mark.slow),
    ],
)
def test_a_key_is_nowhere_whatever_fails(lab, name, key, tmp_path, monkeypatch, capfd):
    opened = HttpModel.__init__

    def open_with_key(self, folder, lm, _, cache) -> None:
        opened(self, folder, lm, key, cache)

    monkeypatch.setattr(HttpModel, "__init__", open_with_key)
    said = ""
    for status in STATUSES:
        for number, body in enumerate(echoes(key.strip())):
            folder = tmp_path / f"{status}-{number}"
            said += said_after(lab, CLIENTS[name], folder, Fault(status, body))
    assert "LongtailError" in said
    assert leaked(tmp_path, said + "".join(capfd.readouterr()), CORE, key.strip('" \r\n')) == []


@pytest.mark.parametrize("name", [name for name in CLIENTS if CLIENTS[name].server == "wikimedia"])
def test_a_password_of_netrc_is_nowhere_whatever_fails(lab, name, tmp_path, monkeypatch, capfd):
    netrc = tmp_path / "netrc"
    login, _, password = USER.partition(":")
    netrc.write_text(f"machine 127.0.0.1\n  login {login}\n  password {password}\n")
    monkeypatch.setenv("NETRC", str(netrc))
    redaction.guard()
    said = ""
    for status in STATUSES:
        for number, body in enumerate(echoes(USER)):
            folder = tmp_path / f"{status}-{number}"
            folder.mkdir()
            said += said_after(lab, CLIENTS[name], folder, Fault(status, body))
    netrc.unlink()
    assert leaked(tmp_path, said + "".join(capfd.readouterr()), USER, password) == []


def test_a_key_is_sent_without_what_stands_around_it(lab, tmp_path, monkeypatch):
    opened = HttpModel.__init__
    for number, key in enumerate(SPELLINGS):
        prepare(lab)

        def open_with_key(self, folder, lm, _, cache, key=key) -> None:
            opened(self, folder, lm, key, cache)

        monkeypatch.setattr(HttpModel, "__init__", open_with_key)
        if "\N{HORIZONTAL ELLIPSIS}" in key:
            with pytest.raises(LongtailError, match=r"^LONGTAIL_API_KEY: .*; copy the whole key"):
                model(lab, tmp_path / str(number))
        else:
            model(lab, tmp_path / str(number))
            assert lab.completions.keys == {f"Bearer {CORE}"}


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("LONGTAIL_API_KEY", f"{CORE}\n", CORE),
        ("HTTPS_PROXY", "http://ada:correct-horse@proxy:3128", "correct-horse"),
        ("https_proxy", "http://ada:correct%2Fhorse@proxy:3128", "correct/horse"),
        ("MLFLOW_TRACKING_URI", "postgresql://ada:correct-horse@db/mlflow", "correct-horse"),
        ("MLFLOW_TRACKING_PASSWORD", "correct-horse", "correct-horse"),
        ("PREFECT_SERVER_API_AUTH_STRING", "admin:correct-horse", "correct-horse"),
        ("AWS_SECRET_ACCESS_KEY", "correct-horse", "correct-horse"),
        ("HF_TOKEN", "correct-horse", "correct-horse"),
    ],
)
def test_secrets_of_the_environment_are_in_no_print_log_or_error(
    monkeypatch, capfd, name, value, secret
):
    monkeypatch.setenv(name, value)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    redaction.guard()
    redaction.guard()
    logger = logging.getLogger("of a library")
    logger.addHandler(handler)
    try:
        raise ValueError(f"no header takes {value!r}")
    except ValueError as error:
        logger.exception("asked with %s", value)
        traceback.print_exc()
        print("asked with", value)
        said = str(LongtailError(f"{error} {quote(secret, safe='')}"))
    logger.removeHandler(handler)
    said += stream.getvalue() + "".join(capfd.readouterr())
    assert "asked with" in said
    assert secret not in said
    assert value.strip() not in said
    with pytest.raises(RuntimeError, match=r"^ValueError: (?!.*horse)"), redaction.in_errors():
        raise ValueError(value)


def test_settings_and_addresses_without_secrets_stay(monkeypatch):
    for name, value in {
        "TOKENIZERS_PARALLELISM": "false, always",
        "HF_TOKEN_PATH": "/home/ada/token",
        "TOKEN": "short",
        "HTTP_PROXY": "http://proxy.example:3128",
    }.items():
        monkeypatch.setenv(name, value)
        redaction.guard()
        assert redaction.hidden(value) == value
    url = "https://host.example/x?author=me&revision=1&keyword=a"
    assert redaction.hidden(url) == url
    assert redaction.hidden(f"{url}&X-Amz-Signature=5ecret&b=1") == (
        f"{url}&X-Amz-Signature=(secret)&b=1"
    )
    assert redaction.hidden("git@host.example and https://t0ken@host/") == (
        "git@host.example and https://...@host/"
    )
