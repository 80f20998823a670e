"""The folders of a cache of the Hub, where each revision's files are links to blobs."""

import re
from pathlib import Path

CACHE = re.compile(r"(models|datasets|spaces)--\S+")
REVISIONS = "snapshots"
BLOBS = "blobs"


def other_folders(folder: Path) -> dict[str, str]:
    """The folders in a folder that are not looked at, because they repeat what another one has.

    Returns why by name, "" where nobody needs to know.
    """
    folder = folder.absolute()
    if CACHE.fullmatch(folder.name) and (folder / REVISIONS).is_dir():
        others = {"refs": ""}
        if (folder / BLOBS).is_dir():
            others[BLOBS] = f"the links in {REVISIONS} lead to these files"
        return others
    if folder.name == REVISIONS and CACHE.fullmatch(folder.parent.name):
        return _other_revisions(folder)
    return {}


def _other_revisions(folder: Path) -> dict[str, str]:
    """The revisions but the one that refs/main names, or the largest if that has less than half."""
    sizes = {place.name: _bytes(place) for place in folder.iterdir() if place.is_dir()}
    if len(sizes) < 2:
        return {}
    main = folder.parent / "refs" / "main"
    name = main.read_text(encoding="utf-8").strip() if main.is_file() else ""
    used = max(sizes, key=lambda revision: (sizes[revision], revision))
    why = "it has more files"
    if 2 * sizes.get(name, 0) >= sizes[used]:
        used = name
        why = "refs/main names it"
    return {other: f"{used} is used in its place: {why}" for other in sizes if other != used}


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def cache_name(file: Path) -> str:
    """The name of the cache that a file lies in, such as datasets--a--nq_open; "" without one."""
    names = [folder.name for folder in file.absolute().parents if CACHE.fullmatch(folder.name)]
    return names[0] if names else ""
