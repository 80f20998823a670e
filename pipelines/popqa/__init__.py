"""Knowledge triples, PopQA and EntityQuestions (Mallen et al., 2023, section 3)."""
