"""Raw text to 128-token documents and language-modelling queries (REPLUG, section 5)."""

from pathlib import Path

from pipelines.errors import LongtailError

CORPORA = ("wikipedia", "pile", "wikitext")
LEARNT = ("pile", "wikipedia")  # what models are trained on; never WikiText, which is there to judge them
SCORED = ("pile", "wikitext")  # whose test queries language models are judged on, with their own documents


def training_files(folder: Path) -> list[Path]:
    """The documents, in the folder of all corpora, that models learn from; LongtailError where some aren't there."""
    files = [folder / name / "docs.parquet" for name in LEARNT]
    for file in files:
        if not file.is_file():
            raise LongtailError(f"{file}: no such file, expected a corpus; run the stage `chunk`")
    return files
