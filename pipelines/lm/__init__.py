"""The language model as a black box (REPLUG §3): it scores texts and generates answers."""
