"""Read YAML by its parser in C, which is nine times as fast as the one in Python."""

from pathlib import Path
from typing import Any

import yaml


def read(path: Path) -> Any:
    """The values of a file. Raises yaml.YAMLError, or UnicodeDecodeError, for what is no YAML."""
    return parse(path.read_text(encoding="utf-8"))


def parse(text: str) -> Any:
    """The values of a text."""
    return yaml.load(text, yaml.CSafeLoader)
