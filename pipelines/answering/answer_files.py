"""Which answers there are: files of predictions by language model and method, made here or brought in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

DATASETS = ("popqa", "entityquestions")
METHODS = ("closed_book", "bm25", "dense", "lsr", "genread", "replug", "replug_lsr")


def sets(dataset: str, lms: Sequence[str], root: Path = Path("data")) -> dict[str, dict[str, Path]]:
    """Language model -> method -> its file of answers (answer.SCHEMA) to the questions of `dataset`.

    First `lms` in their order (params.lms: the main one first), then the imported models by name; methods in the order
    of METHODS. What has no file is left out.
    """
    imported = root / "imported" / dataset
    elsewhere = sorted({file.parent.name for file in imported.glob("*/*.parquet")} - set(lms))
    folders = [(lm, root / "predictions" / dataset / lm) for lm in lms] + [(lm, imported / lm) for lm in elsewhere]
    found = {lm: {method: folder / f"{method}.parquet" for method in METHODS} for lm, folder in folders}
    there = {lm: {method: file for method, file in files.items() if file.is_file()} for lm, files in found.items()}
    return {lm: files for lm, files in there.items() if files}
