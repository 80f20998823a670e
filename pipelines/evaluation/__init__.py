"""How well language models and retrievers do: bits per byte, benchmarks, recall, and the
papers' tables of answers."""
