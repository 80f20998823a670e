"""Documents of The Pile, C4 and similar data sets: JSON lines or Parquet with `text` and perhaps a subset's name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import check_start, open_rows

PARQUET_BATCH = 1 << 10  # rows


class Document(NamedTuple):
    id: str
    text: str
    subset: str
    row: int  # line or row of the file, from 1


class _Meta(msgspec.Struct):
    pile_set_name: str = ""


class _Row(msgspec.Struct):
    text: str
    meta: _Meta | str | None = None  # a text or null, in some data sets on the Hub, names no subset
    subset: str | None = None


def read_documents(path: str | Path, rejects: Rejects) -> Iterator[Document]:
    """Yield the documents of one file: JSON lines (compressed or not) or .parquet.

    The subset is `meta.pile_set_name` or `subset`. A document's id is a hash of its text, so exact duplicates share it,
    and it depends on neither file nor order. Bad rows go to `rejects` (bad_json, unexpected_layout, not_utf8, no_text,
    too_long). Raises LongtailError naming the file if it is damaged (see `open_lines`).
    """
    path = Path(path)
    for number, text, subset in (_parquet if path.suffix == ".parquet" else _json_lines)(path, rejects):
        if text.strip():
            yield Document(text_id(text), text, subset, number)
        else:
            rejects.add(path, number, "no_text", "text is empty")


def text_id(text: str) -> str:
    """128 bits of BLAKE2b of the text, in hexadecimal."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()


def _json_lines(path: Path, rejects: Rejects) -> Iterator[tuple[int, str, str]]:
    parse = msgspec.json.Decoder(_Row).decode
    for number, line in open_rows(path, rejects):
        try:
            row = parse(line)
        except msgspec.ValidationError as error:
            rejects.add(path, number, "unexpected_layout", str(error))
        except UnicodeDecodeError as error:
            rejects.add(path, number, "not_utf8", str(error))
        except (msgspec.DecodeError, RecursionError) as error:
            rejects.add(path, number, "bad_json", str(error))
        else:
            yield number, row.text, (isinstance(row.meta, _Meta) and row.meta.pile_set_name) or row.subset or ""


def _parquet(path: Path, rejects: Rejects) -> Iterator[tuple[int, str, str]]:
    for number, (text, subset) in enumerate(read_parquet(path), start=1):
        rejects.read += 1
        try:
            yield number, (text or b"").decode("utf-8"), subset or ""
        except UnicodeDecodeError as error:
            rejects.add(path, number, "not_utf8", str(error))


def read_parquet(path: Path) -> Iterator[tuple[bytes | None, str | None]]:
    """Yield (text, subset) of a Parquet file's rows. The text is bytes, as pyarrow doesn't check that it is UTF-8.

    Raises LongtailError naming the file if it is damaged or has no column `text` of strings.
    """
    check_start(path)
    try:
        with pq.ParquetFile(path) as file:
            columns = _columns(path, file.schema_arrow)
            for batch in file.iter_batches(PARQUET_BATCH, columns=columns):
                yield from zip(batch.column(0).cast(pa.large_binary()).to_pylist(), _subsets(batch), strict=True)
    except (pa.ArrowException, OSError) as error:
        raise LongtailError(f"{path}: corrupt, expected a Parquet file ({error}); fetch it again") from None


def _subsets(batch: pa.RecordBatch) -> list[str | None]:
    """The second column, or the field of its structs; None for every row if there is no such column."""
    if batch.num_columns == 1:
        return [None] * batch.num_rows
    column = batch.column(1)
    return (pc.struct_field(column, 0) if pa.types.is_struct(column.type) else column).to_pylist()


def _columns(path: Path, schema: pa.Schema) -> list[str]:
    """The column with the texts and, if there is one, the column with the subsets."""
    if "text" not in schema.names or not _is_text(schema.field("text").type):
        raise LongtailError(f"{path}: columns {', '.join(schema.names)}, expected a column `text` of strings")
    meta = schema.field("meta").type if "meta" in schema.names else pa.null()
    if pa.types.is_struct(meta) and "pile_set_name" in [field.name for field in meta.fields]:
        return ["text", "meta.pile_set_name"]
    return ["text", "subset"] if "subset" in schema.names and _is_text(schema.field("subset").type) else ["text"]


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
