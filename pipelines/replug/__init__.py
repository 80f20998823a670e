"""REPLUG's inference (REPLUG §3.2): ensembles of documents, the vote over answers, attribution."""
