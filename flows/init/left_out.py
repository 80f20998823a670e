"""A file that a run leaves out, because it uses another one of the same records."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class LeftOut(NamedTuple):
    """A file that is not used because another one is."""

    file: Path
    used: Path
    why: str


def instead(files: Iterable[Path], best: Sequence[Path], why: str) -> list[LeftOut]:
    """All files but the best ones, in whose place the first of these is used."""
    used = set(best)
    return [LeftOut(file, best[0], why) for file in files if file not in used]


def beside_least(files: Sequence[Path], key: Callable[[Path], Any], why: str) -> list[LeftOut]:
    """All files but those with the least key; files whose key is None stay beside them."""
    keys = {file: key(file) for file in files}
    known = [file for file in files if keys[file] is not None]
    if not known:
        return []
    least = min(keys[file] for file in known)
    return instead(known, [file for file in known if keys[file] == least], why)
