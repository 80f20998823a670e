"""The relations that questions ask about, each with its template in a language (PopQA, appendix A, Table 2)."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language

FILE = Path(__file__).with_name("relations.yaml")


@dataclass(frozen=True)
class Relation:
    pid: str  # Wikidata property, such as "P106"
    name: str  # in the published column `prop`
    template: str  # with one {} for the subject's label

    def question(self, subject: str) -> str:
        return self.template.replace("{}", subject)


def read_relations(path: Path = FILE, language: Language = ENGLISH) -> dict[str, Relation]:
    """Relations by property id, in the file's order, with the language's templates; those without one are left out.

    English has all. Raises LongtailError with the name of a faulty entry.
    """
    names, templates = yaml.safe_load(path.read_text(encoding="utf-8")), language.templates
    for pid, name in names.items():
        once = isinstance(name, str) and [*names.values()].count(name) == 1
        if not re.fullmatch(r"P[1-9]\d*", str(pid)) or not once:
            raise LongtailError(
                f"{path.name}: {pid!r} is {name!r}, expected P<number> and a name that no other has"
            )
    if unknown := sorted(templates.keys() - names.keys()):
        raise LongtailError(
            f"{path.name}: no name of {unknown[0]}, of which {language.name} has a template; add it"
        )
    if language == ENGLISH and (missing := [pid for pid in names if pid not in templates]):
        raise LongtailError(
            f"languages/en.yaml: no template of {missing[0]}, which {path.name} has; add one"
        )
    return {
        pid: Relation(pid, name, templates[pid]) for pid, name in names.items() if pid in templates
    }


def property_ids(templates: Path) -> list[str]:
    """The properties whose claims are read: PopQA's, and EntityQuestions' if its `templates` are fetched."""
    ids = set(RELATIONS)
    if templates.is_file():
        try:
            names = json.loads(
                templates.read_bytes()
            ).keys()  # "P106", but also unused wordings, "P19_similar"
        except (ValueError, AttributeError, RecursionError):
            raise LongtailError(
                f"{templates}: no JSON object of templates by property; fetch it again"
            ) from None
        ids |= {name for name in names if re.fullmatch(r"P[1-9]\d*", name)}
    return sorted(ids, key=lambda pid: int(pid[1:]))


RELATIONS = read_relations()  # with English templates
BY_NAME = {relation.name: pid for pid, relation in RELATIONS.items()}
