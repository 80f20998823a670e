"""Readers of the sources' real formats, and downloads."""
