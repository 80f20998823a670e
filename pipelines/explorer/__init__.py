"""Look at what a run made: questions with all their answers, scored texts, a question of one's
own.
"""
