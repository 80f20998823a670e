"""Prefect drives DVC here, and people drive both through the `longtail` command."""

import gc

from pipelines import OBJECTS_PER_LOOK

gc.set_threshold(OBJECTS_PER_LOOK)
