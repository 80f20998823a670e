"""Bad input rows are kept with their file, row and reason, and too many of them are an error."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.safe_text import mended
from pipelines.storage import parquet
from pipelines.storage.file_kinds import other_encoding
from pipelines.tables.corpora import REJECTS

ROWS_KEPT = 100_000  # bad rows of an input that are kept with their reasons; the rest are counted
NOT_UTF8 = "not_utf8"  # the reason of rows in another encoding
DETAIL_CHARS = 200  # characters of a bad row that are kept
ROWS_BEFORE_CHECK = 10_000  # rows read before the share of bad ones is first checked

Row = tuple[str, int, str, str]  # file, row, reason, detail


class Rejects:
    """The bad rows of an input, and the counts of rows that are read, bad or skipped.

    `rows` has the first ROWS_KEPT bad rows, `bad` the number of all by reason. `skipped` has the
    number of well-formed rows that are not used, by reason. Whoever reads the input adds to `read`.
    """

    def __init__(self, max_share: float) -> None:
        self.max_share = max_share
        self.rows: list[Row] = []
        self.bad: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.read = 0

    def add(self, file: str | Path, row: int, reason: str, detail: str = "") -> None:
        """Keep a bad row (`row` counts from 1). Raises LongtailError once too many rows are bad."""
        self.bad[reason] += 1
        if len(self.rows) < ROWS_KEPT:
            self.rows.append((Path(file).name, row, reason, mended(detail[:DETAIL_CHARS])))
        if self.read >= ROWS_BEFORE_CHECK:
            self.check()

    def skip(self, reason: str, count: int = 1) -> None:
        """Count well-formed rows that are not used."""
        self.skipped[reason] += count

    def check(self) -> None:
        """Raise LongtailError if more than `max_share` of the rows read are bad. Call it at the end
        of the input.
        """
        bad = self.bad.total()
        if bad > self.max_share * max(self.read, 1):
            file, row, reason, detail = self.rows[0]
            message = (
                f"{file}: {bad} of {self.read} rows rejected, expected at most "
                f"{self.max_share:.0%} (ingest.max_reject_share); "
                f"the first: row {row}, {reason} {detail[:80]!r}"
            )
            if reason == NOT_UTF8:
                message += f"; {other_encoding(file)}"
            raise LongtailError(message)

    def take(self, other: Rejects, rows_before: int = 0) -> None:
        """Check the rejects of another input, and add its bad rows and counts to these.

        Where the other input is a part of a file, `rows_before` is the number of rows in the file
        before that part.
        """
        other.check()
        for file, row, reason, detail in other.rows[: ROWS_KEPT - len(self.rows)]:
            self.rows.append((file, row + rows_before, reason, detail))
        self.bad += other.bad
        self.skipped += other.skipped
        self.read += other.read
        if self.read >= ROWS_BEFORE_CHECK:
            self.check()

    def encoded(self) -> bytes:
        """Everything as JSON, which `decoded` reads in another process."""
        return msgspec.json.encode((self.read, self.rows, self.bad, self.skipped))

    @classmethod
    def decoded(cls, text: bytes, max_share: float) -> Rejects:
        """The rejects that `encoded` wrote."""
        rejects = cls(max_share)
        rejects.read, rows, bad, skipped = msgspec.json.decode(text)
        rejects.rows = [tuple(row) for row in rows]
        rejects.bad = Counter(bad)
        rejects.skipped = Counter(skipped)
        return rejects

    def metrics(self) -> dict[str, int]:
        """Counts for a stage's metrics: rejected, rejected.<reason> and skipped.<reason>."""
        counts = {"rejected": self.bad.total()}
        for reason, count in self.reasons().items():
            counts[f"rejected.{reason}"] = count
        for reason, count in sorted(self.skipped.items()):
            counts[f"skipped.{reason}"] = count
        return counts

    def reasons(self) -> dict[str, int]:
        """Number of bad rows by reason."""
        return dict(sorted(self.bad.items()))

    def write(self, path: Path) -> None:
        """Write the bad rows that are kept as Parquet (file, row, reason, detail), ordered by file
        and row.
        """
        rows = [dict(zip(REJECTS.schema.names, row, strict=True)) for row in sorted(self.rows)]
        parquet.write_parquet(pa.Table.from_pylist(rows, schema=REJECTS.schema), path)
