"""When retrieving is worth it: a popularity threshold per relation, and one question asked by it (PopQA, section 6)."""
