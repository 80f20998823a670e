"""The question sets, and when an answer to a question is right (PopQA, section 3)."""
