"""Write how a release is cited: CITATION.cff for GitHub and Zotero, and .zenodo.json, from which Zenodo makes a DOI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines.errors import LongtailError
from pipelines.release.card import TITLE, Licence
from pipelines.storage import shards

PROJECT = Path("CITATION.cff")  # names who maintains this checkout: they are the authors of its releases
MESSAGE = "If you use this data set, please cite it, and the paper that PopQA is from."
KEYWORDS = ["question answering", "PopQA", "long-tail knowledge", "popularity", "adaptive retrieval", "Wikidata"]
PAPER = "10.18653/v1/2023.acl-long.546"  # PopQA's DOI
SEVERAL = "other-open"  # Zenodo takes one licence


def project(file: Path = PROJECT) -> dict[str, Any]:
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
    """Write both files into a release's folder. `made_by` has commit_date, and `project`'s citation."""
    version, authors = folder.name, made_by["citation"]["authors"]
    facts = {
        "cff-version": "1.2.0",
        "message": MESSAGE,
        "title": TITLE,
        "abstract": description,
        "type": "dataset",
        "version": version,
        "date-released": made_by["commit_date"],
        "license": sorted(licence.id.upper() for licence in licences),
        "authors": authors,
        "keywords": KEYWORDS,
        "references": made_by["citation"]["references"],
    }
    text = yaml.safe_dump({name: value for name, value in facts.items() if value}, sort_keys=False, allow_unicode=True)
    (folder / PROJECT.name).write_text(text, encoding="utf-8")
    zenodo = {
        "upload_type": "dataset",
        "title": TITLE,
        "version": version,
        "publication_date": made_by["commit_date"],
        "description": description,
        "creators": [_creator(author) for author in authors],
        "access_right": "open",
        "license": licences[0].id if len(licences) == 1 else SEVERAL,
        "language": "eng",
        "keywords": KEYWORDS,
        "notes": " ".join(f"{licence.name} for {licence.covers}." for licence in licences),
        "related_identifiers": [
            {"identifier": PAPER, "relation": "references", "scheme": "doi"},
            {"identifier": "https://www.wikidata.org", "relation": "isDerivedFrom", "scheme": "url"},
        ],
    }
    shards.write_json(folder / ".zenodo.json", zenodo)


def _creator(author: Mapping[str, str]) -> dict[str, str]:
    name = author.get("name") or ", ".join(filter(None, (author["family-names"], author.get("given-names"))))
    orcid = author.get("orcid", "").rpartition("/")[2]
    more = {"affiliation": author.get("affiliation"), "orcid": orcid}
    return {"name": name} | {key: value for key, value in more.items() if value}
