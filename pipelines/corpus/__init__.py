"""Cut raw text into documents of 128 tokens and queries for language modelling (REPLUG, section
5).
"""

from collections.abc import Sequence
from pathlib import Path

from pipelines import catalogue
from pipelines.errors import LongtailError


def training_files(folder: Path, corpora: Sequence[str]) -> list[Path]:
    """The documents of the `corpora` that models may learn from, sorted by name.

    LongtailError if one is missing.
    """
    names = [name for name in sorted(corpora) if catalogue.DATASETS[name].learn]
    files = [folder / name / "docs.parquet" for name in names]
    for file in files:
        if not file.is_file():
            raise LongtailError(f"{file}: no such file, expected a corpus; run the stage `chunk`")
    return files
