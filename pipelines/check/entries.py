"""The entries of the YAML files that the gate reads: what is expected, and what was accepted."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from pipelines import yaml_files
from pipelines.errors import LongtailError, one_line


def read_entries(path: Path, entries: TypeAdapter) -> Any:
    """The entries of a YAML file; None where there is no file, or nothing in it.

    Raises LongtailError with one line that says what is wrong in the file.
    """
    if not path.is_file():
        return None
    try:
        values = yaml_files.read(path)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LongtailError(f"{path}: not YAML ({one_line(error)})") from None
    return values and parse_entries(values, entries, path)


def parse_entries(values: Any, entries: TypeAdapter, path: Path) -> Any:
    """The entries that `values` of a file hold. Raises LongtailError with one line."""
    try:
        return entries.validate_python(values)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(name) for name in fault["loc"])
        problem = fault["msg"].replace("Value error, ", "")
        raise LongtailError(f"{path}: {key}: {problem}") from None
