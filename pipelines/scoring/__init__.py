"""The log-probabilities of texts by a language model, alone and with documents (REPLUG §3)."""
