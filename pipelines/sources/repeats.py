"""Records that several files have, such as a benchmark's `all` beside a file for each subject: each
counts once.
"""

import re
from collections import Counter
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

from pipelines.sources.rejects import Rejects

# in the name of a part of a table: test-00000-of-00002.parquet, test/0000.parquet
SHARD = re.compile(r"(?:-\d+-of-\d+|(?<=/)\d{4})(?=\.|$)")
REPEATED = "repeated_record"


def table_of(file: Path) -> str:
    """The path of a file without the number of a shard, which a table's shards have in common."""
    return SHARD.sub("", file.as_posix())


class Place(NamedTuple):
    """Where a record was read first."""

    table: str  # by `table_of`
    id: Hashable  # None if it has none


class Repeats:
    """Tells the records that another table has too, or that have the same content and id in one.

    A record without an id may stand twice in a table: published sets ask some questions twice.
    """

    def __init__(self, rejects: Rejects) -> None:
        self._rejects = rejects  # which counts the repeated ones as skipped
        self._first_places: dict[Hashable, Place] = {}
        self._repeated: Counter[Path] = Counter()  # by file

    def has(self, file: Path, content: Hashable, id_: Hashable = None) -> bool:
        """Whether a record was read before; else it is read now. What it says and its answers are
        its `content`.
        """
        place = Place(table_of(file), id_)
        if content not in self._first_places:
            self._first_places[content] = place
            return False

        first_place = self._first_places[content]
        is_of_one_table = first_place.table == place.table
        if is_of_one_table and (id_ is None or id_ != first_place.id):
            return False
        self._repeated[file] += 1
        self._rejects.skip(REPEATED)
        return True

    def say(self, name: str) -> None:
        """Print a line for each file with repeated records."""
        for file, count in self._repeated.items():
            print(
                f"{name}: {count:,} records of {file} were read before, from another file or under "
                "the same id; each counts once"
            )
