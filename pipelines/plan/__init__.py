"""What a run will take: the tokens that its models read, the hours of this machine for them, and
the disk space of embeddings.
"""
