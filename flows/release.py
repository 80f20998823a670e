"""The release flow: what the last run made, checked and landed as release/<version>, where it differs from the last."""

from __future__ import annotations

from prefect import flow, get_run_logger
from prefect.states import Completed, Failed, State

from flows import landing, workspace
from pipelines.errors import LongtailError


@flow(name="release", description="Land what the last run made as release/<version>, where it differs from the last.")
def release(version: str | None = None) -> State:
    """Write the next release, called `version` or by what changed; the state's message says where, or why not."""
    log = get_run_logger()
    try:
        with workspace.alone(waiting=log.info):
            message = landing.land(version)
    except LongtailError as error:
        return Failed(message=str(error))
    log.info(message)
    return Completed(message=message)
