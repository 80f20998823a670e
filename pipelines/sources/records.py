"""Records of a data set's files, as the Hub and others hand them out: JSON lines, a JSON list, or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import check_start, open_lines, open_rows, open_text

AT_ONCE = 1 << 10  # rows of Parquet
SUFFIXES = (".jsonl", ".json", ".parquet")


def record_files(folder: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """The files below `folder` (none where it is missing), by path; hidden files (.about.md) are none.

    Raises LongtailError for a file in another layout, which would else be left out without a word.
    """
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    for file in files:
        if file.suffix not in suffixes:
            raise LongtailError(f"{file}: expected {', '.join(suffixes)}; leave it out of fetch.files")
    return files


def read_records(path: Path, columns: Sequence[str], rejects: Rejects) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line or row from 1, record) of one file; of Parquet only those of `columns` that it has are read.

    Each record is counted in `rejects.read`; bad ones go there ("not JSON", "not an object"). Raises LongtailError
    naming a damaged file.
    """
    for number, record in _numbered(path, columns, rejects):
        if isinstance(record, dict):
            yield number, record
        else:
            rejects.add(path, number, "not an object", shown(record))


def shown(record: Any) -> str:
    """A record as it is kept among the rejects."""
    return json.dumps(record, ensure_ascii=False, default=str)


def _numbered(path: Path, columns: Sequence[str], rejects: Rejects) -> Iterator[tuple[int, Any]]:
    if path.suffix == ".parquet":
        records = _parquet(path, columns)
    elif path.suffix == ".json" and next(open_lines(path)).lstrip().startswith(b"["):
        records = _list(path)
    else:
        yield from _lines(path, rejects)
        return
    for number, record in enumerate(records, start=1):
        rejects.read += 1
        yield number, record


def _lines(path: Path, rejects: Rejects) -> Iterator[tuple[int, Any]]:
    for number, line in open_rows(path, rejects):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # no JSON, or no UTF-8
            rejects.add(path, number, "not JSON", line.decode("utf-8", "replace"))
        else:
            yield number, record


def _list(path: Path) -> list[Any]:
    try:
        return json.loads("\n".join(open_text(path)))
    except (ValueError, RecursionError) as error:
        raise LongtailError(f"{path}: not JSON ({error}), expected a list of objects; fetch it again") from None


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    check_start(path)
    try:
        with pq.ParquetFile(path) as file:
            own = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(AT_ONCE, columns=own):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LongtailError(f"{path}: corrupt, expected a Parquet file ({error}); fetch it again") from None
