"""What processes of tests have from the server that forks them: torch takes some seconds of a core
to import.

None of the project's own modules: the server would look for them where the project is installed.
"""

PRELOADED = [
    "torch",
    "transformers.modeling_utils",
    "transformers.models.llama",
    "faiss",
    "distributed",
    "duckdb",
]
