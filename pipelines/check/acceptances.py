"""Values that an expectation does not allow and that someone accepted, in conf/accepted.yaml."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, TypeAdapter

from pipelines.check.entries import read_entries
from pipelines.check.judgement import Unmet
from pipelines.intervals import plainly
from pipelines.params.param_types import Month, Section
from pipelines.storage.atomic import write_text

FILE = Path("conf/accepted.yaml")
HEAD = "# What `longtail accept` wrote: these values need not be as expected (docs/schedules.md).\n"


class Acceptance(Section):
    """An entry of conf/accepted.yaml."""

    expectation: str  # its name in conf/expectations.yaml
    file: str  # below data/
    measure: str  # what was measured of it
    month: Month
    value: float  # that is accepted; values nearer to the bound are, too
    bound: float  # that the expectation has
    reason: Annotated[str, Field(min_length=1)]
    who: str

    def __str__(self) -> str:
        return (
            f"{self.expectation}: {self.measure} of {self.file}: {plainly(self.value, 4)}, "
            f"accepted by {self.who}: {self.reason}"
        )

    def lets_through(self, unmet: Unmet) -> bool:
        """Whether this is an acceptance of such a value, or of one further from its bound."""
        if unmet.key != (self.expectation, self.file, self.measure):
            return False
        if self.value < self.bound:
            return unmet.value >= self.value
        return unmet.value <= self.value


ENTRIES = TypeAdapter(list[Acceptance])


def read_acceptances() -> list[Acceptance]:
    """All acceptances; none where there is no file. Raises LongtailError on a wrong file."""
    return read_entries(FILE, ENTRIES) or []


def accept(unmet: Sequence[Unmet], month: str, reason: str, who: str) -> None:
    """Write that these values are accepted in the month. A new acceptance replaces an old one."""
    acceptances = {}
    for acceptance in read_acceptances():
        key = (acceptance.expectation, acceptance.file, acceptance.measure)
        acceptances[key, acceptance.month] = acceptance
    for failure in unmet:
        acceptances[failure.key, month] = Acceptance(
            **failure.key._asdict(),
            month=month,
            value=failure.value,
            bound=failure.bound,
            reason=reason,
            who=who,
        )

    entries = ENTRIES.dump_python(list(acceptances.values()))
    text = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)
    write_text(FILE, HEAD + text)
