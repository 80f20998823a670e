"""Answers by method, and when retrieving is worth it (Mallen et al., 2023, section 6)."""

DATASETS = ("popqa", "entityquestions")
