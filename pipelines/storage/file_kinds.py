"""What stands in the place of data, told by its first bytes: pointers, error pages, other formats, other encodings."""

import json
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError

HEAD = 1 << 12  # bytes of a file that tell what it is
PARQUET_MARK = b"PAR1"  # begins a Parquet file
UTF8_MARK = b"\xef\xbb\xbf"  # bytes that some programs write before UTF-8 text
AGAIN = "fetch or copy it again"
PAGE = "an error page, or a page about the file? fetch or copy the file itself"
TABLE = "save it as CSV (UTF-8)"
UNPACK = "unpack it and give the file inside"
CONVERT = "convert it: iconv -f {} -t utf-8 FILE > utf8-FILE"
PARQUET = "read it with {} and write Parquet or JSON lines"
DECLARED = rb"\s*(?:<\?xml[^>]*>\s*)?"
BINARY = rb"(?s:(?=.{0,60}[\0-\x08]))"  # follows within a few bytes in what is no text
ARROW = rb"ARROW1\0|FEA1" + BINARY + rb"|\xff{4}(?s:.{4})\x10\0\0\0"  # a file, Feather's first version, a stream
DVC = rb"(?:[a-z0-9_]+:.*\n)*?(?:outs|deps):\s*\n\s*- (?:md5|hash|size|path|etag)"
REFUSED = rb"not found|entry not found|repository not found|unauthorized|forbidden|access denied|bad gateway"
REFUSED += rb"|invalid username or password|service unavailable|gateway time-?out|too many requests"
ERROR, ABOUT_ERROR = {"error", "errors", "message", "detail"}, {"code", "status", "type", "title", "request_id"}
ABOUT_ERROR |= {"requestId", "documentation_url", "docs", "success", "error_code", "timestamp", "path"}


class Kind(NamedTuple):
    """Files that begin with a pattern; FILE in the advice stands for the file's name."""

    name: str
    start: bytes
    advice: str


# What takes the place of any file, be it a table, a model or an output.
STAND_INS = (
    Kind("a Git LFS pointer", rb"version https?://\S+/spec/v\d+\s+(?:ext-|oid )", "run git lfs pull in its folder"),
    Kind("a Git Xet pointer", rb"# xet version \d", "run git xet pull in its folder, or download it from its page"),
    Kind("a git-annex pointer", rb"(?:\.{1,2}/)*(?:\.git)?/?annex/objects/\S+\s*$", "run git annex get FILE"),
    Kind("a .dvc file, which only names the data", DVC, "run dvc pull, and give the file that it names"),
    Kind("a spreadsheet in HTML", DECLARED + rb"(?i:<html\s+xmlns:[a-z]+=\W?urn:schemas-microsoft)", TABLE),
    Kind("an HTML page", DECLARED + rb"(?i:<!doctype html|<html)", PAGE),
    Kind("a server's error page", DECLARED + rb"<Error>", AGAIN + ", or ask for access"),
    Kind("a server's error page", rb"(?i)\s*(?:\d{3}:? )?(?:" + REFUSED + rb")\.?\s*$", AGAIN + ", or ask for access"),
)  # fmt: skip
# What holds something else than text, or text in another encoding. Text is read as UTF-8, or UTF-16 with its mark.
FORMATS = (
    Kind("an Office file (.xls, or a workbook with a password)", rb"\xd0\xcf\x11\xe0", TABLE),
    Kind("an SQLite database", rb"SQLite format 3\0", "write its table as CSV: sqlite3 -header -csv FILE 'select …'"),
    Kind("a DuckDB database", rb"(?s).{8}DUCK", "write its table as Parquet: COPY … TO 'table.parquet'"),
    Kind("an Arrow file", ARROW, PARQUET.format("pyarrow")),
    Kind("an Avro file", rb"Obj\x01", PARQUET.format("fastavro")),
    Kind("an ORC file", rb"ORC" + BINARY, PARQUET.format("pyarrow.orc")),
    Kind("an encrypted Parquet file", rb"PARE" + BINARY, PARQUET.format("its key")),
    Kind("a pickle, as of Python, pandas or PyTorch", rb"\x80[\x01-\x08]", PARQUET.format("Python")),
    Kind("a NumPy array", rb"\x93NUMPY", PARQUET.format("numpy.load")),
    Kind("an HDF5 file", rb"\x89HDF", PARQUET.format("h5py or pandas")),
    Kind("a model's weights (safetensors)", rb"(?s).{4}\0{4}\{", "give the texts that the model said"),
    Kind("a model's weights (GGUF)", rb"GGUF[\x01-\x09]\0", "give the texts that the model said"),
    Kind("a PDF", rb"%PDF-", "give its table as CSV"),
    Kind("an image", rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|RIFF(?s:.{4})WEBP", "give its table as CSV"),
    Kind("a spreadsheet in XML", DECLARED + rb"(?:<\?mso[^>]*>\s*)?<Workbook", TABLE),
    Kind("an XML file, and no dump of MediaWiki", rb"\s*<\?xml[^>]*>\s*(?!<mediawiki)\S", "write JSON lines"),
    Kind("a file packed with LZ4", rb"\x04\x22\x4d\x18|\x02\x21\x4c\x18", "unpack it: lz4 -d FILE"),
    Kind("a 7z archive", rb"7z\xbc\xaf\x27\x1c", UNPACK),
    Kind("a RAR archive", rb"Rar!\x1a\x07", UNPACK),
    Kind("a tar archive", rb"(?s).{257}ustar", UNPACK),
    Kind("text in UTF-32", rb"\xff\xfe\0\0|\0\0\xfe\xff", CONVERT.format("utf-32")),
    Kind("text in UTF-16 without its mark", rb"(?:[\t-~]\0){3}", CONVERT.format("utf-16le")),
    Kind("text in UTF-16 without its mark", rb"(?:\0[\t-~]){3}", CONVERT.format("utf-16be")),
)  # fmt: skip
# What a zip is by the name of one of its files.
ZIPPED = (
    Kind("an Excel workbook", rb"xl/", TABLE),
    Kind("an OpenDocument file, as of LibreOffice", rb"content\.xml$", TABLE),
    Kind("a Word document", rb"word/", TABLE),
    Kind("a PyTorch file", rb"(?:.*/)?data\.pkl$", PARQUET.format("PyTorch")),
)


def check_stand_in(path: Path) -> None:
    """Raise LongtailError if a pointer or an error page stands in a file's place, or a link to nothing."""
    check_link(path)
    if path.is_file():
        refuse(path, head_of(path), STAND_INS)


def check_link(path: Path) -> None:
    """Raise LongtailError for a link to a file that is not here."""
    if path.is_symlink() and not path.exists():
        target = path.readlink().as_posix()
        does = "run git annex get" if "annex/objects" in target else "bring that file"
        raise LongtailError(f"{path}: a link to {target}, which is not here; {does}")


def head_of(path: Path) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as raw:
        return raw.read(HEAD)


def refuse(path: Path, start: bytes, kinds: Iterable[Kind] = (*STAND_INS, *FORMATS)) -> None:
    """Raise LongtailError if `start`, the HEAD bytes that a file begins with, are of one of the `kinds`."""
    start = start.removeprefix(UTF8_MARK)
    for kind in kinds:
        if re.match(kind.start, start):
            raise refusal(path, kind)
    if _says_error(start):
        said = " ".join(start[:100].decode("utf-8", "replace").split())
        raise LongtailError(f"{path}: a server's error page ({said}), expected data; {AGAIN}")


def refusal(path: Path, kind: Kind) -> LongtailError:
    """The error for a file of a kind that is not read."""
    expected = "data" if kind in STAND_INS else "text in UTF-8 or Parquet"
    does = kind.advice.replace("FILE", shlex.quote(path.name))
    return LongtailError(f"{path}: {kind.name}, expected {expected}; {does}")


def _says_error(start: bytes) -> bool:
    """Whether a whole file is one object of JSON that says why a server refuses."""
    if len(start) >= HEAD or start.lstrip()[:1] != b"{":
        return False
    try:
        said = json.loads(start)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and not ERROR.isdisjoint(said) and said.keys() <= ERROR | ABOUT_ERROR
