"""Recognise a file that is not the data it should be by its first bytes.

It may be a pointer, an error page, or another format or encoding.
"""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError

HEAD = 1 << 12  # bytes at a file's start that tell what it is
PARQUET_MARK = b"PAR1"  # begins a Parquet file
UTF8_MARK = b"\xef\xbb\xbf"  # bytes that some programs write before UTF-8 text
AGAIN = "fetch or copy it again"
TABLE = "save it as CSV (UTF-8)"
CONVERT = "convert it: iconv -f utf-16{} -t utf-8 FILE > utf8-FILE"
PARQUET = "read it with {} and write Parquet or JSON lines"
XML = rb"\s*(?:<\?xml[^>]*>\s*)?"
DVC = rb"(?:[a-z0-9_]+:.*\n)*?(?:outs|deps):\s*\n\s*- (?:md5|hash|size|path|etag)"


class Kind(NamedTuple):
    """Files that begin with a pattern; FILE in the advice stands for the file's name."""

    name: str
    start: bytes
    advice: str


# What takes the place of any file, be it a table, a model or an output.
STAND_INS = (
    Kind(
        "a Git LFS pointer",
        rb"version https?://\S+/spec/v\d+\s+(?:ext-|oid )",
        "run git lfs pull in its folder",
    ),
    Kind(
        "a git-annex pointer",
        rb"(?:\.{1,2}/)*(?:\.git)?/?annex/objects/\S+\s*$",
        "run git annex get FILE",
    ),
    Kind(
        "a .dvc file, which only names the data",
        DVC,
        "run dvc pull, and give the file that it names",
    ),
    Kind(
        "an HTML page",
        XML + rb"(?i:<!doctype html|<html)",
        "an error page? fetch or copy the file itself",
    ),
    Kind("a server's error page", XML + rb"<Error>", f"{AGAIN}, or ask for access"),
)
# Files without text, or with text in another encoding. Text is read as UTF-8, or UTF-16 with its
# mark.
FORMATS = (
    Kind("an Office file (.xls, or a workbook with a password)", rb"\xd0\xcf\x11\xe0", TABLE),
    Kind(
        "an SQLite database",
        rb"SQLite format 3\0",
        "write its table as CSV: sqlite3 -header -csv FILE 'select …'",
    ),
    Kind("an Arrow file", rb"ARROW1\0|\xff{4}(?s:.{4})\x10\0\0\0", PARQUET.format("pyarrow")),
    Kind(
        "a pickle, as of Python, pandas or PyTorch", rb"\x80[\x01-\x08]", PARQUET.format("Python")
    ),
    Kind(
        "a Jupyter notebook",
        rb"\s*\{\s*\"(?:cells\"\s*:\s*\[|nbformat)",
        "have it write its table, such as with to_csv",
    ),
    Kind(
        "a file of NumPy, HDF5, Avro, ORC or Feather",
        rb"\x93NUMPY|\x89HDF|Obj\x01|FEA1\0|ORC(?s:.{0,3})[\0-\x08]",
        PARQUET.format("its library"),
    ),
    Kind(
        "an XML file, and no dump of MediaWiki",
        rb"\s*<\?xml[^>]*>\s*(?!<mediawiki)\S",
        "write JSON lines",
    ),
    Kind(
        "an archive",
        rb"7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|(?s:.{257}ustar)",
        "unpack it and give the file inside",
    ),
    Kind("text in UTF-16 without its mark", rb"(?:[\t-~]\0){3}", CONVERT.format("le")),
    Kind("text in UTF-16 without its mark", rb"(?:\0[\t-~]){3}", CONVERT.format("be")),
)
# What a zip holds, by the name of one of its files.
ZIPPED = (
    Kind(
        "a log of Inspect",
        rb"_journal/start\.json$",
        "write it as JSON: inspect log convert FILE --to json --output-dir json",
    ),
    Kind("an Excel workbook", rb"xl/", TABLE),
    Kind("a PyTorch file", rb"(?:.*/)?data\.pkl$", PARQUET.format("PyTorch")),
)
# What lies in the folder of a table whose log says which of its files count: Delta, Hudi, Iceberg.
LOGS = ("_delta_log", ".hoodie", "metadata/version-hint.text")


def check_log(path: Path) -> None:
    """Raise LongtailError for a folder or a file of a table whose log says which files count."""
    for folder in (path, *path.absolute().parents):
        for log in LOGS:
            if (folder / log).exists():
                raise LongtailError(
                    f"{path}: of a table with a log ({folder / log}), which also keeps files of "
                    "earlier versions; write its rows to one Parquet file with the program that "
                    "keeps it, as deltalake.DeltaTable(…).to_pandas().to_parquet(…)"
                )


def check_no_folder(path: Path, expected: str) -> None:
    """Raise LongtailError for a folder where a file is `expected`, with what makes one of it."""
    if not path.is_dir():
        return
    check_log(path)
    advice = ""
    if any(path.glob("*.parquet")) or any(path.glob("*=*")):  # partitions, as language=en
        files = f"duckdb.read_parquet('{path.name}/**/*.parquet', hive_partitioning=True)"
        write = f"write_parquet('{path.name}.parquet')"
        advice = f'; make one of its files: python -c "import duckdb; {files}.{write}"'
    raise LongtailError(f"{path}: a folder, expected {expected}{advice}")


def check_stand_in(path: Path) -> None:
    """Raise LongtailError if a file is a pointer, an error page, or a link to nothing."""
    check_link(path)
    if path.is_file():
        refuse(path, head_of(path), STAND_INS)


def check_link(path: Path) -> None:
    """Raise LongtailError for a link to a file that is not here, and for a pipe."""
    if path.is_fifo():  # such as /dev/fd/63, as a shell names <(...)
        raise LongtailError(
            f"{path}: a pipe, which can be read only once; write it into a file, and name that"
        )
    if path.is_symlink() and not path.exists():
        target = path.readlink().as_posix()
        advice = "run git annex get" if "annex/objects" in target else "bring that file"
        raise LongtailError(f"{path}: a link to {target}, which is not here; {advice}")


def head_of(path: Path) -> bytes:
    """The first HEAD bytes of a file."""
    with path.open("rb") as raw:
        return raw.read(HEAD)


def refuse(path: Path, start: bytes, kinds: Iterable[Kind] = (*STAND_INS, *FORMATS)) -> None:
    """Raise LongtailError if `start`, the file's first HEAD bytes, fit one of the `kinds`."""
    text = start.removeprefix(UTF8_MARK)
    for kind in kinds:
        if re.match(kind.start, text):
            raise refusal(path, kind)


def other_encoding(path: str | Path) -> str:
    """What to do with a text that is not UTF-8."""
    name = shlex.quote(Path(path).name)
    return (
        f"{AGAIN}, or convert it from its encoding, which may be windows-1252 (Western), "
        f"windows-1251 (Cyrillic) or gb18030 (Chinese): iconv -f windows-1252 -t utf-8 {name} > "
        f"utf8-{name}"
    )


def refusal(path: Path, kind: Kind) -> LongtailError:
    """The error for a file of a kind that is not read."""
    expected = "data" if kind in STAND_INS else "text in UTF-8 or Parquet"
    advice = kind.advice.replace("FILE", shlex.quote(path.name))
    return LongtailError(f"{path}: {kind.name}, expected {expected}; {advice}")
