"""Encoder, vector index and BM25 behind one Retriever protocol (REPLUG §3.1)."""
