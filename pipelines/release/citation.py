"""Write how a release is cited: CITATION.cff, which GitHub, Zotero and Zenodo read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines.errors import LongtailError
from pipelines.release.card import TITLE, Licence

PROJECT = Path("CITATION.cff")  # names who maintains this checkout: they are the authors of its releases
KEYWORDS = ["question answering", "PopQA", "long-tail knowledge", "popularity", "adaptive retrieval", "Wikidata"]


def read_citation(file: Path = PROJECT) -> dict[str, Any]:
    """The authors and references of the project's own CITATION.cff.

    Raises LongtailError where the file is missing, or does not name authors as the format asks.
    """
    if not file.is_file():
        raise LongtailError(f"{file}: no such file, expected the authors of the release; see citation-file-format.org")
    try:
        known = yaml.safe_load(file.read_text(encoding="utf-8"))
        named = [author.get("name") or author["family-names"] for author in known["authors"]]
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        named = []
    if not named:
        raise LongtailError(f"{file}: no authors, expected a list with `name`, or `family-names` and `given-names`")
    return {"authors": known["authors"], "references": known.get("references", [])}


def write_citation(folder: Path, made_by: Mapping[str, Any], description: str, licences: Sequence[Licence]) -> None:
    """Write CITATION.cff into a release's folder. `made_by` has commit_date, and `read_citation`'s citation."""
    facts = {
        "cff-version": "1.2.0",
        "message": "If you use this data set, please cite it, and the paper that PopQA is from.",
        "title": TITLE,
        "abstract": description,
        "type": "dataset",
        "version": folder.name,
        "date-released": made_by["commit_date"],
        "license": sorted(licence.id.upper() for licence in licences),
        "authors": made_by["citation"]["authors"],
        "keywords": KEYWORDS,
        "references": made_by["citation"]["references"],
    }
    text = yaml.safe_dump({name: value for name, value in facts.items() if value}, sort_keys=False, allow_unicode=True)
    (folder / PROJECT.name).write_text(text, encoding="utf-8")
