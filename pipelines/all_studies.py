"""Finds the studies: the files of pipelines/studies/, each by what it offers. No other module knows one by name."""

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).with_name("studies")


def files_offering(name: str, folder: Path = FOLDER) -> list[Path]:
    """The files of the studies that have a function or constant of this name, in the order of their names."""
    offered = re.compile(rf"^(def {name}\(|{name}( =|:))", re.MULTILINE)
    return [
        file
        for file in sorted(folder.glob("*.py"))
        if offered.search(file.read_text(encoding="utf-8"))
    ]


def studies_offering(name: str) -> list[ModuleType]:
    """The studies that have a function or constant of this name, which is a literal here and for code.py."""
    return [import_module(f"pipelines.studies.{file.stem}") for file in files_offering(name)]
