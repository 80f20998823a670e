"""The params of the profiles in conf/, each composed once in a process."""

from functools import cache
from pathlib import Path

import yaml

from flows import profiles

ROOT = Path(__file__).resolve().parents[1]
_composed = cache(profiles.compose)


def values_of(profile: str) -> dict:
    """The params of a profile, to be changed as one likes."""
    return yaml.safe_load(_composed(profile, ROOT))
