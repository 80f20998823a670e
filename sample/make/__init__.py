"""The generator of the offline sample: one fictional world, written in the sources' own formats."""
