"""What the report leaves in files."""

import csv
import json
import re
from pathlib import Path
from xml.etree import ElementTree


def table_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"tables/{name}.csv").open(encoding="utf-8") as rows:
        return list(csv.DictReader(rows))


def findings_of(folder: Path) -> dict:
    return {row["id"]: row for row in json.loads((folder / "findings.json").read_text())}


def settings_of(folder: Path) -> dict[str, str]:
    return {row["setting"]: row["value"] for row in table_of(folder, "settings")}


def leads_of(folder: Path) -> list[str]:
    """The sentences that the pages and their sections begin with."""
    leads = []
    for file in sorted(folder.glob("*.html"), reverse=True):
        for paragraph in ElementTree.parse(file).iter("p"):
            if {"says", "headline"} & {*paragraph.get("class", "").split()}:
                leads.append(" ".join("".join(paragraph.itertext()).split()))
    return leads


def overlong(leads: list[str]) -> list[str]:
    """Those that a person would not say: with a sentence of more than 25 words, with more than
    three numbers, or with an interval. What spells out a term does not count.
    """
    return [lead for lead in leads if _is_overlong(re.sub(r" \([A-Z][^)]*\)", "", lead))]


def _is_overlong(lead: str) -> bool:
    sentences = re.split(r"(?<=[.]) (?=[A-Z])", lead)
    longest = max(len(re.findall(r"\S*\w\S*", sentence)) for sentence in sentences)
    numbers = re.findall(r"(?<![\w-])\d[\d.,]*(?![\w-])", lead)
    return longest > 25 or len(numbers) > 3 or "[" in lead


def unclear_parts(folder: Path) -> list[str]:
    """Sections of all pages that lead with no sentence, and captions of more than 30 words.

    What an abbreviation is short for, in brackets, is not counted.
    """
    unclear = []
    for page in folder.glob("*.html"):
        tree = ElementTree.parse(page)
        for section in tree.iterfind(".//main/section"):
            classes = {paragraph.get("class") for paragraph in section.iter("p")}
            if section.get("id") not in ("next", "terms") and classes.isdisjoint(
                {"says", "missing"}
            ):
                unclear.append(section.get("id"))
        for caption in [*tree.iter("caption"), *tree.iter("figcaption")]:
            text = re.sub(r" \([^)]* [^)]*\)", "", "".join(caption.itertext()))
            if len(re.findall(r"\S*\w\S*", text)) > 30:
                unclear.append(text)
    return unclear


def page_of(folder: Path, name: str = "index") -> str:
    """A page in one line."""
    return " ".join((folder / f"{name}.html").read_text(encoding="utf-8").split())


def details_of(folder: Path) -> str:
    """The report's second page in one line."""
    return page_of(folder, "details")
