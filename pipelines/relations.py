"""The relations that questions ask about, each with its template, from relations.yaml (PopQA, appendix A, Table 2)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from pipelines.errors import LongtailError

FILE = Path(__file__).with_name("relations.yaml")


@dataclass(frozen=True)
class Relation:
    pid: str  # Wikidata property, such as "P106"
    name: str  # in the published column `prop`
    template: str  # with one {} for the subject's label

    def question(self, subject: str) -> str:
        return self.template.replace("{}", subject)


def read_relations(path: Path = FILE) -> dict[str, Relation]:
    """Relations by property id, in the file's order. Raises LongtailError with the name of a faulty entry."""
    relations: dict[str, Relation] = {}
    for pid, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        if (
            not re.fullmatch(r"P[1-9]\d*", str(pid))
            or not isinstance(entry, dict)
            or set(entry) != {"name", "template"}
        ):
            raise LongtailError(
                f"{path.name}: entry {pid!r} is {entry!r}, expected P<number>: {{name: …, template: …}}"
            )
        if entry["template"].count("{}") != 1:
            raise LongtailError(f"{path.name}: {pid}'s template {entry['template']!r} must have one {{}}")
        relations[pid] = Relation(pid, entry["name"], entry["template"])
    if len({relation.name for relation in relations.values()}) != len(relations):
        raise LongtailError(f"{path.name}: two relations have the same name, expected {len(relations)} names")
    return relations


def property_ids(templates: Path) -> list[str]:
    """The properties whose claims are read: PopQA's relations, and those of EntityQuestions if it has been fetched.

    `templates` is the file of EntityQuestions' templates.
    """
    ids = set(RELATIONS)
    if templates.is_file():
        try:
            names = json.loads(templates.read_bytes()).keys()  # "P106", but also unused wordings, "P19_similar"
        except (ValueError, AttributeError, RecursionError):
            raise LongtailError(f"{templates}: no JSON object of templates by property; fetch it again") from None
        ids |= {name for name in names if re.fullmatch(r"P[1-9]\d*", name)}
    return sorted(ids, key=lambda pid: int(pid[1:]))


RELATIONS = read_relations()
BY_NAME = {relation.name: pid for pid, relation in RELATIONS.items()}
