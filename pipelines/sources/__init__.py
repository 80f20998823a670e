"""Readers of the sources' real formats, and the generator of the offline sample world."""
