"""The keys of what a command prints with --json, as docs/command-line.md lists them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    """The keys of a JSON value as the page writes them; an interval is one key."""
    if isinstance(value, list):
        yield f"{path}[]"
        for entry in value:
            if isinstance(entry, dict):
                yield from keys_of(entry, f"{path}[].")
    elif isinstance(value, dict) and value.keys() != {"value", "low", "high"}:
        prefix = f"{path}." if path and not path.endswith(".") else path
        if prefix != path:
            yield path
        for name, entry in value.items():
            yield from keys_of(entry, f"{prefix}{name}")
    else:
        yield path


def documented(root: Path, command: str) -> set[str]:
    """The keys that the page lists for a command."""
    page = (root / "docs/command-line.md").read_text(encoding="utf-8")
    section = page.split(f"\n### {command} --json\n")[1].split("\n### ")[0]
    cells = re.findall(r"^\| (.+?) \|", section, re.M)
    return set(re.findall(r"`([^`]+)`", "".join(cells)))
