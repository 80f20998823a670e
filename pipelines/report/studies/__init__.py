"""The sections of the studies, a file for each module of pipelines/studies that has any."""
