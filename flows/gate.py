"""The gate between what a run made and its release: expectations that do not hold stop it.

The stage `check` measures the tables. Here the measures are compared with those of earlier runs
that landed (pipelines/check), and an expectation may have been accepted for the month.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from flows.graph import Stage
from flows.parts import Part
from pipelines.errors import LongtailError
from pipelines.params import params_file

# pipelines.check is imported in functions: it needs DuckDB, which complains on standard error when
# a run is interrupted.
if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.check.acceptances import Acceptance
    from pipelines.check.expectations import Expectation
    from pipelines.check.judgement import Unmet

CHECK = "check"  # the stage that measures all tables
UNMET_LOGGED = 20  # the artifact lists all of them


class Stopped(LongtailError):
    """An expectation does not hold, and nobody has accepted that."""


@dataclass(frozen=True)
class Judgement:
    """What the gate finds in a run."""

    runs: str  # the name of the runs that it was compared with
    measures: pa.Table  # MEASURES
    unmet: list[Unmet]
    accepted: list[Acceptance]  # of this month, those that let an expectation through

    @property
    def stopping(self) -> list[Unmet]:
        """What does not hold, and is not accepted."""
        accepted = {acceptance.expectation for acceptance in self.accepted}
        return [failure for failure in self.unmet if failure.expectation not in accepted]


def examine(month: str, stages: Sequence[Stage]) -> Judgement:
    """Compare what the stages made in a `month` with the expectations and with earlier runs.

    Raises LongtailError where a file of expectations or acceptances is wrong.
    """
    from pipelines.check import history
    from pipelines.check.acceptances import read_acceptances
    from pipelines.check.expectations import read_expectations

    expectations = read_expectations()
    acceptances = [entry for entry in read_acceptances() if entry.month == month]
    measures = _measure(expectations, stages)
    runs = history.name_history(params_file.read_values())
    return compare(runs, expectations, acceptances, measures)


@task(name="gate", task_run_name="gate", cache_policy=NO_CACHE)
def compare(
    runs: str,
    expectations: Mapping[str, Expectation],
    acceptances: Sequence[Acceptance],
    measures: pa.Table,
) -> Judgement:
    """Compare the measures of a run with the expectations, the last landed run and the
    reference."""
    from pipelines.check import judgement

    unmet = judgement.judge(expectations, runs, measures)
    names = {failure.expectation for failure in unmet}
    accepted = [entry for entry in acceptances if entry.expectation in names]
    return Judgement(runs, measures, unmet, accepted)


def judge(profile: str, part: Part, judged: Judgement) -> list[str]:
    """Say in the log what does not hold; returns words for the flow's message.

    Raises Stopped where something that does not hold is not accepted.
    """
    from pipelines.check import history

    log = get_run_logger()
    stopping = judged.stopping
    history.mark_stopped(profile, part, bool(stopping))
    if not history.has_landed(judged.runs):
        log.info(
            "gate: no run with these params has landed here, so there is nothing to compare with"
        )
    for failure in stopping[:UNMET_LOGGED]:
        log.warning(f"gate: {failure}")
    if stopping:
        raise Stopped(_stop_message(stopping))

    log.info(f"gate: {judged.measures.num_rows} measures are as expected or accepted")
    return [str(acceptance) for acceptance in judged.accepted]


def _stop_message(stopping: Sequence[Unmet]) -> str:
    names = list(dict.fromkeys(failure.expectation for failure in stopping))
    message = f"stopped by the gate: {stopping[0]}"
    if len(stopping) > 1:
        message += f"; and {len(stopping) - 1} more, see the artifact `run`"
    command = f"longtail accept {' '.join(names)} --because REASON"
    return f"{message}; nothing was released or pushed; to accept it: `{command}`, then run again"


def keep_baseline(judged: Judgement) -> None:
    """Keep what a run measured that landed, for the next run to be compared with."""
    from pipelines.check import history

    accepted = [acceptance.expectation for acceptance in judged.accepted]
    history.keep_measures(judged.runs, judged.measures, accepted)


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
