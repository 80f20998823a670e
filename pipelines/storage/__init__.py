"""Files that are whole or not there: `atomic.py` comes first."""
