"""What a run's language decides: `language.py` comes first."""
