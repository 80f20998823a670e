"""The gate between what a run made and its release: results that got worse are reported."""

from collections.abc import Sequence
from pathlib import Path

from prefect import get_run_logger

from flows.graph import Stage
from pipelines.errors import LongtailError
from pipelines.evaluation import regressions
from pipelines.evaluation.regressions import Regression

TOLERANCE = 0.05  # share by which a figure may get worse
REGRESSIONS_LOGGED = 10  # the artifact lists all of them


class Stopped(LongtailError):
    """An expectation does not hold, and nobody has accepted that."""


def compare(profile: str, stages: Sequence[Stage]) -> list[Regression] | None:
    """What is worse than in the profile's last landed run; None if none has landed."""
    return regressions.find_regressions(profile, _metrics_files(stages), TOLERANCE)


def judge(worse: list[Regression] | None) -> list[str]:
    """Say in the log what got worse; returns words for the flow's message."""
    log = get_run_logger()
    if worse is None:
        log.info("no run of this profile has landed here yet: there are no figures to compare with")
        return []
    if not worse:
        log.info(f"no figure is worse than the last landed run's by more than {TOLERANCE:.0%}")
        return []

    for regression in worse[:REGRESSIONS_LOGGED]:
        log.warning(f"regression: {regression}")
    if len(worse) > REGRESSIONS_LOGGED:
        n_more = len(worse) - REGRESSIONS_LOGGED
        log.warning(f"and {n_more} more, see the artifact `run`")
    return [f"{len(worse)} figures worse than the last landed run's, the worst {worse[0]}"]


def keep_baseline(profile: str, stages: Sequence[Stage]) -> None:
    """Keep the figures of a run that landed, for the next run to be compared with."""
    regressions.keep_figures(profile, _metrics_files(stages))


def _metrics_files(stages: Sequence[Stage]) -> list[Path]:
    return [file for stage in stages for file in stage.metrics]
