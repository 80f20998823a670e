"""The names of states in which a flow run can end, besides Prefect's own."""

AWAITING_DUMPS = "AwaitingDumps"  # nothing was done: the month's dumps are not there yet
STOPPED = "StoppedByGate"  # an expectation does not hold: nothing was released or pushed
