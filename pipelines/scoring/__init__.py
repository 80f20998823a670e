"""The log-probabilities that a language model gives to texts, alone and with documents (REPLUG, section 3)."""
