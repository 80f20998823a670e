"""Encoder, vector index and BM25 behind one Retriever protocol (REPLUG, section 3.1)."""
