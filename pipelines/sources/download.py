"""Downloads files, three at once: prints their sizes first, resumes after a cut, and checks sizes
and checksums.
"""

import hashlib
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import requests
from tqdm import tqdm

from pipelines.errors import BROKEN_JSON, LongtailError, Unreachable
from pipelines.params import bounds
from pipelines.sources.streams import check_start
from pipelines.sources.wikimedia_client import Client
from pipelines.storage.atomic import write_json
from pipelines.work import http
from pipelines.work.http import ATTEMPTS

# enwiki-20181220-…: the dumps of one run share a list of checksums
DUMP_RUN = re.compile(r"[a-z_]+-\d{8}")
IDENTITY = {"Accept-Encoding": "identity"}  # then Content-Length is the file's size
DIGEST = re.compile("[0-9a-fA-F]{40}")
CONNECT_SECONDS = 30.0  # of a file that a person names
READ_SECONDS = 60.0  # between two reads of it
DATA_STATUSES = (200, 206)
GONE_STATUSES = (404, 410)


class Head(msgspec.Struct):
    """What a server says of a file."""

    size: int | None  # bytes; None if unknown
    # A value that changes with the file, "" if there is none. It keeps a resumed download from
    # mixing two files.
    version: str


class Note(msgspec.Struct):
    """What is kept of a download beside its file."""

    head: Head | None = None
    checksum: str | None = None  # the published one; None until the download is finished


class _Download(NamedTuple):
    url: str
    path: Path
    head: Head | None = None


def download(urls: Sequence[str], folder: Path, client: Client) -> list[Path]:
    """Download `urls` to `folder`, as many at once as the client allows; return the files in the
    order of the URLs.

    A finished file in `folder` is kept where the server still states its version or its checksum,
    or has it no longer; a partial one is gone on with. Raises LongtailError naming the URL if it
    doesn't exist, is cut too often, is an HTML page, or has another size or checksum than
    announced; and if the disk lacks space.
    """
    folder.mkdir(parents=True, exist_ok=True)
    downloads = []
    for url in urls:
        digest = hashlib.blake2b(url.encode(), digest_size=4).hexdigest()
        downloads.append(_Download(url, folder / f"{digest}-{name_of(url)}"))

    def ask_head(file: _Download) -> _Download:
        return file._replace(head=_head_unless_kept(client, file.url, file.path))

    with_heads = client.map(ask_head, downloads, None)
    missing = [file for file in with_heads if file.head is not None]
    total = sum(file.head.size or 0 for file in missing)
    print(
        f"fetch: {len(missing)} of {len(urls)} files to download, {tqdm.format_sizeof(total, 'B')}"
    )
    _check_space(folder, downloads, total)

    with tqdm(total=total, unit="B", unit_scale=True, desc="fetch", mininterval=2) as bar:

        def download_file(file: _Download) -> None:
            _download_file(client, file.url, file.path, file.head, bar)

        for _ in client.map(download_file, missing, None):
            pass

    return [file.path for file in downloads]


def _check_space(folder: Path, downloads: Sequence[_Download], total: int) -> None:
    """Raise LongtailError if the disk lacks space for the `total` bytes, of which parts may be
    there.
    """
    remaining = total - sum(_size(_part(file.path)) for file in downloads)
    free = shutil.disk_usage(folder).free
    if remaining > free:
        raise LongtailError(
            f"{folder}: {tqdm.format_sizeof(remaining, 'B')} to download, "
            f"{tqdm.format_sizeof(free, 'B')} free; make room"
        )


def download_alone(url: str, folder: Path) -> Path:
    """One small file at an address that a person gave, from whatever host it sends on to, without
    params.

    Raises the errors of `download`, and for a file beyond 16 times `bounds.WHOLE`.
    """
    path = folder / (name_of(url) or "file")
    with closing(http.Client(1, (CONNECT_SECONDS, READ_SECONDS))) as client:
        client.session.hosts = None
        answer = _send(client, "GET", url)
        with path.open("wb") as file:
            for block in client.parts(answer, 16 * bounds.WHOLE):
                file.write(block)
    _check_content(url, path)
    return path


def name_of(url: str) -> str:
    """The file name that a URL ends in."""
    return Path(urlsplit(url).path).name


def note_of(path: Path) -> Path:
    """The file that has the Note of a download."""
    return path.with_name(path.name + ".version")


def _read_note(path: Path) -> Note:
    try:
        return msgspec.json.decode(note_of(path).read_bytes(), type=Note)
    except (FileNotFoundError, *BROKEN_JSON):
        return Note()


def _write_note(path: Path, note: Note) -> None:
    write_json(note_of(path), msgspec.to_builtins(note))


def _head_unless_kept(client: Client, url: str, path: Path) -> Head | None:
    """What the server says of its file.

    None where the finished file at `path` is what the server has, or the server has none any more.
    """
    note = _read_note(path) if path.exists() else Note()
    is_finished = note.checksum is not None
    answer = _send(client, "HEAD", url, further_statuses=GONE_STATUSES if is_finished else ())
    if not answer.ok:
        print(
            f"fetch: {url}: the server has it no longer; the file that was fetched before is used"
        )
        return None

    head = _parse_head(url, answer.headers)
    if is_finished and head.size in (None, path.stat().st_size):
        if head.version and head == note.head:
            return None
        if note.checksum and published_checksum(client, url) == note.checksum:
            return None

    path.unlink(missing_ok=True)
    return head


def _parse_head(url: str, headers: Mapping[str, str]) -> Head:
    length = headers.get("Content-Length")
    if length and not length.isdecimal():
        raise LongtailError(f"{url}: the server says its size is {length!r}, expected bytes")
    version = headers.get("ETag", "W/")
    if version.startswith("W/"):  # a weak tag may be that of other bytes
        version = headers.get("Last-Modified", "")
    return Head(size=int(length) if length else None, version=version)


def _download_file(client: Client, url: str, path: Path, head: Head, bar: tqdm) -> None:
    part = _part(path)
    if _read_note(path).head != head:
        part.unlink(missing_ok=True)  # the file on the server has changed since
    _write_note(path, Note(head))
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
            _remove_bad_start(part)
            after = _size(part)
            failures = 0 if after - before >= http.BLOCK else failures + 1
            if failures == ATTEMPTS:
                raise Unreachable(
                    f"{url}: cut at {after} of {head.size} bytes ({error}); run again to go on"
                ) from None
            bar.write(f"fetch: {url}: the connection was cut; going on from byte {after}")
            client.pause(http.BACKOFF * failures)

    checksum = _check_part(client, url, head, part)
    _write_note(path, Note(head, checksum))
    part.replace(path)


def _remove_bad_start(part: Path) -> None:
    """Remove a part that is missing, empty or an error page, which the file doesn't go on from."""
    try:
        check_start(part)
    except (LongtailError, OSError):
        part.unlink(missing_ok=True)


def _continue(client: Client, url: str, head: Head, part: Path, bar: tqdm) -> None:
    """Append what is missing to `part`. Raises requests.ConnectionError if the connection ends too
    early.
    """
    size = _size(part)
    if size and size == head.size:
        return
    headers = dict(IDENTITY)
    if size:
        headers["Range"] = f"bytes={size}-"
        if head.version:
            headers["If-Range"] = head.version

    with _send(client, "GET", url, headers) as answer:
        resumes = answer.status_code == 206
        content_range = answer.headers.get("Content-Range")
        if resumes and not (content_range or "").startswith(f"bytes {size}-"):
            raise LongtailError(f"{url}: asked for bytes from {size} on, got {content_range}")
        if head.size is not None:
            missing = head.size - size if resumes else head.size
            length = answer.headers.get("Content-Length", "")
            if length.isdecimal() and int(length) != missing:
                raise requests.ConnectionError(f"{length} bytes would come, expected {missing}")

        with part.open("ab" if resumes else "wb") as file:
            for block in client.parts(answer, math.inf):
                file.write(block)
                bar.update(len(block))
                if head.size is not None and file.tell() > head.size:
                    return  # `_check_part` refuses the size
            if head.size is not None and file.tell() < head.size:
                raise requests.ConnectionError("the server closed the connection early")


def _check_part(client: Client, url: str, head: Head, part: Path) -> str:
    """Check size, content and checksum; return the published checksum. A file that fails is
    removed.
    """
    try:
        size = part.stat().st_size
        if head.size not in (None, size):
            raise Unreachable(f"{url}: {size} bytes arrived, expected {head.size}; run again")
        _check_content(url, part)
        expected = published_checksum(client, url)
        if expected:
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


def _check_content(url: str, path: Path) -> None:
    """Raise LongtailError, naming the URL, for a file that no reader takes."""
    try:
        check_start(path)
    except LongtailError as error:
        raise LongtailError(f"{url}: {str(error).removeprefix(f'{path}: ')}") from None


def published_checksum(client: Client, url: str) -> str:
    """The SHA-1 digest from a list of checksums beside the file, or "" if the server has none."""
    name = name_of(url)
    addresses = [f"{url}.sha1"]
    run = DUMP_RUN.match(name)
    if run:
        folder, _, _ = url.rpartition("/")
        addresses.insert(0, f"{folder}/{run.group()}-sha1sums.txt")

    for address in addresses:
        answer = client.send("GET", address)
        if answer.status_code != 200:
            continue
        for line in answer.content.decode("utf-8", "replace").splitlines():
            digest, _, file = line.strip().partition(" ")
            if DIGEST.fullmatch(digest) and file.strip(" *") in (name, ""):
                return digest.lower()

    return ""


def _send(
    client: http.Client,
    method: str,
    url: str,
    headers: Mapping[str, str] = IDENTITY,
    further_statuses: Sequence[int] = (),
) -> requests.Response:
    """The streamed answer; LongtailError for a status that is neither good nor one of
    `further_statuses`.
    """
    answer = client.send(method, url, headers=headers, stream=True)
    if answer.status_code not in (*DATA_STATUSES, *further_statuses):
        raise http.refusal(answer, url)
    return answer


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
