"""`longtail init`: write a profile for the data sets and models in a folder."""
