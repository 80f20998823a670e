"""The black box: a language model that scores and generates, whatever runs it."""
