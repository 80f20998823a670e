"""MLflow: a parent run for the pipeline, a child for each stage that did work."""

from __future__ import annotations

from typing import Any


def log_stage(name: str, sections: dict[str, Any], metrics: dict[str, float]) -> None:
    """Log one finished stage."""
