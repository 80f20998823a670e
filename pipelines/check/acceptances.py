"""Expectations that do not hold in a month and were accepted, in conf/accepted.yaml."""

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, TypeAdapter

from pipelines.check.entries import read_entries
from pipelines.params.param_types import Month, Section
from pipelines.storage.atomic import atomic

FILE = Path("conf/accepted.yaml")
HEAD = "# What `longtail accept` wrote: these expectations need not hold (docs/schedules.md).\n"


class Acceptance(Section):
    """An entry of conf/accepted.yaml."""

    expectation: str  # its name in conf/expectations.yaml
    month: Month
    reason: Annotated[str, Field(min_length=1)]

    def __str__(self) -> str:
        return f"{self.expectation}, accepted for {self.month}: {self.reason}"


ENTRIES = TypeAdapter(list[Acceptance])


def read_acceptances(path: Path = FILE) -> list[Acceptance]:
    """All acceptances; none where there is no file. Raises LongtailError on a wrong file."""
    return read_entries(path, ENTRIES) or []


def accept(names: list[str], month: str, reason: str, path: Path = FILE) -> None:
    """Write that expectations need not hold in the month. A new reason replaces an old one."""
    acceptances = {}
    for acceptance in read_acceptances(path):
        acceptances[acceptance.expectation, acceptance.month] = acceptance
    for name in names:
        acceptances[name, month] = Acceptance(expectation=name, month=month, reason=reason)

    entries = ENTRIES.dump_python(list(acceptances.values()))
    text = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)
    with atomic(path) as temporary:
        temporary.write_text(HEAD + text, encoding="utf-8")
