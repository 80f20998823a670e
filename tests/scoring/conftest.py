"""The scored project for the tests of this room."""

from scored_project import scored, scored_once

__all__ = ["scored", "scored_once"]
