"""Files that other systems wrote: read, joined with questions, judged and compared.

Only flows and stages use it.
"""
