"""What packages bring along."""

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def not_brought(*further: str) -> str:
    """The modules, with commas between, of packages here that neither `pip install longtail` nor
    further requirements bring.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    todo, brought = [*map(Requirement, [*project["dependencies"], *further])], {"longtail"}
    while todo:
        needed = todo.pop()
        if canonicalize_name(needed.name) in brought or (
            needed.marker and not needed.marker.evaluate({"extra": ""})
        ):
            continue
        brought.add(canonicalize_name(needed.name))
        todo += map(Requirement, metadata.requires(needed.name) or ())
    modules = metadata.packages_distributions().items()
    return ",".join(name for name, of in modules if not brought & {*map(canonicalize_name, of)})
