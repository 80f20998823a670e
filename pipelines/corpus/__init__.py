"""Raw text to 128-token documents and language-modelling queries (REPLUG, section 5)."""

from collections.abc import Sequence
from pathlib import Path

from pipelines import catalogue
from pipelines.errors import LongtailError


def training_files(folder: Path, corpora: Sequence[str]) -> list[Path]:
    """The documents of those `corpora` that models may learn from, by name; LongtailError where some aren't there."""
    files = [folder / name / "docs.parquet" for name in sorted(corpora) if catalogue.DATASETS[name].learn]
    for file in files:
        if not file.is_file():
            raise LongtailError(f"{file}: no such file, expected a corpus; run the stage `chunk`")
    return files
