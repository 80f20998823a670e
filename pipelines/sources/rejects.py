"""What happens to bad input rows: they are kept with file, row and reason, and too many of them are an error."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.storage import parquet

SCHEMA = pa.schema(
    [("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("detail", pa.string())]
)
KEPT = 100_000  # bad rows of an input that are kept with their reasons; further ones are counted
DETAIL = 200  # characters of a bad row that are kept
FIRST_CHECK = 10_000  # rows read before the share is first checked


class Rejects:
    """Bad rows of an input (`add`; `bad` counts all, `rows` has the first KEPT), and counts of unused ones (`skip`)."""

    def __init__(self, max_share: float) -> None:
        self.max_share = max_share
        self.rows: list[tuple[str, int, str, str]] = []
        self.bad: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.read = 0

    def add(self, file: str | Path, row: int, reason: str, detail: str = "") -> None:
        """Keep a bad row (`row` counts from 1). Raises LongtailError once too many rows are bad."""
        self.bad[reason] += 1
        if len(self.rows) < KEPT:
            self.rows.append((Path(file).name, row, reason, detail[:DETAIL]))
        if self.read >= FIRST_CHECK:
            self.check()

    def skip(self, reason: str, count: int = 1) -> None:
        """Count well-formed rows that are not used."""
        self.skipped[reason] += count

    def check(self) -> None:
        """Raise LongtailError if more than `max_share` of the rows read are bad. Call it at the end of the input."""
        if self.bad.total() > self.max_share * max(self.read, 1):
            file, row, reason, detail = self.rows[0]
            raise LongtailError(
                f"{file}: {self.bad.total()} of {self.read} rows rejected, expected at most {self.max_share:.0%} "
                f"(ingest.max_reject_share); the first: row {row}, {reason} {detail[:80]!r}"
            )

    def take(self, other: Rejects, rows_before: int = 0) -> None:
        """Check another input, or a part of a file after `rows_before` rows, and add its bad rows and counts."""
        other.check()
        of_file = (
            (file, row + rows_before, reason, detail) for file, row, reason, detail in other.rows
        )
        self.rows += islice(of_file, KEPT - len(self.rows))
        self.bad += other.bad
        self.skipped += other.skipped
        self.read += other.read
        if self.read >= FIRST_CHECK:
            self.check()

    def encoded(self) -> bytes:
        """Everything as JSON, so that another process can have it `decoded`."""
        return msgspec.json.encode([self.read, self.rows, self.bad, self.skipped])

    @classmethod
    def decoded(cls, saved: bytes, max_share: float) -> Rejects:
        """What `encoded` gave."""
        rejects = cls(max_share)
        layout = tuple[int, list[tuple[str, int, str, str]], dict[str, int], dict[str, int]]
        rejects.read, rejects.rows, bad, skipped = msgspec.json.decode(saved, type=layout)
        rejects.bad, rejects.skipped = Counter(bad), Counter(skipped)
        return rejects

    def metrics(self) -> dict[str, int]:
        """Counts for a stage's metrics: rejected, rejected.<reason> and skipped.<reason>."""
        counts = {f"rejected.{reason}": count for reason, count in self.reasons().items()}
        counts |= {f"skipped.{reason}": count for reason, count in sorted(self.skipped.items())}
        return {"rejected": self.bad.total()} | counts

    def reasons(self) -> dict[str, int]:
        """Number of bad rows by reason."""
        return dict(sorted(self.bad.items()))

    def write(self, path: Path) -> None:
        """Write the bad rows that are kept as Parquet (file, row, reason, detail), ordered by file and row."""
        rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in sorted(self.rows)]
        parquet.write_parquet(pa.Table.from_pylist(rows, schema=SCHEMA), path)
