"""Cut raw text into documents of 128 tokens and queries for language modelling (REPLUG, section
5).
"""
