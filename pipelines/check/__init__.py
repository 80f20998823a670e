"""What tables have to be like: their rows, their values beside those of earlier runs, and what
differs between two versions of a table.
"""
