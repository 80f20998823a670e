"""Question sets and what counts as a right answer (PopQA, section 3)."""
