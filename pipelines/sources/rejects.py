"""What happens to bad input rows: they are kept with file, row and reason, and too many of them are an error."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import LongtailError

SCHEMA = pa.schema([("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])
DETAIL = 200  # characters of a bad row that are kept
FIRST_CHECK = 10_000  # rows read before the share is first checked


class Rejects:
    """An input's bad rows (`add`), its number of rows, and counts of well-formed rows that aren't used (`skip`)."""

    def __init__(self, max_share: float) -> None:
        self.max_share = max_share
        self.rows: list[tuple[str, int, str, str]] = []
        self.skipped: Counter[str] = Counter()
        self.read = 0

    def add(self, file: str | Path, row: int, reason: str, detail: str = "") -> None:
        """Keep a bad row (`row` counts from 1). Raises LongtailError once too many rows are bad."""
        self.rows.append((Path(file).name, row, reason, detail[:DETAIL]))
        if self.read >= FIRST_CHECK:
            self.check()

    def skip(self, reason: str, count: int = 1) -> None:
        """Count well-formed rows that are not used."""
        self.skipped[reason] += count

    def check(self) -> None:
        """Raise LongtailError if more than `max_share` of the rows read are bad. Call it at the end of the input."""
        if len(self.rows) > self.max_share * max(self.read, 1):
            file, row, reason, detail = self.rows[0]
            raise LongtailError(
                f"{file}: {len(self.rows)} of {self.read} rows rejected, expected at most {self.max_share:.0%} "
                f"(ingest.max_reject_share); the first: row {row}, {reason} {detail[:80]!r}"
            )

    def take(self, other: Rejects) -> None:
        """Check another input by itself, then add its bad rows and counts to these."""
        other.check()
        self.rows += other.rows
        self.skipped += other.skipped
        self.read += other.read

    def save(self, path: Path) -> None:
        """Write everything to `path`, so that another process can `load` it."""
        path.write_bytes(msgspec.json.encode([self.read, self.rows, self.skipped]))

    @classmethod
    def load(cls, path: Path, max_share: float) -> Rejects:
        """What `save` wrote."""
        rejects = cls(max_share)
        saved = tuple[int, list[tuple[str, int, str, str]], dict[str, int]]
        rejects.read, rejects.rows, skipped = msgspec.json.decode(path.read_bytes(), type=saved)
        rejects.skipped.update(skipped)
        return rejects

    def metrics(self) -> dict[str, int]:
        """Counts for a stage's metrics: rejected, rejected.<reason> and skipped.<reason>."""
        counts = {f"rejected.{reason}": count for reason, count in self.reasons().items()}
        counts |= {f"skipped.{reason}": count for reason, count in sorted(self.skipped.items())}
        return {"rejected": len(self.rows)} | counts

    def reasons(self) -> dict[str, int]:
        """Number of bad rows by reason."""
        return dict(sorted(Counter(reason for _, _, reason, _ in self.rows).items()))

    def write(self, path: Path) -> None:
        """Write the bad rows as Parquet (file, row, reason, detail), ordered by file and row."""
        columns = list(zip(*sorted(self.rows), strict=True)) or [(), (), (), ()]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        pq.write_table(pa.table(arrays, schema=SCHEMA), path, compression="zstd")
