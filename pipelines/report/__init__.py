"""The report: the results of a run as one page with figures and tables."""
