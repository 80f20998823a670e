"""When retrieving is worth it: thresholds on popularity, and asking by them (PopQA, section 6)."""
