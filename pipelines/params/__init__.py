"""Every number and what it may be: `params.py` comes first."""
