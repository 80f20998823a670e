"""Wikidata's entities and claims, their popularity and term frequency, as knowledge triples (PopQA, section 3)."""
