"""The commands of `longtail`, a module for each thing that one wants to do."""
