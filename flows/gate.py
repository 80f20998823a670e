"""The gate between what a run made and its landing: expectations that do not hold stop it.

The stage `check` measures the tables. Here the measures are compared with those of the last month
that landed (pipelines/check/baseline.py), and a value may have been accepted for the month.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows import data_branch, dvc_repo
from flows.graph import Stage
from flows.parts import Part
from pipelines.errors import LongtailError
from pipelines.params import params_file

# pipelines.check is imported in functions: it needs DuckDB, which complains on standard error when
# a run is interrupted.
if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.check.acceptances import Acceptance
    from pipelines.check.baseline import Earlier, Key
    from pipelines.check.expectations import Expectation
    from pipelines.check.judgement import Unmet

CHECK = "check"  # the stage that measures all tables
HASH_BYTES = 4  # of params
# Sections of params.yaml that may differ between runs whose tables are compared.
OF_THE_MACHINE = ("compute", "contact", "fetch", "plan")
UNMET_LOGGED = 20  # the artifact lists all of them
NAMES_SHOWN = 3  # of tables, in a message


class Stopped(LongtailError):
    """An expectation does not hold, and nobody has accepted that."""


@dataclass(frozen=True)
class Judgement:
    """What the gate finds in a run."""

    part: Part
    measured: int  # values
    unmet: list[Unmet]
    accepted: list[Acceptance]  # of this month, those that let a value through
    uncompared: list[str]  # tables that no earlier run has, or only with other params
    baseline: dict[Key, Earlier]  # for the next run, if this one lands

    @property
    def stopping(self) -> list[Unmet]:
        """What does not hold, and is not accepted."""
        stopping = []
        for failure in self.unmet:
            if not any(acceptance.lets_through(failure) for acceptance in self.accepted):
                stopping.append(failure)
        return stopping

    def check(self) -> None:
        """Raise Stopped where something that does not hold is not accepted."""
        stop = self.describe_stop()
        if stop:
            raise Stopped(stop)

    def describe_stop(self) -> str | None:
        """Say what stops the run, and how that is accepted; None if nothing does."""
        stopping = self.stopping
        if not stopping:
            return None
        message = f"stopped by the gate: {stopping[0]}"
        if len(stopping) > 1:
            message += f"; and {len(stopping) - 1} more, see the artifact `run`"
        names = list(dict.fromkeys(failure.key.expectation for failure in stopping))
        if self.part is not Part.refresh:
            names.append(f"--part {self.part}")
        command = f"longtail accept {' '.join(names)} --because REASON"
        message += "; nothing was released or pushed"
        return f"{message}; to accept it: `{command}`, then run again"

    def say(self, log: Callable[[str], None]) -> None:
        """Say what was found, a line each."""
        for failure in self.stopping[:UNMET_LOGGED]:
            log(f"gate: {failure}")
        if self.uncompared:
            log(f"gate: {self.describe_uncompared()}")
        if not self.stopping:
            log(f"gate: {self.measured} measures are as expected or accepted")

    def describe_uncompared(self) -> str:
        """Say which tables were compared with no earlier run."""
        names = ", ".join(self.uncompared[:NAMES_SHOWN])
        if len(self.uncompared) > NAMES_SHOWN:
            names += f" and {len(self.uncompared) - NAMES_SHOWN} more"
        return f"no landed run has {names} with these params, so nothing was compared there"


def examine(profile: str, part: Part, month: str, stages: Sequence[Stage]) -> Judgement:
    """Compare what the stages made in a `month` with the expectations and with earlier runs.

    Raises LongtailError where a file of expectations or acceptances is wrong.
    """
    from pipelines.check import baseline, judgement
    from pipelines.check.acceptances import read_acceptances
    from pipelines.check.expectations import read_expectations

    expectations = read_expectations()
    acceptances = [entry for entry in read_acceptances() if entry.month == month]
    measures = _measure(expectations, stages)
    params = _params_of_tables(stages, measures["file"].unique().to_pylist())
    before = data_branch.baseline_of(profile, part, month)
    earlier = baseline.read_baseline(before, params)

    unmet = judgement.judge(expectations, earlier, measures)
    accepted = []
    for acceptance in acceptances:
        if any(acceptance.lets_through(failure) for failure in unmet):
            accepted.append(acceptance)
    renewed = {failure.key for failure in unmet}
    compared = {key.file for key in earlier}
    return Judgement(
        part,
        measures.num_rows,
        unmet,
        accepted,
        sorted(params.keys() - compared),
        baseline.next_baseline(earlier, measures, params, renewed),
    )


def _measure(expectations: Mapping[str, Expectation], stages: Sequence[Stage]) -> pa.Table:
    """The measures (MEASURES) of what the stages made: the stage's own, or those of a part."""
    from pipelines.check import check_tables
    from pipelines.check.table_measures import measure_tables
    from pipelines.storage import parquet

    if any(stage.name == CHECK for stage in stages):
        return parquet.read_parquet(check_tables.MEASURES)
    settings = params_file.load_settings(check_tables.Settings)
    outs: list[Path] = []
    for stage in stages:
        outs += stage.outs
    return measure_tables(expectations, check_tables.DATA, settings.ingest.memory_gb, outs)


def _params_of_tables(stages: Sequence[Stage], files: Sequence[str]) -> dict[str, str]:
    """File below data/ -> a hash of the params that its stage, and all stages before it, read.

    The month and OF_THE_MACHINE do not count. The stages come after those that they need.
    """
    locked = dvc_repo.stages_of_lock(Path.cwd())
    params: dict[str, dict[str, Any]] = {}  # stage -> param -> value
    hashes: dict[Path, str] = {}  # output -> hash
    for stage in stages:
        values = _compared_params(locked.get(stage.name, {}))
        for name in stage.needs:
            values |= params.get(name, {})
        params[stage.name] = values
        text = json.dumps(values, sort_keys=True, default=str)
        digest = hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).hexdigest()
        hashes |= dict.fromkeys(stage.outs, digest)

    of_files = {}
    for file in files:
        path = Path("data", file)
        of_outs = [hashes[place] for place in (path, *path.parents) if place in hashes]
        of_files[file] = "".join(of_outs)
    return of_files


def _compared_params(locked: Mapping[str, Any]) -> dict[str, Any]:
    """The params of a stage, by its entry in dvc.lock, that decide with what it is compared."""
    values = {}
    for name, value in locked.get("params", {}).get("params.yaml", {}).items():
        if name.partition(".")[0] in OF_THE_MACHINE or name == "popularity.month":
            continue
        if name == "popularity":
            value = value | {"month": None}
        values[name] = value
    return values
