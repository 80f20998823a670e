"""REPLUG LSR: the retriever is tuned to a frozen language model (REPLUG, section 4)."""
