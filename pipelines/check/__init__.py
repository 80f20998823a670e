"""What a run will take: the tokens that its models read, and the hours that they take this
machine.
"""
