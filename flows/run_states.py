"""The names of states in which a flow run can end, besides Prefect's own."""

AWAITING_DUMPS = "AwaitingDumps"  # nothing was done: the month's dumps are not there yet
DUMPS_LATE = "DumpsLate"  # the same, and the dumps should have been there by now
STOPPED = "StoppedByGate"  # an expectation does not hold: nothing was released or pushed
UNCOMPARED = "LandedUncompared"  # it landed, and no earlier run had some of its tables
