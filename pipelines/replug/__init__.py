"""The log-probability table, the ensembles over it, and LSR training (REPLUG, sections 3.2 and 4)."""
