"""Raw text to 128-token documents and language-modelling queries (REPLUG, section 5)."""
