"""Answers to a question set: prompts, passages, and the methods that produce an answer (PopQA,
sections 4 and 5).
"""
