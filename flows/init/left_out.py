"""A file that a run leaves out, because it uses another one of the same records."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class LeftOut(NamedTuple):
    """A file that is not used because another one is."""

    file: Path
    used: Path
    why: str


def instead(files: Iterable[Path], best: Sequence[Path], why: str) -> list[LeftOut]:
    """All files but the best ones, in whose place the first of these is used."""
    used = set(best)
    return [LeftOut(file, best[0], why) for file in files if file not in used]
