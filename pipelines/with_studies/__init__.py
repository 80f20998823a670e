"""The stages that offer studies a place, each with the studies that take it."""
