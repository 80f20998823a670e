"""Files that are whole or not there: `shards.py` comes first."""
