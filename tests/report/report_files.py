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
    """The sentences that the page and its sections begin with."""
    tree = ElementTree.parse(folder / "index.html")
    leads = [
        one for one in tree.iter("p") if {"says", "headline"} & {*one.get("class", "").split()}
    ]
    return [" ".join("".join(lead.itertext()).split()) for lead in leads]


def overlong(leads: list[str]) -> list[str]:
    """Those that a person would not say: with more than 25 words or two numbers, or with an
    interval.
    """
    words = {lead: re.findall(r"\S*\w\S*", lead) for lead in leads}
    numbers = {lead: re.findall(r"(?<![\w-])\d[\d.,]*(?![\w-])", lead) for lead in leads}
    return [
        lead for lead in leads if len(words[lead]) > 25 or len(numbers[lead]) > 2 or "[" in lead
    ]


def unclear_parts(folder: Path) -> list[str]:
    """Sections of all pages that lead with no sentence, and captions of more than 30 words.

    What an abbreviation is short for, in brackets, is not counted.
    """
    unclear = []
    for page in folder.glob("*.html"):
        tree = ElementTree.parse(page)
        for section in tree.iterfind(".//main/section"):
            classes = {paragraph.get("class") for paragraph in section.iter("p")}
            if section.get("id") != "findings" and classes.isdisjoint({"says", "missing"}):
                unclear.append(section.get("id"))
        for caption in [*tree.iter("caption"), *tree.iter("figcaption")]:
            text = re.sub(r" \([^)]* [^)]*\)", "", "".join(caption.itertext()))
            if len(re.findall(r"\S*\w\S*", text)) > 30:
                unclear.append(text)
    return unclear


def page_of(folder: Path) -> str:
    """The page in one line."""
    return " ".join((folder / "index.html").read_text(encoding="utf-8").split())
