"""Knowledge triples: Wikidata's entities and claims with their popularity and term frequency
(PopQA, section 3).
"""
