"""Downloads files, three at once: prints their sizes first, resumes after a cut, and checks sizes and checksums."""

import hashlib
import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import requests
from tqdm import tqdm

from pipelines.errors import LongtailError, Unreachable
from pipelines.params import bounds
from pipelines.sources.streams import check_start
from pipelines.sources.wikimedia_client import Client
from pipelines.storage.atomic import write_json
from pipelines.work import http
from pipelines.work.http import ATTEMPTS

DUMP_RUN = re.compile(
    r"[a-z_]+-\d{8}"
)  # enwiki-20181220-…: the dumps of one run share a list of checksums
IDENTITY = {"Accept-Encoding": "identity"}  # then Content-Length is the file's size
DIGEST = re.compile("[0-9a-fA-F]{40}")


def download(urls: Sequence[str], folder: Path, client: Client) -> list[Path]:
    """Download `urls` to `folder`, as many at once as the client allows; return the files in the order of the URLs.

    A finished file in `folder` is kept where the server still states its version or its checksum, or has it no longer;
    a partial one is gone on with. Raises LongtailError naming the URL if it doesn't exist, is cut too often, is an HTML
    page, or has another size or checksum than announced; and if the disk lacks space.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [
        folder / f"{hashlib.blake2b(url.encode(), digest_size=4).hexdigest()}-{name_of(url)}"
        for url in urls
    ]
    jobs = list(zip(urls, paths, strict=True))
    heads = client.map(lambda job: _head_unless_kept(client, *job), jobs, None)
    missing = [(*job, head) for job, head in zip(jobs, heads, strict=True) if head is not None]
    total = sum(head["size"] or 0 for *_, head in missing)
    print(
        f"fetch: {len(missing)} of {len(urls)} files to download, {tqdm.format_sizeof(total, 'B')}",
        flush=True,
    )
    remaining = total - sum(_size(_part(path)) for path in paths)
    if remaining > (free := shutil.disk_usage(folder).free):
        sizes = f"{tqdm.format_sizeof(remaining, 'B')} to download, {tqdm.format_sizeof(free, 'B')} free"
        raise LongtailError(f"{folder}: {sizes}; make room")
    with tqdm(total=total, unit="B", unit_scale=True, desc="fetch", mininterval=2) as bar:
        for _ in client.map(lambda job: _download_file(client, *job, bar), missing, None):
            pass
    return paths


def download_alone(url: str, folder: Path) -> Path:
    """One small file at an address that a person gave, from whatever host it sends on to, without params.

    Raises the errors of `download`, and for a file beyond 16 times `bounds.WHOLE`.
    """
    path = folder / (name_of(url) or "file")
    with closing(http.Client(1, (30.0, 60.0))) as client:
        client.session.hosts = None
        answer = _send(client, "GET", url)
        with path.open("wb") as file:
            for part in client.parts(answer, 16 * bounds.WHOLE, False, None):
                file.write(part)
    _check_content(url, path)
    return path


def _check_content(url: str, path: Path) -> None:
    try:
        check_start(path)
    except LongtailError as error:
        raise LongtailError(f"{url}: {str(error).removeprefix(f'{path}: ')}") from None


def name_of(url: str) -> str:
    """The file name that a URL ends in."""
    return Path(urlsplit(url).path).name


def note_of(path: Path) -> Path:
    """The file that says what a download's server said of it: {head}, and {checksum} once the download is finished."""
    return path.with_name(path.name + ".version")


def _noted(path: Path) -> dict:
    try:
        return json.loads(note_of(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}


def _head_unless_kept(client: Client, url: str, path: Path) -> dict | None:
    """None where the finished file at `path` is what the server has, or the server has none any more.

    Else the {size} of the server's file, None if unknown, and its {version}, a value that changes with the file, "" if
    there is none: it keeps a resumed download from mixing two files.
    """
    kept = _noted(path) if path.exists() else {}
    checksum = kept.get("checksum")
    answer = _send(client, "HEAD", url, also=() if checksum is None else (404, 410))
    if not answer.ok:
        print(
            f"fetch: {url}: the server has it no longer; the file that was fetched before is used",
            flush=True,
        )
        return None
    headers = answer.headers
    length, etag = headers.get("Content-Length"), headers.get("ETag", "W/")
    if length and not length.isdecimal():
        raise LongtailError(f"{url}: the server says its size is {length!r}, expected bytes")
    version = headers.get("Last-Modified", "") if etag.startswith("W/") else etag
    head = {"size": int(length) if length else None, "version": version}
    if checksum is not None and head["size"] in (None, path.stat().st_size):
        if head["version"] and head == kept["head"]:
            return None
        if checksum and published_checksum(client, url) == checksum:
            return None
    path.unlink(missing_ok=True)
    return head


def _download_file(client: Client, url: str, path: Path, head: dict, bar: tqdm) -> None:
    part = _part(path)
    if _noted(path).get("head") != head:
        part.unlink(missing_ok=True)  # the file on the server has changed since
    write_json(note_of(path), {"head": head})
    bar.update(_size(part))
    failures = 0
    while True:
        before = _size(part)
        try:
            _continue(client, url, head, part, bar)
            break
        except (
            requests.ConnectionError,
            requests.exceptions.ChunkedEncodingError,
            requests.Timeout,
        ) as error:
            try:
                check_start(part)
            except (
                LongtailError,
                OSError,
            ):  # nothing, or an error page, which the file doesn't go on from
                part.unlink(missing_ok=True)
            after = _size(part)
            failures = 0 if after - before >= http.BLOCK else failures + 1
            if failures == ATTEMPTS:
                where = f"{after} of {head['size']} bytes"
                raise Unreachable(f"{url}: cut at {where} ({error}); run again to go on") from None
            bar.write(f"fetch: {url}: the connection was cut; going on from byte {after}")
            client.pause(http.BACKOFF * failures)
    write_json(note_of(path), {"head": head, "checksum": _check(client, url, head, part)})
    part.replace(path)


def _continue(client: Client, url: str, head: dict, part: Path, bar: tqdm) -> None:
    """Append what is missing to `part`. Raises requests.ConnectionError if the connection ends too early."""
    size, whole = _size(part), math.inf if head["size"] is None else head["size"]
    if size and size == whole:
        return
    headers = IDENTITY | ({"Range": f"bytes={size}-"} if size else {})
    if size and head["version"]:
        headers["If-Range"] = head["version"]
    with _send(client, "GET", url, headers) as answer:
        resumes = answer.status_code == 206
        if resumes and not answer.headers.get("Content-Range", "").startswith(f"bytes {size}-"):
            raise LongtailError(
                f"{url}: asked for bytes from {size} on, got {answer.headers.get('Content-Range')}"
            )
        length = answer.headers.get("Content-Length", "")
        if (
            head["size"] is not None
            and length.isdecimal()
            and int(length) + size * resumes != head["size"]
        ):
            raise requests.ConnectionError(
                f"{length} bytes would come, expected {head['size'] - size * resumes}"
            )
        with part.open("ab" if resumes else "wb") as file:
            for block in client.parts(answer, math.inf, False, None):
                file.write(block)
                bar.update(len(block))
                if file.tell() > whole:
                    return
            if head["size"] is not None and file.tell() < whole:
                raise requests.ConnectionError("the server closed the connection early")


def _check(client: Client, url: str, head: dict, part: Path) -> str:
    """Check size, content and checksum; return the published checksum. A file that fails is removed."""
    try:
        if head["size"] not in (None, size := part.stat().st_size):
            raise Unreachable(f"{url}: {size} bytes arrived, expected {head['size']}; run again")
        _check_content(url, part)
        if expected := published_checksum(client, url):
            with part.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha1").hexdigest()
            if digest != expected:
                raise Unreachable(
                    f"{url}: its sha1 is {digest}, the server's list says {expected}; run again"
                )
        return expected
    except LongtailError:
        part.unlink(missing_ok=True)
        raise


def published_checksum(client: Client, url: str) -> str:
    """The SHA-1 digest from a list of checksums beside the file, or "" if the server has none."""
    base, name = url.rsplit("/", 1)[0], name_of(url)
    run = DUMP_RUN.match(name)
    for address in ([f"{base}/{run.group()}-sha1sums.txt"] if run else []) + [f"{url}.sha1"]:
        answer = client.send("GET", address)
        for line in (
            answer.content.decode("utf-8", "replace").splitlines()
            if answer.status_code == 200
            else ()
        ):
            digest, _, file = line.strip().partition(" ")
            if DIGEST.fullmatch(digest) and file.strip(" *") in (name, ""):
                return digest.lower()
    return ""


def _send(
    client: http.Client,
    method: str,
    url: str,
    headers: Mapping[str, str] = IDENTITY,
    also: Sequence[int] = (),
) -> requests.Response:
    """The streamed answer; LongtailError for a status that is neither good nor one of `also`."""
    answer = client.send(method, url, headers=headers, stream=True)
    if answer.status_code not in (200, 206, *also):
        raise http.refusal(answer, url)
    return answer


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
