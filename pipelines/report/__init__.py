"""The report: what came of a run, as one page with figures and tables."""
