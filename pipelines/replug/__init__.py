"""REPLUG's inference: ensembles of documents, the vote over answers, and attribution (REPLUG, section 3.2)."""
