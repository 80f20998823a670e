"""How a stage does its work: `stage.py` comes first."""
